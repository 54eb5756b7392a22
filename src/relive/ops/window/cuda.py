"""Which rows may be drawn, for Triton kernels: four runs of slots, any of which may be empty.

    0  demonstrations pinned at once        2  the ring, from its first slot on
    1  demonstrations added, or wanted      3  the ring, up to its last slot

Runs ascend and do not overlap. A batch is drawn from all of them as one part, or from two parts:
runs 0 and 1 are demonstrations, 2 and 3 the rest. `words`, `leaves`, `sums`, `mins` are pointers to
tensors of a state. LEVELS: of its tree; RANGE: `bounds` holds the ids to draw from, int64 [2].
"""

from __future__ import annotations

import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.nodes.cuda import CHILDREN, INFINITY, LEAVES_PER_NODE, mass_of, real
from relive.ops.power.cuda import power64, power_of_two

RUNS = tl.constexpr(4)
FIRST_OF_RING = tl.constexpr(2)


@triton.jit
def schedule(words, start):
    """A schedule that lies in three words, at the present progress, float64 []."""
    progress = tl.maximum(tl.load(words + w.PROGRESS), 0).to(tl.float64)
    fraction = tl.minimum(progress / real(words, start + 2), 1.0)
    return real(words, start) + (real(words, start + 1) - real(words, start)) * fraction


@triton.jit
def oldest_before(words, next_id):
    """Id of the oldest row of a ring in which the next gets an id; that id if there is none."""
    first = tl.maximum(tl.load(words + w.BASE_ID), tl.load(words + w.OLDEST_ID))
    return tl.maximum(first, next_id - tl.load(words + w.RING_CAPACITY))


@triton.jit
def oldest_of_ring(words):
    """Id of the oldest row of the ring; that of the next one if there is none."""
    return oldest_before(words, tl.load(words + w.NEXT_ID))


@triton.jit
def num_demonstrations(words):
    """Demonstrations held, in the first slots."""
    return tl.load(words + w.DEMO_COUNT) + tl.load(words + w.DEMO_ADDED)


@triton.jit
def ring_slot(words, row_id):
    """Slot of a row of the ring, int64 []."""
    age = (row_id - tl.load(words + w.BASE_ID)) % tl.load(words + w.RING_CAPACITY)
    return tl.load(words + w.RING_START) + age


@triton.jit
def ids_of(words, slots):
    """Ids of the rows in slots that hold one, int64 [B]."""
    oldest = oldest_of_ring(words)
    age = slots - ring_slot(words, oldest)
    ring = oldest + tl.where(age < 0, age + tl.load(words + w.RING_CAPACITY), age)
    count = tl.load(words + w.DEMO_COUNT)
    pinned = tl.load(words + w.DEMO_FIRST_ID) + slots
    added = tl.load(words + w.ADDED_FIRST_ID) + slots - count
    demonstration = tl.where(slots < count, pinned, added)
    return tl.where(slots < tl.load(words + w.RING_START), demonstration, ring)


@triton.jit
def slots_of(words, ids):
    """Slots of rows that are held, int64 [B]."""
    oldest = oldest_of_ring(words)
    slot = ring_slot(words, oldest) + ids - oldest
    behind = slot >= tl.load(words + w.CAPACITY)
    ring = tl.where(behind, slot - tl.load(words + w.RING_CAPACITY), slot)
    count = tl.load(words + w.DEMO_COUNT)
    pinned = ids - tl.load(words + w.DEMO_FIRST_ID)
    added = count + ids - tl.load(words + w.ADDED_FIRST_ID)
    is_pinned = (pinned >= 0) & (pinned < count)
    return tl.where(ids >= w.FIRST_ADDED_ID, added, tl.where(is_pinned, pinned, ring))


@triton.jit
def first_of_window(words):
    """The first id of the ring that the window lets be drawn next, int64 []."""
    stop = tl.load(words + w.NEXT_ID)
    live = stop - oldest_of_ring(words)
    rows = live
    kind, least = tl.load(words + w.WINDOW), tl.load(words + w.WINDOW_ROWS)
    if kind == w.LAST_ROWS:
        rows = least
    if kind == w.ERE:
        of_capacity = tl.load(words + w.WINDOW_OF_CAPACITY) != 0
        whole = tl.where(of_capacity, tl.load(words + w.RING_CAPACITY), live)
        number = (tl.load(words + w.SWEEP) + 1).to(tl.float64)
        exponent = number * 1000.0 / tl.load(words + w.SWEEP_LENGTH).to(tl.float64)
        share = power64(schedule(words, w.ETA_START), exponent)
        rows = tl.maximum(tl.floor(whole.to(tl.float64) * share).to(tl.int64), least)
    return stop - tl.minimum(live, rows)


@triton.jit
def four(a, b, c, d):
    """Four numbers as a block."""
    run = tl.arange(0, RUNS)
    return tl.where(run == 0, a, tl.where(run == 1, b, tl.where(run == 2, c, d)))


