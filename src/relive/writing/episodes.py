"""The steps of one environment are cut into episodes, and those into runs for the disk.

T  steps in time
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from relive.arrays import as_tensor
from relive.storage.episode_index import CUT, OPEN, TERMINATED, TRUNCATED, Run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from relive.fields import RowLayout
    from relive.ops.pack.reference import Column
    from relive.storage.episode_runs import Bytes, Columns, RunLayout
    from relive.storage.episode_writer import Writer

RUN = 1 << 20  # bytes of a run at most: they are compared, summed and copied while in the cache


def bytes_of_columns(
    layout: RowLayout, columns: list[Column], count: int
) -> dict[str, NDArray[np.uint8]]:
    """Packed columns of a stream as bytes, by name: uint8 [count, bytes of a value]."""
    names = {column.offset: name for name, column in layout.columns.items()}
    found = {}
    for offset, nbytes, values in columns:
        if isinstance(values, np.ndarray):
            flat = values.reshape(-1).view(np.uint8)
        else:
            flat = as_tensor(values).reshape(-1).view(torch.uint8).numpy()
        found[names[offset]] = flat.reshape(count, nbytes)
    return found


class _Steps(NamedTuple):
    columns: Columns
    differs: NDArray[np.bool_]
    rewards: NDArray[np.float32]


class EpisodeLane:
    """Cuts the steps of one environment into episodes and hands them on, run by run.

    Attributes:
        reset_due: the next step is a fake one and will be dropped.
        num_ended: episodes so far.
        dropped: fake steps so far.

    Args:
        writer: takes the runs.
        layout: of a run.
        env: the number that its episodes carry.
        resets: whether a fake step follows each end (autoreset "next_step").
        writes: whether payloads are written as soon as there is enough, from where they lie; else
            copies wait in memory, and no call fails.
    """

    def __init__(
        self, writer: Writer, layout: RunLayout, env: int, *, resets: bool, writes: bool
    ) -> None:
        self._writer, self._layout, self._env = writer, layout, env
        self._resets, self._writes = resets, writes
        self._longest = max(1, RUN // layout.nbytes(1, 0))
        self.reset_due = False
        self.num_ended = self.dropped = 0
        self._last: list[Bytes] | None = None  # next_obs of the newest step
        self._begin()

    def _begin(self) -> None:
        self._newest, self._length, self._return = -1, 0, 0.0

    def take(self, columns: Columns) -> None:
        """Steps in time order: uint8 [T, bytes of a value] of every column of a run."""
        flags = (columns["terminated"][:, 0] | columns["truncated"][:, 0]) != 0
        count, start = len(flags), 0
        if not count:
            return
        steps = _Steps(
            columns,
            self._layout.differ(columns, self._last),
            np.ascontiguousarray(columns["reward"]).view(np.float32)[:, 0],
        )
        for end in np.flatnonzero(flags).tolist():
            start = self._without_reset(start, count)
            if end >= start:  # else these are flags of a fake step
                terminated = columns["terminated"][end, 0]
                self._put(steps, start, end + 1, TERMINATED if terminated else TRUNCATED)
                start = end + 1
                self.reset_due = self._resets
        start = self._without_reset(start, count)
        if start < count:
            self._put(steps, start, count, OPEN)
        self._last = [columns[name][-1:].copy() for _, name in self._layout.pairs]

    def _without_reset(self, start: int, count: int) -> int:
        if not self.reset_due or start == count:
            return start
        self.reset_due = False
        self.dropped += 1
        return start + 1

    def _put(self, steps: _Steps, start: int, stop: int, ended: int) -> None:
        for first in range(start, stop, self._longest):
            last = min(first + self._longest, stop)
            self._put_run(steps, first, last, ended if last == stop else OPEN)

    def _put_run(self, steps: _Steps, first: int, last: int, ended: int) -> None:
        if not self._length:
            steps.differs[first] = True  # nothing comes before the first of an episode
        starts = np.flatnonzero(steps.differs[first:last])
        columns = {name: column[first:last] for name, column in steps.columns.items()}
        parts = self._layout.parts(columns, starts, copies=not self._writes)
        self._return += sum(steps.rewards[first:last].tolist())
        run = Run(
            self._newest, self._length, last - first, len(starts), self._return, self._env, ended
        )
        self._newest = self._writer.put(run, parts)
        if self._writes and self._writer.has_much:
            self._writer.write_data()
        self._length += last - first
        self._after(ended)

    def close(self, ended: int) -> None:
        """End the episode that is going on, if any: CUT or UNFINISHED."""
        if self._length:
            run = Run(self._newest, self._length, 0, 0, self._return, self._env, ended)
            self._writer.put(run, [])
            self._after(ended)

    def cut(self) -> None:
        """End it as truncated; whoever says so has reset the environment."""
        self.close(CUT)
        self.reset_due = False

    def _after(self, ended: int) -> None:
        if ended != OPEN:
            self.num_ended += 1
            self._begin()
