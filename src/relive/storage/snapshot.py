"""A buffer as it is at one moment, to be written while it goes on changing.

What is small, or changes anywhere (priorities), is copied at once. Rows only ever change by being
overwritten, oldest first: they are taken a piece at a time in that order, by whoever writes them to
disk or, where the ring is faster, just before a row is overwritten.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from relive.ops import words as w
from relive.ops.window.reference import num_demonstrations, ring_range, slots_of
from relive.storage.files import bytes_of
from relive.storage.memory import free_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from relive.ops.state import State

PIECE = 1 << 20  # bytes copied at a time, while other calls wait
SHARE = 0.5  # of what is free on a GPU, for rows that wait there; others need memory meanwhile


class Snapshot:
    """What a save writes.

    Args:
        state: Of the buffer; its lock is held.
        lock: Of the buffer.
        before: The manifest of the save to add to; None to write all.
        moving: Whether the buffer goes on meanwhile, so that everything must be copied.

    Attributes:
        oldest: Id of the oldest row of the ring.
        start, stop: Ids of the ring's rows to be written.
        changed: Ids of rows before `start` that may differ from what was saved of them, and of
            rows that may change before they are written.
        last: The newest row of each lane.
        arrays: All that is saved besides rows of the ring, by name; each in one or more parts.
    """

    def __init__(
        self, state: State, lock: Any, before: dict[str, Any] | None, *, moving: bool
    ) -> None:
        self._rows, self._lock, self.moving = state.rows, lock, moving
        self._ring = tuple(map(state.word, (w.RING_START, w.BASE_ID, w.RING_CAPACITY)))
        self.oldest, self.stop = ring_range(state)
        self.start = self.oldest if before is None else max(self.oldest, before["stop"])
        self.last = state.lanes[:, w.LANE_LAST].tolist()
        self.changed = self._may_change(before)
        self.arrays = {
            name: [part.to("cpu", copy=moving) for part in parts]
            for name, parts in self._everything_else(state).items()
        }
        # demonstrations stay as they are: there is nothing to copy
        self.arrays["demonstrations"] = [state.rows[: num_demonstrations(state)].cpu()]
        self._next = self.start
        self._taken: deque[Tensor] = deque()
        self._most = math.inf  # pieces that wait where rows are
        if moving and state.rows.is_cuda and (free := free_memory(state.rows.device)) is not None:
            self._most = SHARE * free // max(PIECE, state.rows.shape[1])

    def rows(self) -> Iterator[memoryview]:
        """Rows `start` ... `stop`, once, in pieces."""
        while (piece := self._take()) is not None:
            yield bytes_of(piece)

    def make_way(self, next_id: int | None) -> None:
        """Rows up to id `next_id` are about to be written; the lock is held.

        What they overwrite is copied, on the device where it is: the host does not wait for it.
        Where a GPU has no room for that, and half of what was free when the save began is room, it
        goes to host memory, and the host waits.

        Args:
            next_id: None if it is not known.
        """
        stop = self.stop if next_id is None else min(next_id - self._ring[2], self.stop)
        while self._next < stop:
            self._taken.append(self._copy(stop))

    def _take(self) -> Tensor | None:
        """The next piece in host memory; others may go on while a GPU brings it there."""
        with self._lock:
            if not self._taken and self._next == self.stop:
                return None
            piece = self._taken.popleft() if self._taken else self._copy(self.stop)
        return piece.cpu()

    def _copy(self, stop: int) -> Tensor:
        """The next rows, at most to id `stop`, copied where they are."""
        first, count = next(self._runs(self._next, stop))
        if self.moving:
            count = min(count, max(1, PIECE // self._rows.shape[1]))
        piece = self._rows[first : first + count]
        place = piece.device if len(self._taken) < self._most else "cpu"
        try:
            copied = piece.to(place, copy=self.moving)
        except torch.OutOfMemoryError:
            copied = piece.to("cpu", copy=True)
        self._next += count  # not before: a piece that could not be copied is still to be taken
        return copied

    def _runs(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """First slot and number of slots of each run of ring ids in a range."""
        ring_start, base, capacity = self._ring
        while start < stop:
            slot = (start - base) % capacity
            count = min(stop - start, capacity - slot)
            yield ring_start + slot, count
            start += count

    def _may_change(self, before: dict[str, Any] | None) -> list[int]:
        """Ids of rows that are written apart from the others.

        The last row of a lane is told of its successor, or that its episode was cut, after it was
        saved; nothing else of a row ever changes.
        """
        candidates = set(self.last) if self.moving else set()
        if before is not None:
            candidates |= {row for row in (*before["last"], *before["changed"]) if row < self.start}
        return sorted(row for row in candidates if self.oldest <= row < self.stop)

    def _everything_else(self, state: State) -> dict[str, list[Tensor]]:
        ids = torch.tensor(self.changed, dtype=torch.int64, device=state.words.device)
        pinned, held = state.word(w.DEMO_COUNT), num_demonstrations(state)
        arrays = {
            "words": [state.words[w.FIRST_SAVED :]],
            "sweep_length": [state.words[w.SWEEP_LENGTH : w.SWEEP_LENGTH + 1]],
            "lanes": [state.lanes],
            "pending": [state.pending],
            "demonstrations": [],
            "changed_ids": [ids],
            "changed_rows": [state.rows[slots_of(state, ids).to(state.rows.device)]],
            "age_counts": [state.age_counts],
            "reuse_counts": [state.reuse_counts],
        }
        for name in ("leaves", "errors", "uses"):
            values = getattr(state, name)
            arrays[name] = [values[:0]]
            if len(values):  # in the order of ids
                runs = self._runs(self.oldest, self.stop)
                ring = (values[first : first + count] for first, count in runs)
                arrays[name] = [values[:pinned], *ring, values[pinned:held]]
        return arrays