@triton.jit
def find_runs(words, bounds, RANGE: tl.constexpr):
    """The first slot of each run, and one past its last: int64 [4] each."""
    ring_start = tl.load(words + w.RING_START)
    stop_id = tl.load(words + w.NEXT_ID)
    if RANGE:
        lowest, highest = tl.load(bounds), tl.load(bounds + 1)
        count, of_added = tl.load(words + w.DEMO_COUNT), tl.load(words + w.DEMO_ADDED)
        pinned, added = tl.load(words + w.DEMO_FIRST_ID), tl.load(words + w.ADDED_FIRST_ID)
        first_0 = tl.minimum(tl.maximum(lowest - pinned, 0), count)
        stop_0 = tl.maximum(tl.minimum(highest - pinned, count), first_0)
        first_1 = count + tl.minimum(tl.maximum(lowest - added, 0), of_added)
        stop_1 = tl.maximum(count + tl.minimum(highest - added, of_added), first_1)
        first_id = tl.maximum(lowest, oldest_of_ring(words))
        stop_id = tl.minimum(highest, stop_id)
    else:
        first_0 = ring_start * 0
        stop_0 = num_demonstrations(words)
        first_1, stop_1 = stop_0, stop_0
        first_id = first_of_window(words)
    some = first_id < stop_id
    low = ring_slot(words, tl.where(some, first_id, stop_id))
    high = ring_slot(words, tl.where(some, stop_id - 1, stop_id)) + 1
    wraps = some & (low >= high)
    stop_2 = tl.where(wraps, high, ring_start)
    first_3 = tl.where(some, low, ring_start)
    stop_3 = tl.where(wraps, tl.load(words + w.CAPACITY), tl.where(some, high, ring_start))
    return four(first_0, first_1, ring_start, first_3), four(stop_0, stop_1, stop_2, stop_3)


@triton.jit
def masses_before(words, leaves, sums, slots, LEVELS: tl.constexpr):
    """Mass of all leaves before each slot (at most one past the last), int64 [K]."""
    unit = power_of_two(tl.load(words + w.SCALE))
    node = slots >> w.LEAF_BITS
    place = (node << w.LEAF_BITS)[:, None] + tl.arange(0, LEAVES_PER_NODE)[None, :]
    leaf = tl.load(leaves + place, mask=place < slots[:, None], other=0.0)
    mass = tl.sum(mass_of(leaf, unit), 1)
    for level in tl.static_range(LEVELS):
        group = (node >> w.NODE_BITS) << w.NODE_BITS
        if level == LEVELS - 1:
            group = group * 0  # the highest level is one group
        place = group[:, None] + tl.arange(0, CHILDREN)[None, :]
        first = tl.load(words + w.LEVEL_0 + level)
        mass += tl.sum(tl.load(sums + first + place, mask=place < node[:, None], other=0), 1)
        node = node >> w.NODE_BITS
    return mass


@triton.jit
def smallest_of(nodes, first, stop, WIDTH: tl.constexpr):
    """Smallest positive of `nodes[first...stop]`, of which there are at most WIDTH; float32 [K]."""
    place = first[:, None] + tl.arange(0, WIDTH)[None, :]
    values = tl.load(nodes + place, mask=place < stop[:, None], other=INFINITY)
    return tl.min(tl.where(values > 0, values, INFINITY), 1)


@triton.jit
def smallest_leaves(words, leaves, mins, first, stop):
    """Smallest positive leaf of the slots first...stop of each run, float32 [K]; or infinity.

    Of each level the nodes that stand apart at either end; what lies between goes up.
    """
    low = tl.minimum(((first + LEAVES_PER_NODE - 1) >> w.LEAF_BITS) << w.LEAF_BITS, stop)
    high = tl.maximum((stop >> w.LEAF_BITS) << w.LEAF_BITS, low)
    smallest = smallest_of(leaves, first, low, LEAVES_PER_NODE)
    smallest = tl.minimum(smallest, smallest_of(leaves, high, stop, LEAVES_PER_NODE))
    low, high = low >> w.LEAF_BITS, high >> w.LEAF_BITS
    levels = tl.load(words + w.NUM_LEVELS)
    for level in range(levels):
        here = mins + tl.load(words + w.LEVEL_0 + level)
        inner_low = tl.minimum(((low + CHILDREN - 1) >> w.NODE_BITS) << w.NODE_BITS, high)
        inner_low = tl.where(level == levels - 1, high, inner_low)  # nothing goes up from there
        inner_high = tl.maximum((high >> w.NODE_BITS) << w.NODE_BITS, inner_low)
        smallest = tl.minimum(smallest, smallest_of(here, low, inner_low, CHILDREN))
        smallest = tl.minimum(smallest, smallest_of(here, inner_high, high, CHILDREN))
        low, high = inner_low >> w.NODE_BITS, inner_high >> w.NODE_BITS
    return smallest
