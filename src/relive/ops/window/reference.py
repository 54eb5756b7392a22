"""Which rows may be drawn, and where they lie.

Slots in front of the ring hold demonstrations: DEMO_COUNT pinned at once, then DEMO_ADDED pinned
one by one, then room for more. The ring follows, from RING_START on.

    slot = id - DEMO_FIRST_ID                      of a demonstration
           DEMO_COUNT + id - ADDED_FIRST_ID        of one that was added later
           RING_START + (id - BASE_ID) mod RING_CAPACITY

A batch is drawn from one part or, with demonstrations, from two; the rows of a part are always
taken in the order of their slots. Of the ring, a window says how many of the newest may be drawn:

    Recent(count)   c = min(live, count)
    ERE             c_k = min(live, max(floor(N eta^(k 1000 / K)), c_min)) for the k-th of K updates

(Wang and Ross 2019, arXiv:1906.04009, section 3.2; N: rows of the ring, or its capacity.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relive.ops import words as w
from relive.ops.power.reference import power64
from relive.ops.tree.reference import masses
from relive.schedules import Linear

if TYPE_CHECKING:
    from relive.ops.state import State


def ring_range(state: State) -> tuple[int, int]:
    """Ids of the ring: the oldest, and one past the newest."""
    stop = state.word(w.NEXT_ID)
    first = max(state.word(w.BASE_ID), state.word(w.OLDEST_ID))
    return max(first, stop - state.word(w.RING_CAPACITY)), stop


def num_demonstrations(state: State) -> int:
    """Demonstrations held, in the first slots."""
    return state.word(w.DEMO_COUNT) + state.word(w.DEMO_ADDED)


def num_rows(state: State) -> int:
    """Rows held."""
    oldest, stop = ring_range(state)
    return stop - oldest + num_demonstrations(state)


def slots_of(state: State, ids: Tensor) -> Tensor:
    """Slots of rows that are held: int64 [B] -> int64 [B]."""
    words = state.words
    ring = words[w.RING_START] + (ids - words[w.BASE_ID]) % words[w.RING_CAPACITY]
    pinned = ids - words[w.DEMO_FIRST_ID]
    added = words[w.DEMO_COUNT] + ids - words[w.ADDED_FIRST_ID]
    is_pinned = (pinned >= 0) & (pinned < words[w.DEMO_COUNT])
    return torch.where(ids >= w.FIRST_ADDED_ID, added, torch.where(is_pinned, pinned, ring))


def ids_of(state: State, slots: Tensor) -> Tensor:
    """Ids of rows in slots that hold one: int64 [B] -> int64 [B]."""
    oldest, _ = ring_range(state)
    start, capacity = state.word(w.RING_START), state.word(w.RING_CAPACITY)
    oldest_slot = start + (oldest - state.word(w.BASE_ID)) % capacity
    ring = oldest + (slots - oldest_slot) % capacity
    count = state.word(w.DEMO_COUNT)
    pinned = state.word(w.DEMO_FIRST_ID) + slots
    added = state.word(w.ADDED_FIRST_ID) + slots - count
    demonstration = torch.where(slots < count, pinned, added)
    return torch.where(slots < start, demonstration, ring)


def held_ids(state: State) -> Tensor:
    """Ids of all rows, ascending."""
    device = state.words.device
    first = state.word(w.DEMO_FIRST_ID)
    return torch.cat(
        [
            torch.arange(first, first + state.word(w.DEMO_COUNT), device=device),
            torch.arange(*ring_range(state), device=device),
            state.word(w.ADDED_FIRST_ID) + torch.arange(state.word(w.DEMO_ADDED), device=device),
        ]
    )


def held_between(state: State, first: int, stop: int) -> Tensor:
    """Ids of the rows held that lie in [first, stop), ascending."""
    held = held_ids(state)
    return held[(held >= first) & (held < stop)]


def num_gone(state: State, first: int, stop: int) -> int:
    """How many ids in [first, stop) are of rows that are not held any more.

    Copies among the demonstrations do not count: none of them is ever overwritten.
    """
    stop = min(stop, state.word(w.NEXT_ID))
    return max(0, stop - first) - len(held_between(state, first, stop))


def window(state: State) -> tuple[int, int]:
    """Ids of the ring that the window lets be drawn next: first, and one past the last."""
    oldest, stop = ring_range(state)
    live, kind = stop - oldest, state.word(w.WINDOW)
    if kind == w.ALL_ROWS:
        return oldest, stop
    least = state.word(w.WINDOW_ROWS)
    if kind == w.LAST_ROWS:
        return stop - min(live, least), stop
    rows = state.word(w.RING_CAPACITY) if state.word(w.WINDOW_OF_CAPACITY) else live
    number, length = state.word(w.SWEEP) + 1, state.word(w.SWEEP_LENGTH)
    eta = _schedule(state, w.ETA_START)
    share = float(power64(torch.tensor([eta], dtype=torch.float64), number * 1000.0 / length))
    return stop - min(live, max(math.floor(rows * share), least)), stop


@dataclass(frozen=True)
class Part:
    """Rows that some positions of a batch are drawn from.

    Attributes:
        slots: int64 [n], ascending.
        positions: of the batch, ascending.
        share: of the draws, in the long run.
    """

    slots: Tensor
    positions: list[int]
    share: float

    def mass(self, state: State) -> int:
        """Of all its rows."""
        return int(masses(state.leaves[self.slots], state.word(w.SCALE)).sum())


def parts(state: State, batch_size: int, ids: tuple[int, int] | None) -> tuple[list[Part], float]:
    """The parts of the next batch that have rows to draw, and the carry it leaves.

    Args:
        ids: draw from the rows with ids in [first, stop) instead.
    """
    carry = state.real(w.DEMO_CARRY)
    everywhere = list(range(batch_size))
    if ids is not None:
        wanted = slots_of(state, held_between(state, *ids))
        return _drawable(state, [Part(wanted.sort().values, everywhere, 1.0)]), carry
    online = slots_of(state, torch.arange(*window(state))).sort().values
    demonstrations = torch.arange(num_demonstrations(state))
    if state.word(w.DEMO_MODE) == w.ONE_POOL or len(demonstrations) == 0:
        pool = torch.cat([demonstrations, online])
        return _drawable(state, [Part(pool, everywhere, 1.0)]), carry
    share = _schedule(state, w.DEMO_SHARE_START)
    wanted_count = carry + batch_size * share
    count = min(math.floor(wanted_count), batch_size)  # the sum may round up
    both = [
        Part(demonstrations, spread(count, batch_size), share),
        Part(online, [p for p in everywhere if p not in set(spread(count, batch_size))], 1 - share),
    ]
    drawable = _drawable(state, both)
    if len(drawable) == 1:
        return [Part(drawable[0].slots, everywhere, 1.0)], carry
    return drawable, wanted_count - count


def spread(count: int, batch_size: int) -> list[int]:
    """`count` positions of a batch, as evenly as can be: equal slices hold equal shares."""
    return [p for p in range(batch_size) if (p + 1) * count // batch_size > p * count // batch_size]


def _drawable(state: State, candidates: list[Part]) -> list[Part]:
    uniform = state.word(w.WEIGHTING) == w.UNIFORM
    return [part for part in candidates if len(part.slots) and (uniform or part.mass(state) > 0)]


def _schedule(state: State, start: int) -> float:
    """A schedule that lies in three words, at the present progress."""
    linear = Linear(state.real(start), state.real(start + 1), int(state.real(start + 2)))
    return linear(state.word(w.PROGRESS))
