"""Which rows may be drawn, and where they lie, in Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from relive.ops import words as w
from relive.ops.compiled import float32_pointer, helper
from relive.ops.nodes.cpu import (
    CHILDREN,
    INFINITY,
    LEAVES_PER_NODE,
    as_extremum,
    leaves_of,
    mass_of,
    num_nodes,
    sums_of,
)
from relive.ops.power.cpu import power64, power_of_two


@helper
def schedule(words: Any, reals: Any, start: Any) -> Any:
    """A schedule that lies in three words, at the present progress."""
    fraction = min(1.0, np.float64(max(0, words[w.PROGRESS])) / reals[start + 2])
    return reals[start] + (reals[start + 1] - reals[start]) * fraction


@helper
def oldest_of_ring(words: Any) -> Any:
    """Id of the oldest row of the ring; that of the next one if there is none."""
    first = max(words[w.BASE_ID], words[w.OLDEST_ID])
    return max(first, words[w.NEXT_ID] - words[w.RING_CAPACITY])


@helper
def num_demonstrations(words: Any) -> Any:
    """Demonstrations held, in the first slots."""
    return words[w.DEMO_COUNT] + words[w.DEMO_ADDED]


@helper
def ring_slot(words: Any, row_id: Any) -> Any:
    """Slot of a row of the ring."""
    return words[w.RING_START] + (row_id - words[w.BASE_ID]) % words[w.RING_CAPACITY]


@helper
def find_ids(words: Any, slots: Any, ids: Any) -> None:
    """Ids of the rows in slots that hold one."""
    start = words[w.RING_START]
    capacity = words[w.RING_CAPACITY]
    oldest = oldest_of_ring(words)
    oldest_slot = ring_slot(words, oldest)
    for i in range(ids.shape[0]):
        age = slots[i] - oldest_slot
        ids[i] = oldest + (age + capacity if age < 0 else age)
    if start > 0:
        count = words[w.DEMO_COUNT]
        for i in range(ids.shape[0]):
            if slots[i] < count:
                ids[i] = words[w.DEMO_FIRST_ID] + slots[i]
            elif slots[i] < start:
                ids[i] = words[w.ADDED_FIRST_ID] + slots[i] - count


@helper
def find_slots(words: Any, ids: Any, slots: Any) -> None:
    """Slots of rows that are held."""
    start = words[w.RING_START]
    oldest = oldest_of_ring(words)
    oldest_slot = ring_slot(words, oldest)
    for i in range(ids.shape[0]):
        slot = oldest_slot + ids[i] - oldest
        slots[i] = slot - words[w.RING_CAPACITY] if slot >= words[w.CAPACITY] else slot
    if start > 0:
        for i in range(ids.shape[0]):
            if ids[i] >= w.FIRST_ADDED_ID:
                slots[i] = words[w.DEMO_COUNT] + ids[i] - words[w.ADDED_FIRST_ID]
            elif ids[i] - words[w.DEMO_FIRST_ID] < words[w.DEMO_COUNT]:
                slots[i] = ids[i] - words[w.DEMO_FIRST_ID]


@helper
def first_of_window(words: Any, reals: Any) -> Any:
    """The first id of the ring that the window lets be drawn next."""
    stop = words[w.NEXT_ID]
    live = stop - oldest_of_ring(words)
    rows = live
    if words[w.WINDOW] == w.LAST_ROWS:
        rows = words[w.WINDOW_ROWS]
    elif words[w.WINDOW] == w.ERE:
        whole = words[w.RING_CAPACITY] if words[w.WINDOW_OF_CAPACITY] else live
        number = np.float64(words[w.SWEEP] + 1)
        exponent = number * 1000.0 / np.float64(words[w.SWEEP_LENGTH])
        share = power64(schedule(words, reals, w.ETA_START), exponent)
        rows = max(np.int64(np.floor(np.float64(whole) * share)), words[w.WINDOW_ROWS])
    return stop - min(live, rows)


@helper
def overlap(first: Any, stop: Any, other_first: Any, other_stop: Any) -> Any:
    """How many ids two ranges have in common."""
    return max(0, min(stop, other_stop) - max(first, other_first))


@helper
def num_gone(words: Any, first: Any, stop: Any) -> Any:
    """How many ids of a range are of rows that are not held any more; see `reference.num_gone`."""
    pinned = words[w.DEMO_FIRST_ID]
    written = overlap(first, stop, 0, words[w.NEXT_ID])
    held = overlap(first, stop, pinned, pinned + words[w.DEMO_COUNT])
    held += overlap(first, stop, oldest_of_ring(words), words[w.NEXT_ID])
    return written - held


@helper
def mass_before(words: Any, slot: Any) -> Any:
    """Mass of all leaves before a slot."""
    leaves = leaves_of(words)
    sums = sums_of(words)
    unit = power_of_two(words[w.SCALE])
    node = slot >> w.LEAF_BITS
    mass = np.int64(0)
    for other in range(node << w.LEAF_BITS, slot):
        mass += mass_of(leaves[other], unit)
    for level in range(words[w.NUM_LEVELS]):
        parent = node >> w.NODE_BITS
        first = parent << w.NODE_BITS if level + 1 < words[w.NUM_LEVELS] else 0
        for other in range(first, node):
            mass += sums[words[w.LEVEL_0 + level] + other]
        node = parent
    return mass


@helper
def smallest_between(words: Any, first: Any, stop: Any) -> Any:
    """Smallest positive leaf of the slots first..stop; infinity if there is none."""
    leaves = leaves_of(words)
    mins = carray(float32_pointer(words[w.MINS]), num_nodes(words))
    smallest = INFINITY
    low, high = first, stop
    while low < high and low % LEAVES_PER_NODE != 0:
        smallest = min(smallest, as_extremum(leaves[low], False))
        low += 1
    while low < high and high % LEAVES_PER_NODE != 0:
        high -= 1
        smallest = min(smallest, as_extremum(leaves[high], False))
    low >>= w.LEAF_BITS
    high >>= w.LEAF_BITS
    level = 0
    while low < high:
        here = words[w.LEVEL_0 + level]
        is_top = level + 1 == words[w.NUM_LEVELS]
        while low < high and (is_top or low % CHILDREN != 0):
            smallest = min(smallest, mins[here + low])
            low += 1
        while low < high and high % CHILDREN != 0:
            high -= 1
            smallest = min(smallest, mins[here + high])
        low >>= w.NODE_BITS
        high >>= w.NODE_BITS
        level += 1
    return smallest
