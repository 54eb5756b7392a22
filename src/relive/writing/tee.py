"""Every step that a buffer is given goes to a trajectory store too.

E  lanes (environments)      S  steps that a tee holds back
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relive.storage.episode_index import UNFINISHED
from relive.writing.episodes import bytes_of_columns

if TYPE_CHECKING:
    from torch import Tensor

    from relive.fields import RowLayout
    from relive.ops.pack.reference import Column
    from relive.writing.recorder import Recorder

STAGED = 1 << 18  # bytes of steps that a tee holds back; they fit the processor's second cache


class Tee:
    """Takes every step that a buffer is given, before the buffer does.

    A step costs a copy of its rows; lanes see them when many are there. Room is made before a step
    is taken, so that a disk that is full stops the whole step.

    Args:
        recorder: writes them.
        layout: of the buffer's rows.
        steps: uint8 [E, row_bytes], where the buffer packs a step of every environment.
        resets_due: [E], the lanes whose next step is a fake one.
        resets: whether there are such (autoreset "next_step").
    """

    def __init__(
        self,
        recorder: Recorder,
        layout: RowLayout,
        steps: Tensor,
        resets_due: list[bool],
        *,
        resets: bool,
    ) -> None:
        num_envs, row_bytes = steps.shape
        self._recorder, self._layout = recorder, layout
        self._guard = recorder.guard
        self._lanes = [recorder.lane(env, resets=resets, writes=False) for env in range(num_envs)]
        self.set_resets(resets_due)
        self._given = steps.numpy()
        self._room = max(1, STAGED // (num_envs * row_bytes))
        self._staged = np.empty((self._room, num_envs, row_bytes), np.uint8)
        self._count = 0
        self._places = {
            name: slice(column.offset, column.offset + column.nbytes)
            for name, column in layout.columns.items()
            if name in recorder.layout.columns
        }

    @property
    def dropped(self) -> int:
        """Fake steps so far."""
        return sum(lane.dropped for lane in self._lanes)

    def take(self) -> None:
        """The step that is packed in `steps`; raises as `drain` does, before it is taken."""
        with self._guard:
            if self._count >= self._room:
                self.drain()
            self._staged[self._count] = self._given
            self._count += 1

    def put_back(self) -> None:
        """The step that was taken last is taken no more: the buffer could not write it."""
        with self._guard:
            self._count = max(0, self._count - 1)

    def move(self, steps: Tensor) -> None:
        """From now on steps are packed elsewhere, in rows that may be padded otherwise."""
        with self._guard:
            before, room = self._staged, steps.shape[1]
            self._given = steps.numpy()
            self._staged = np.zeros((*before.shape[:2], room), np.uint8)
            nbytes = min(room, before.shape[2])
            self._staged[:, :, :nbytes] = before[:, :, :nbytes]

    def extend(self, columns: list[Column], count: int, lanes: range, *, close: bool) -> None:
        """Many steps of some lanes, those of one time before those of the next."""
        with self._guard:
            self.drain()
            given = bytes_of_columns(self._layout, columns, count)
            wanted = {name: column for name, column in given.items() if name in self._places}
            for number, env in enumerate(lanes):
                step = len(lanes)
                self._lanes[env].take({n: column[number::step] for n, column in wanted.items()})
                if close:
                    self._lanes[env].cut()

    def skip(self, count: int) -> None:
        """Count ready-made rows that the buffer was given: they are no steps."""
        with self._guard:
            self._recorder.require_open()
            self._recorder.ready_made_rows += count

    def end_episode(self, lanes: range) -> None:
        """The episodes of some lanes end here, as truncated."""
        with self._guard:
            self.drain()
            for env in lanes:
                self._lanes[env].cut()

    def interrupt(self) -> None:
        """What comes next does not go on from what came before; raises as `drain` does."""
        with self._guard:
            self.drain()
            for lane in self._lanes:
                lane.close(UNFINISHED)

    def set_resets(self, due: list[bool]) -> None:
        """The lanes whose next step is a fake one, `[E]`."""
        with self._guard:
            for lane, is_due in zip(self._lanes, due, strict=True):
                lane.reset_due = bool(is_due)

    def finish(self) -> None:
        """The buffer writes here no more; where this raises, as `drain` does, it still does."""
        with self._guard:
            if self._recorder.is_open:
                self.interrupt()
            self.leave()

    def leave(self) -> None:
        """The buffer writes here no more, and has left nothing to be ended."""
        with self._guard:
            self._recorder.forget(self)

    def drain(self) -> None:
        """Hand what is held back to the lanes.

        Raises:
            OSError: there is no room on the disk; nothing has changed then.
            InputError: the store is closed.
            UnsupportedError: this is a fork of the process that writes.
        """
        self._recorder.make_room()
        rows, self._count = self._staged[: self._count], 0
        if len(rows):
            for env, lane in enumerate(self._lanes):
                lane.take({name: rows[:, env, place] for name, place in self._places.items()})

    def stop(self, guard: Any) -> None:
        """Refuse the next step."""
        self._guard = guard
        self._count = self._room = 0
