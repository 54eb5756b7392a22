"""Rings of rows and of frames: which ids are held, and in which slots.

slot = start + (id - base) mod size
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from relive.ops import words as w
from relive.ops.frames.reference import oldest_frame
from relive.ops.window.reference import ring_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relive.ops.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """A ring as it is at one moment.

    Attributes:
        memory: uint8 [slots, bytes]; in front of the ring it has what demonstrations need.
        start, size: the slots of the ring.
        base: an id whose slot is the first of these.
        oldest, stop: the first id held, and one past the last.
    """

    memory: Tensor
    start: int
    size: int
    base: int
    oldest: int
    stop: int

    @property
    def num_held(self) -> int:
        """How many are held, with those in front of the ring."""
        return self.start + self.stop - self.oldest

    def runs(self, first: int, stop: int) -> Iterator[slice]:
        """The slots of the ids in a range, in their order, in runs."""
        while first < stop:
            slot = (first - self.base) % self.size
            count = min(stop - first, self.size - slot)
            yield slice(self.start + slot, self.start + slot + count)
            first += count


def ring_of_rows(state: State) -> Ring:
    """That of the rows of a buffer."""
    oldest, stop = ring_range(state)
    return Ring(
        memory=state.rows,
        start=state.word(w.RING_START),
        size=state.word(w.RING_CAPACITY),
        base=state.word(w.BASE_ID),
        oldest=oldest,
        stop=stop,
    )


def ring_of_frames(state: State) -> Ring:
    """That of its frames; one of nothing where they are not kept once."""
    if not state.keeps_frames:
        return Ring(memory=state.frames, start=0, size=0, base=0, oldest=0, stop=0)
    start = state.frame_word(w.FRAME_START)
    return Ring(
        memory=state.frames,
        start=start,
        size=state.frame_word(w.NUM_FRAMES) - start,
        base=state.frame_word(w.FRAME_BASE),
        oldest=oldest_frame(state),
        stop=state.frame_word(w.NEXT_FRAME),
    )
