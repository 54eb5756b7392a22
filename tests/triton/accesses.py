"""What the programs of one launch touch, and whether a GPU may do it in an order that matters.

granule   the bytes that every access of the launch consists of
who       the thread behind an access, as far as it can be told: the lane, if the block has as
          many lanes as the program has threads; with more lanes, loads and stores may spread them
          over the threads in ways of their own; with fewer, all threads load and the first stores
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

LOAD, STORE, ATOMIC = 0, 1, 2
NAMES = ("load", "store", "atomic")
EVERY_THREAD, FIRST_THREAD = -1, -2
NOBODY = np.iinfo(np.int64)


class KernelError(AssertionError):
    """A kernel does what is wrong, or not defined, on a GPU."""


class Access(NamedTuple):
    """One load, store or atomic of one program; `addresses` and `who` have a number a lane."""

    kind: int
    program: int
    barriers: int
    addresses: Integers
    size: int
    who: Integers


class Accesses:
    """Of one launch.

    Attributes:
        kernel: Its name.
        threads: Of a program.
    """

    def __init__(self, kernel: str, threads: int) -> None:
        self.kernel, self.threads = kernel, threads
        self.programs: dict[tuple[int, ...], int] = {}
        self.noted: list[Access] = []

    def note(
        self,
        kind: int,
        program: tuple[int, ...],
        barriers: int,
        addresses: Integers,
        size: int,
        lanes: Integers,
        num_lanes: int,
        values: NDArray[np.generic] | None,
    ) -> None:
        """Adds an access.

        Args:
            program: Its place in the grid.
            barriers: How many the launch has passed, so that two numbers differ if one was between.
            addresses, lanes: int64 [active lanes].
            num_lanes: Of the block, active or not.
            values: What is stored, [active lanes].

        Raises:
            KernelError: lanes store different values to one address.
        """
        if values is not None:
            _require_one_value(f"{self.kernel}{program}", addresses, values)
        if num_lanes < self.threads:
            lanes = np.full(len(lanes), EVERY_THREAD if kind == LOAD else FIRST_THREAD, np.int64)
        else:
            way = 4 * num_lanes.bit_length()  # lanes of other blocks are other threads
            lanes = lanes * 256 + way + (kind if num_lanes > self.threads else 0)
        number = self.programs.setdefault(program, len(self.programs))
        self.noted.append(Access(kind, number, barriers, addresses, size, lanes))

    def require_order(self) -> None:
        """Raises KernelError if the result depends on the order of programs or threads."""
        if all(access.kind == LOAD or not len(access.addresses) for access in self.noted):
            return
        granule = min(access.size for access in self.noted)
        kinds, programs, barriers, places, who = (
            np.concatenate(column)
            for column in zip(*(_columns(a, granule) for a in self.noted), strict=True)
        )
        clashes = _clashes(places, kinds, programs)
        if clashes.size:
            self._raise("programs", clashes[0], granule, places, kinds, programs)
        if self.threads > 32:
            stretches = barriers * len(self.programs) + programs  # from one barrier to the next
            distinct, number = np.unique(places, return_inverse=True)
            clashes = _clashes(stretches * len(distinct) + number, kinds, who)
            if clashes.size:
                place = distinct[clashes[0] % len(distinct)]
                self._raise("threads", place, granule, places, kinds, programs)

    def _raise(
        self,
        between: str,
        place: int,
        granule: int,
        places: Integers,
        kinds: Integers,
        programs: Integers,
    ) -> None:
        here = places == place
        names = list(self.programs)
        touched = ", ".join(
            f"{NAMES[kind]} of {self.kernel}{names[program]}"
            for kind, program in dict.fromkeys(zip(kinds[here], programs[here], strict=True))
        )
        cure = (
            "let a later launch do one of them, or use atomics"
            if between == "programs"
            else "put tl.debug_barrier() between them, or use an atomic"
        )
        raise KernelError(f"race between {between} at {place * granule:#x}: {touched}; {cure}")


def _columns(access: Access, granule: int) -> tuple[Integers, ...]:
    """(kinds, programs, barriers, places, who) of an access in granules."""
    parts = access.size // granule
    places = (access.addresses[:, None] // granule + np.arange(parts)).reshape(-1)
    constants = (access.kind, access.program, access.barriers)
    kinds, programs, barriers = (np.full(len(places), value, np.int64) for value in constants)
    return kinds, programs, barriers, places, np.repeat(access.who, parts)


def _clashes(groups: Integers, kinds: Integers, actors: Integers) -> Integers:
    """Groups of accesses to one place in which different actors' order matters."""
    order = np.argsort(groups, kind="stable")
    groups, kinds, actors = groups[order], kinds[order], actors[order]
    starts = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
    least, most = {}, {}
    for kind in (LOAD, STORE, ATOMIC):
        least[kind] = np.minimum.reduceat(np.where(kinds == kind, actors, NOBODY.max), starts)
        most[kind] = np.maximum.reduceat(np.where(kinds == kind, actors, NOBODY.min), starts)

    def differ(a: int, b: int) -> NDArray[np.bool_]:
        """Where a and b both happen, by more than one actor."""
        both = (least[a] <= most[a]) & (least[b] <= most[b])
        return both & (np.minimum(least[a], least[b]) != np.maximum(most[a], most[b]))

    wrong = (
        differ(STORE, STORE) | differ(STORE, LOAD) | differ(STORE, ATOMIC) | differ(ATOMIC, LOAD)
    )
    return groups[starts[wrong]]


def _require_one_value(program: str, addresses: Integers, values: NDArray[np.generic]) -> None:
    order = np.argsort(addresses, kind="stable")
    addresses, bits = addresses[order], values[order].view(f"u{values.dtype.itemsize}")
    same = addresses[1:] == addresses[:-1]
    if (same & (bits[1:] != bits[:-1])).any():
        raise KernelError(f"store of {program}: lanes write different values to one address")
