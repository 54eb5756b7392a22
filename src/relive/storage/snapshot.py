"""A buffer as it is at one moment, to be written while it goes on changing.

What is small, or changes anywhere (priorities), is copied at once. Rows and frames only ever change
by being overwritten, oldest first: they are taken a piece at a time in that order, by whoever
writes them to disk or, where the ring is faster, just before they are overwritten.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from relive.ops import words as w
from relive.ops.state import CHANGING_FRAMES
from relive.ops.window.reference import num_demonstrations, slots_of
from relive.storage.files import bytes_of
from relive.storage.memory import free_memory
from relive.storage.rings import ring_of_frames, ring_of_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from relive.ops.state import State
    from relive.storage.rings import Ring

PIECE = 1 << 20  # bytes copied at a time, while other calls wait
SHARE = 0.5  # of what is free on a GPU, for pieces that wait there; others need memory meanwhile


class Pieces:
    """What a save writes of a ring, taken a piece at a time, oldest first.

    Args:
        ring: As it is; the lock of the buffer is held.
        lock: Of the buffer.
        before: What the manifest of the save to add to says of it; None to write all.
        moving: Whether the ring goes on meanwhile, so that everything must be copied.
        room: Bytes of pieces that may wait where the ring is.

    Attributes:
        ring: As it was.
        start, stop: Ids to be written.
        segments: Files that have the others.
    """

    def __init__(
        self, ring: Ring, lock: Any, before: dict[str, Any] | None, *, moving: bool, room: float
    ) -> None:
        self.ring, self.stop = ring, ring.stop
        self.start = ring.oldest if before is None else max(ring.oldest, before["stop"])
        before_it = [] if before is None else before["segments"]
        self.segments = [segment for segment in before_it if segment["stop"] > ring.oldest]
        self._lock, self._moving = lock, moving
        self._next = self.start
        self._taken: deque[Tensor] = deque()
        self._room, self._largest = room, max(PIECE, ring.memory.shape[1])

    def parts(self) -> Iterator[memoryview]:
        """All of them, once."""
        while (piece := self._take()) is not None:
            yield bytes_of(piece)

    def make_way(self, next_id: int | None) -> None:
        """Those up to id `next_id` are about to be written; the lock is held.

        What they overwrite is copied, on the device where it is: the host does not wait for it.
        Where a GPU has no room for that, and half of what was free when the save began is room, it
        goes to host memory, and the host waits.

        Args:
            next_id: None if it is not known.
        """
        stop = self.stop if next_id is None else min(next_id - self.ring.size, self.stop)
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
        """The next ones, at most to id `stop`, copied where they are."""
        memory, run = self.ring.memory, next(self.ring.runs(self._next, stop))
        count = run.stop - run.start
        if self._moving:
            count = min(count, max(1, PIECE // memory.shape[1]))
        piece = memory[run.start : run.start + count]
        fits = (len(self._taken) + 1) * self._largest <= self._room
        place = piece.device if fits else "cpu"
        try:
            copied = piece.to(place, copy=self._moving)
        except torch.OutOfMemoryError:
            copied = piece.to("cpu", copy=True)
        self._next += count  # not before: a piece that could not be copied is still to be taken
        return copied


class Snapshot:
    """What a save writes.

    Args:
        state: Of the buffer; its lock is held.
        lock: Of the buffer.
        before: The manifest of the save to add to; None to write all.
        moving: Whether the buffer goes on meanwhile, so that everything must be copied.

    Attributes:
        rows, frames: Of the rings, but for what has been written before.
        changed: Ids of rows written before that may differ from what was saved of them, and of
            rows that may change before they are written.
        last: The newest row of each lane.
        arrays: All that is saved besides, by name; each in one or more parts.
    """

    def __init__(
        self, state: State, lock: Any, before: dict[str, Any] | None, *, moving: bool
    ) -> None:
        self.moving, self.keeps_frames = moving, state.keeps_frames
        self.rows, self.frames = (
            Pieces(ring, lock, written, moving=moving, room=_room(ring, state))
            for ring, written in (
                (ring_of_rows(state), before),
                (ring_of_frames(state), before and before.get("frames")),
            )
        )
        self.last = state.lanes[:, w.LANE_LAST].tolist()
        self.changed = self._may_change(before)
        self.arrays = {
            name: [part.to("cpu", copy=moving) for part in parts]
            for name, parts in self._everything_else(state).items()
        }
        # demonstrations stay as they are: there is nothing to copy
        self.arrays["demonstrations"] = [state.rows[: num_demonstrations(state)].cpu()]
        if self.keeps_frames:
            self.arrays["demonstration_frames"] = [state.frames[: self.frames.ring.start].cpu()]

    def make_way(self, next_id: int | None, next_frame: int | None) -> None:
        """Rows and frames up to these ids are about to be written, see `Pieces.make_way`."""
        self.rows.make_way(next_id)
        self.frames.make_way(next_frame)

    def _may_change(self, before: dict[str, Any] | None) -> list[int]:
        """Ids of rows that are written apart from the others.

        The last row of a lane is told of its successor, or that its episode was cut, after it was
        saved; nothing else of a row ever changes.
        """
        rows = self.rows
        candidates = set(self.last) if self.moving else set()
        if before is not None:
            candidates |= {row for row in (*before["last"], *before["changed"]) if row < rows.start}
        return sorted(row for row in candidates if rows.ring.oldest <= row < rows.stop)

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
                ring = self.rows.ring
                live = (values[run] for run in ring.runs(ring.oldest, ring.stop))
                arrays[name] = [values[:pinned], *live, values[pinned:held]]
        if state.keeps_frames:
            arrays["frame_words"] = [state.frame_words[CHANGING_FRAMES]]
            arrays["stacks"] = [state.stacks]
        return arrays


def _room(ring: Ring, state: State) -> float:
    """Bytes that pieces of a ring may wait in where it is; on a GPU, its part of their share."""
    memory = ring.memory
    if not memory.is_cuda or (free := free_memory(memory.device)) is None:
        return math.inf
    return SHARE * free * memory.nbytes / (state.rows.nbytes + state.frames.nbytes)
