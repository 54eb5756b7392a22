"""What the steps of a run look like on disk: columns, and each observation once.

T  steps of a run      U  those whose obs is not, bit for bit, the next_obs of the step before

    next_obs.. [T]  |  obs.. [U]  |  reward, terminated, truncated, action.., own.. [T]  |  [U]

one column after the other, without gaps; the last one says which the U steps are (uint32). In an
episode without gaps U is 1 in its first run and 0 in all others, so that T + 1 observations are
stored. What is handled here are bytes: a column is uint8 [steps, bytes of a value].
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relive.errors import CorruptError
from relive.storage.episode_index import CUT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from relive.fields import RowLayout

    Bytes = NDArray[np.uint8]
    Columns = Mapping[str, Bytes]

NOT_STORED = {"lane", "prev", "next", "discount"}  # of rows, not of steps
POSITION = np.dtype("<u4")


class RunLayout:
    """Which columns a run has, and in which order.

    Attributes:
        columns: bytes of a value of every column of a step, by name.
        pairs: the names of each part of an observation, as `obs` and as `next_obs`.
    """

    def __init__(self, row: RowLayout) -> None:
        self.columns = {
            name: column.nbytes for name, column in row.columns.items() if name not in NOT_STORED
        }
        obs, following = list(_leaves(row.tree["obs"])), list(_leaves(row.tree["next_obs"]))
        self.pairs = list(zip(obs, following, strict=True))
        self._obs = frozenset(obs)
        others = [name for name in self.columns if name not in {*obs, *following}]
        self._each_step = [*following, *others]
        self._order = [*following, *obs, *others]

    def nbytes(self, steps: int, starts: int) -> int:
        """Of the payload of a run."""
        observation = sum(self.columns[name] for name, _ in self.pairs)
        step = sum(self.columns[name] for name in self._each_step)
        return steps * step + starts * (observation + POSITION.itemsize)

    def differ(self, columns: Columns, before: Sequence[Bytes] | None) -> NDArray[np.bool_]:
        """Which steps begin with an observation that the step before did not end with: [T].

        Args:
            columns: of at least one step.
            before: the parts of the `next_obs` before the first of these steps, [1, bytes]; None if
                there is none.
        """
        found = np.zeros(len(columns["reward"]), bool)
        found[0] = before is None
        for number, (obs, following) in enumerate(self.pairs):
            given, last = columns[obs], columns[following]
            if before is not None:
                found[0] |= bool((given[0] != before[number][0]).any())
            if not _are_same_memory(given[1:], last[:-1]):
                unequal = _words(given)[1:] != _words(last)[:-1]
                if unequal.any():  # much faster than row by row, and nearly always all there is
                    found[1:] |= unequal.any(1)
        return found

    def parts(self, columns: Columns, starts: NDArray[np.intp], *, copies: bool) -> list[Any]:
        """The payload of a run, in pieces; only `copies` share no memory with the columns.

        Args:
            starts: the steps whose `obs` is written.
        """
        pieces = [
            columns[name][starts] if name in self._obs else columns[name] for name in self._order
        ]
        pieces.append(starts.astype(POSITION).view(np.uint8))
        if copies:
            return [b"".join([piece.tobytes() for piece in pieces])]
        return [np.ascontiguousarray(piece).reshape(-1) for piece in pieces]

    def join(self, entries: NDArray[Any], payloads: list[Bytes]) -> dict[str, Bytes]:
        """The columns of a whole episode: uint8 [steps, bytes], contiguous.

        Raises:
            CorruptError: the numbers in the payloads contradict each other.
        """
        runs = [self._split(e, p) for e, p in zip(entries, payloads, strict=True)]
        columns = {
            name: np.concatenate([run.parts[name] for run in runs]) for name in self._each_step
        }
        starts = np.concatenate([run.positions for run in runs])
        steps = len(columns["reward"])
        if starts[0] != 0 or (np.diff(starts) <= 0).any() or starts[-1] >= steps:
            raise CorruptError("the places of its observations are out of order")
        for obs, following in self.pairs:
            given = np.concatenate([run.parts[obs] for run in runs])
            whole = np.concatenate([given[:1], columns[following]])
            columns[following] = whole[1:]
            if len(starts) == 1:
                columns[obs] = whole[:-1]
            else:
                columns[obs] = whole[:-1].copy()
                columns[obs][starts] = given
        if entries[-1]["ended"] == CUT:
            columns["truncated"][-1] = 1
        return columns

    def _split(self, entry: Any, payload: Bytes) -> _Split:
        steps, starts = int(entry["steps"]), int(entry["starts"])
        if len(payload) != self.nbytes(steps, starts):
            raise CorruptError(f"{len(payload)} bytes are no run of {steps} steps")
        counts = [starts if name in self._obs else steps for name in self._order]
        sizes = [n * self.columns[name] for n, name in zip(counts, self._order, strict=True)]
        ends = np.cumsum([0, *sizes]).tolist()
        parts = {
            name: payload[start:stop].reshape(-1, self.columns[name])
            for name, (start, stop) in zip(self._order, pairwise(ends), strict=True)
        }
        positions = np.frombuffer(payload[ends[-1] :].tobytes(), POSITION).astype(np.int64)
        if len(positions) and positions.max() >= steps:
            raise CorruptError("the places of its observations are out of range")
        first = int(entry["first_step"])
        return _Split(parts, positions + first)


class _Split(NamedTuple):
    parts: dict[str, Bytes]
    positions: NDArray[np.int64]


def _leaves(tree: Any) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    return [leaf for branch in tree.values() for leaf in _leaves(branch)]


def _words(column: Bytes) -> NDArray[Any]:
    """The same bytes in the widest words, which are compared fastest."""
    size = next(size for size in (8, 4, 2, 1) if column.shape[1] % size == 0)
    return column.view(f"u{size}")


def _are_same_memory(one: Bytes, other: Bytes) -> bool:
    """Whether both are the same part of one array: `x[:-1]` and `x[1:]` given as a whole."""
    return (
        one.__array_interface__["data"] == other.__array_interface__["data"]
        and one.strides == other.strides
    )
