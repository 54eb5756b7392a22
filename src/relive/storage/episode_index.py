"""The index of a trajectory store: an entry of 64 bytes for each run of an episode's steps.

An episode is a chain of runs. Each run names the one before it, the last says how the episode
ended; so episodes that are written at the same time come apart again, and the last entry of an
episode alone tells its length and return. Episodes are numbered as their last entries come: those
of one lane in the order in which they ended.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relive.errors import CorruptError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# How an episode stands at the end of a run. CUT: as truncated, said after its last step was
# written. UNFINISHED: nobody said; its writer was killed, or stopped listening.
OPEN, TERMINATED, TRUNCATED, CUT, UNFINISHED = range(5)

CHECKED = 60  # bytes of an entry before its checksum
PACKED = struct.Struct("<qqIIdiIqqI")
ENTRY = np.dtype(
    [
        ("previous", "<i8"),
        ("first_step", "<i8"),
        ("steps", "<u4"),
        ("starts", "<u4"),
        ("reward", "<f8"),
        ("env", "<i4"),
        ("ended", "<u4"),
        ("offset", "<i8"),
        ("nbytes", "<i8"),
        ("crc32", "<u4"),
        ("check", "<u4"),
    ]
)


class Run(NamedTuple):
    """What an entry says.

    Attributes:
        previous: the entry of the run before it in the episode; -1 if it is the first.
        first_step: steps of the episode before this run.
        steps: how many there are; 0 only to say how the runs before it ended.
        starts: observations that are not the `next_obs` of the step before.
        reward: sum of the episode's rewards up to its end, in float64.
        env: the lane it is from.
        ended: how the episode stands after it.
        offset, nbytes, crc32: of its payload in the file of data; known once it is placed there.
    """

    previous: int
    first_step: int
    steps: int
    starts: int
    reward: float
    env: int
    ended: int
    offset: int = 0
    nbytes: int = 0
    crc32: int = 0

    def packed(self, number: int) -> bytes:
        """The entry, for its place in the index."""
        entry = PACKED.pack(*self)
        return entry + struct.pack("<I", _check(entry, number))


def _check(entry: Any, number: int) -> int:
    """Its sum starts from its number, so that an entry in another place is noticed too."""
    return zlib.crc32(entry, number & 0xFFFFFFFF)


class Index:
    """All entries so far, and which of them end an episode.

    Attributes:
        num_steps: steps of the episodes that have ended.
        unfinished: episodes of which nobody said how they ended.
    """

    def __init__(self) -> None:
        self._entries = np.zeros(64, ENTRY)
        self._count = 0
        self._last = array("q")  # of each episode that has ended
        self.num_steps = 0
        self.unfinished = 0

    @property
    def num_entries(self) -> int:
        """Runs of all episodes."""
        return self._count

    @property
    def num_episodes(self) -> int:
        """Those that have ended."""
        return len(self._last)

    @property
    def end_of_data(self) -> int:
        """The first byte behind every payload; 0 if there is none."""
        held = self._entries[: self._count]
        return int((held["offset"] + held["nbytes"]).max(initial=0))

    def add(self, raw: bytes) -> None:
        """Take up whole entries.

        Raises:
            CorruptError: one of them is damaged; nothing has changed then.
        """
        count = len(raw) // ENTRY.itemsize
        start, stop = self._count, self._count + count
        if stop > len(self._entries):
            larger = np.zeros(max(stop, 2 * len(self._entries)), ENTRY)
            larger[:start] = self._entries[:start]
            self._entries = larger
        new = self._entries[start:stop]
        new[:] = np.frombuffer(raw, ENTRY)
        numbers = np.arange(start, stop)
        right = _are_whole(raw, new, start)
        right[right] = self._follow(new[right], numbers[right])
        if not right.all():
            raise CorruptError(
                f"entry {int(numbers[~right][0])} of the index is damaged: its checksum differs, "
                "or it does not go on from where it says"
            )
        ends = new["ended"] != OPEN
        self._last.extend(numbers[ends].tolist())
        self.num_steps += int((new["first_step"] + new["steps"])[ends].sum())
        self.unfinished += int((new["ended"] == UNFINISHED).sum())
        self._count = stop

    def _follow(self, new: NDArray[Any], numbers: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each goes on from the end of the run that it names, or begins an episode."""
        previous = new["previous"]
        known = (previous >= -1) & (previous < numbers)
        before = self._entries[np.where(known, previous, 0)]
        begins = (new["first_step"] == 0) & (new["starts"] > 0)
        goes_on = (
            (before["ended"] == OPEN)
            & (before["first_step"] + before["steps"] == new["first_step"])
            & (before["env"] == new["env"])
        )
        says = (new["steps"] > 0) | (new["ended"] != OPEN)
        within = (new["starts"] <= new["steps"]) & (new["ended"] <= UNFINISHED)
        found: NDArray[np.bool_] = known & np.where(previous == -1, begins, goes_on) & says & within
        return found

    def episode(self, number: int) -> NDArray[Any]:
        """The entries of an episode that has ended, first to last."""
        chain = [self._last[number]]
        while (previous := int(self._entries[chain[-1]]["previous"])) >= 0:
            chain.append(previous)
        return self._entries[chain[::-1]]

    def open_runs(self) -> list[tuple[int, Any]]:
        """Number and entry of the newest run of every episode that has not ended."""
        held = self._entries[: self._count]
        newest = held["ended"] == OPEN
        newest[held["previous"][held["previous"] >= 0]] = False
        return [(number, held[number]) for number in np.flatnonzero(newest).tolist()]


def _are_whole(raw: bytes, new: NDArray[Any], start: int) -> NDArray[np.bool_]:
    """Whether the checksum of each is right."""
    view, size = memoryview(raw), ENTRY.itemsize
    sums = [_check(view[i * size : i * size + CHECKED], start + i) for i in range(len(new))]
    found: NDArray[np.bool_] = new["check"] == np.array(sums, np.uint32)
    return found
