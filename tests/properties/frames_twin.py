"""Frames that are kept once, in plain Python: which ids each step gets, and which rows are gone.

Nothing here is shared with `relive`. A frame is bytes; the ring of frames is a number of ids; rows
are looked at all together, where the buffer looks at some of the oldest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Stack = list[bytes]


@dataclass
class FramesTwin:
    """The frames of one buffer.

    Attributes:
        room: frames that are kept.
        needs: oldest frame of each row that is held, by its id.
    """

    room: int
    next_frame: int = 0
    known: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)  # by lane
    needs: dict[int, int] = field(default_factory=dict)
    evicted: int = 0

    def take(self, lane: int, obs: Stack, next_obs: Stack) -> tuple[int, int]:
        """A step of a lane; the oldest frame of each of its stacks."""
        ids = self._ids(obs, self.known.get(lane, []))
        behind = list(zip(ids[1:], obs[1:], strict=True))
        next_ids = self._ids(next_obs, behind)
        self.known[lane] = list(zip(next_ids, next_obs, strict=True))
        return min(ids), min(next_ids)

    def _ids(self, stack: Stack, expected: Sequence[tuple[int, bytes]]) -> list[int]:
        found: list[int] = []
        fresh: set[int] = set()  # ids that are new in this stack
        for place, frame in enumerate(stack):
            if place < len(expected) and expected[place][1] == frame:
                found.append(expected[place][0])
                continue
            if not (place and found[-1] in fresh and stack[place - 1] == frame):
                fresh.add(self.next_frame)
                self.next_frame += 1
            found.append(max(fresh))
        return found

    def settle(self) -> None:
        """Rows whose frames are gone go, with all that are older."""
        gone = self.next_frame - self.room
        newest = max((row for row, needed in self.needs.items() if needed < gone), default=-1)
        before = len(self.needs)
        self.keep([row for row in self.needs if row > newest])
        self.evicted += before - len(self.needs)

    def keep(self, held: Sequence[int]) -> None:
        """No others have a slot in the ring."""
        self.needs = {row: self.needs[row] for row in held if row in self.needs}

    def forget(self, lanes: Sequence[int]) -> None:
        """These lanes go on from nothing."""
        for lane in lanes:
            self.known.pop(lane, None)
