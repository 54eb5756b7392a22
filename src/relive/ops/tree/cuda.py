"""The sum tree for Triton kernels: the numbers of `reference.py`, on the paths that change.

Functions of a kernel; `words` is the pointer to a state's words, `leaves`, `sums`, `mins`, `maxs`
are those to its tensors, LEVELS is how many levels of nodes there are, MINS and MAXS whether those
extrema are kept (`constants` gives the three).

What writes the tree belongs to one program of a launch, and ends what it does with a barrier.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.launch import blocks, launch
from relive.ops.power.cuda import power_of_two
from relive.ops.tree.shape import level_sizes

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State

LEAVES_PER_NODE = tl.constexpr(1 << w.LEAF_BITS)
CHILDREN = tl.constexpr(1 << w.NODE_BITS)
INFINITY = tl.constexpr(float("inf"))
FEWEST_LANES, MOST_LANES = 128, 512  # of a batch, that one program takes at a time
MOST_WARPS, MOST_REGISTERS = 8, 128
LEAST_LOWEST = tl.constexpr(40)
NODES = tl.constexpr(128)  # that one program recomputes at a time
LEAVES = tl.constexpr(NODES.value << w.LEAF_BITS)
MASS_LIMIT = tl.constexpr(2.0 ** (w.HIGHEST_TOTAL + 1))


def tree_of(state: State) -> tuple[Tensor, ...]:
    """What kernels that write the tree are given first."""
    return state.words, state.leaves, state.sums, state.mins, state.maxs


def constants(state: State) -> dict[str, Any]:
    """What kernels of the tree are compiled for."""
    return {
        "LEVELS": num_levels(len(state.rows)),
        "MINS": len(state.mins) > 0,
        "MAXS": len(state.maxs) > 0,
    }


def block_of(count: int) -> dict[str, int]:
    """How many of a batch of `count` rows the only program of a launch takes at a time.

    A lane has a thread of its own: where several share it, all of them load, and one that comes
    late would load what another has stored. The limit on registers is above what is needed; without
    it ptxas would rather spill some than have no room for a second program.
    """
    lanes = min(MOST_LANES, max(FEWEST_LANES, 1 << (count - 1).bit_length()))
    return {"BLOCK": lanes, "warps": min(lanes // 32, MOST_WARPS), "maxnreg": MOST_REGISTERS}


@cache
def num_levels(capacity: int) -> int:
    """Levels of nodes above the leaves."""
    return len(level_sizes(capacity))


@triton.jit
def real(words, index):
    """One float64 word."""
    return tl.load(words + index).to(tl.float64, bitcast=True)


@triton.jit
def store_real(words, index, value):
    """Set one float64 word."""
    tl.store(words + index, value.to(tl.int64, bitcast=True))


@triton.jit
def bit_length(x):
    """Bits of a non-negative integer, int64 [*]."""
    bits = tl.zeros_like(x)
    for k in tl.static_range(5, -1, -1):
        large = x >= (tl.full(x.shape, 1, tl.int64) << (1 << k))
        bits = tl.where(large, bits + (1 << k), bits)
        x = tl.where(large, x >> (1 << k), x)
    return tl.where(x > 0, bits + 1, bits)


@triton.jit
def mass_of(leaf, unit):
    """Mass of leaves, int64 [*]; `unit` is 2^s."""
    mass = (leaf.to(tl.float64) * unit).to(tl.int64)
    return tl.where((leaf > 0) & (mass == 0), 1, mass)


@triton.jit
def exponent_above(leaf):
    """The smallest e with leaf < 2^e; leaf a positive normal float32."""
    return ((leaf.to(tl.float64).to(tl.int64, bitcast=True) >> 52) & 0x7FF) - 1022


@triton.jit
def lowest_total(words):
    """See `shape.lowest_total`."""
    bits = bit_length(tl.load(words + w.CAPACITY) - 1)
    return tl.maximum(bits + 20, LEAST_LOWEST)


@triton.jit
def roomy_scale(words, largest):
    """The exponent at which a tree full of leaves up to `largest` cannot overflow."""
    room = w.HIGHEST_TOTAL - bit_length(tl.load(words + w.CAPACITY) - 1)
    return room - tl.where(largest > 0, exponent_above(tl.where(largest > 0, largest, 1.0)), -64)


@triton.jit
def total_fits(words, rest, coarse, coarse_mass):
    """Whether the scale can stay when `coarse_mass` (at exponent `coarse`) joins `rest`."""
    shift = tl.load(words + w.SCALE) - coarse
    total = coarse_mass + (rest >> tl.minimum(shift, 63))
    log2 = bit_length(total) - 1 + shift
    return (total == 0) | ((lowest_total(words) <= log2) & (log2 < w.HIGHEST_TOTAL))


@triton.jit
def add_masses(words, sums, slots, masses, mask, LEVELS: tl.constexpr):
    """Add to every node above each slot; programs may do so at the same time."""
    node = slots >> w.LEAF_BITS
    for level in tl.static_range(LEVELS):
        first = tl.load(words + w.LEVEL_0 + level)
        tl.atomic_add(sums + first + node, masses, mask=mask, sem="relaxed")
        node = node >> w.NODE_BITS


@triton.jit
def descend(words, leaves, sums, targets, LEVELS: tl.constexpr):
    """The slot in whose share of the mass each target lies, int64 [B].

    Args:
        targets: int64 [B], each in [0, total).
    """
    child = tl.arange(0, CHILDREN)[None, :]
    node = tl.zeros_like(targets)
    for level in tl.static_range(LEVELS - 1, -1, -1):
        first = tl.load(words + w.LEVEL_0 + level)
        siblings = node << w.NODE_BITS
        until = tl.cumsum(tl.load(sums + first + siblings[:, None] + child), 1)
        before = until <= targets[:, None]
        targets -= tl.max(tl.where(before, until, 0), 1)
        node = siblings + tl.minimum(tl.sum(before.to(tl.int64), 1), CHILDREN - 1)
    unit = power_of_two(tl.load(words + w.SCALE))
    first = node << w.LEAF_BITS
    place = tl.arange(0, LEAVES_PER_NODE)[None, :]
    until = tl.cumsum(mass_of(tl.load(leaves + first[:, None] + place), unit), 1)
    before = until <= targets[:, None]
    return first + tl.minimum(tl.sum(before.to(tl.int64), 1), LEAVES_PER_NODE - 1)


@triton.jit
def mass_before(words, leaves, sums, slot, LEVELS: tl.constexpr):
    """Mass of all leaves before a slot (at most one past the last), int64 []."""
    unit = power_of_two(tl.load(words + w.SCALE))
    node = slot >> w.LEAF_BITS
    place = (node << w.LEAF_BITS) + tl.arange(0, LEAVES_PER_NODE)
    mass = tl.sum(mass_of(tl.load(leaves + place, mask=place < slot, other=0.0), unit), 0)
    for level in tl.static_range(LEVELS):
        group = (node >> w.NODE_BITS) << w.NODE_BITS
        if level == LEVELS - 1:
            group = group * 0  # the highest level is one group
        place = group + tl.arange(0, CHILDREN)
        first = tl.load(words + w.LEVEL_0 + level)
        mass += tl.sum(tl.load(sums + first + place, mask=place < node, other=0), 0)
        node = node >> w.NODE_BITS
    return mass


@triton.jit
def smallest_leaf_of(values):
    """Smallest positive of some leaves, float32 []; infinity if there is none."""
    return tl.min(tl.where(values > 0, values, INFINITY), 0)


@triton.jit
def smallest_between(words, leaves, mins, first, stop, LEVELS: tl.constexpr):
    """Smallest positive leaf of the slots first..stop, float32 []; infinity if there is none.

    Of each level the nodes that stand apart at either end; what lies between goes up.
    """
    place = tl.arange(0, LEAVES_PER_NODE)
    low = tl.minimum(((first + LEAVES_PER_NODE - 1) >> w.LEAF_BITS) << w.LEAF_BITS, stop)
    high = tl.maximum((stop >> w.LEAF_BITS) << w.LEAF_BITS, low)
    head = tl.load(leaves + first + place, mask=first + place < low, other=0.0)
    tail = tl.load(leaves + high + place, mask=high + place < stop, other=0.0)
    smallest = tl.minimum(smallest_leaf_of(head), smallest_leaf_of(tail))
    low, high = low >> w.LEAF_BITS, high >> w.LEAF_BITS
    child = tl.arange(0, CHILDREN)
    for level in tl.static_range(LEVELS):
        here = mins + tl.load(words + w.LEVEL_0 + level)
        inner_low = tl.minimum(((low + CHILDREN - 1) >> w.NODE_BITS) << w.NODE_BITS, high)
        inner_high = tl.maximum((high >> w.NODE_BITS) << w.NODE_BITS, inner_low)
        if level == LEVELS - 1:
            inner_low = tl.maximum(low, high)  # nothing goes up from there
            inner_high = inner_low
        head = tl.load(here + low + child, mask=low + child < inner_low, other=INFINITY)
        tail = tl.load(here + inner_high + child, mask=inner_high + child < high, other=INFINITY)
        smallest = tl.minimum(smallest, tl.minimum(tl.min(head, 0), tl.min(tail, 0)))
        low, high = inner_low >> w.NODE_BITS, inner_high >> w.NODE_BITS
    return smallest


@triton.jit
def root_extremum(words, nodes, largest: tl.constexpr, LEVELS: tl.constexpr):
    """Largest, or smallest positive, of all leaves, float32 []."""
    top = tl.load(words + w.LEVEL_0 + LEVELS - 1)
    values = tl.load(nodes + top + tl.arange(0, CHILDREN))
    return tl.max(values, 0) if largest else tl.min(values, 0)


@triton.jit
def sum_leaves(leaves, unit, node, mask):
    """Masses of nodes of the lowest level, int64 [B]."""
    place = (node[:, None] << w.LEAF_BITS) + tl.arange(0, LEAVES_PER_NODE)[None, :]
    return tl.sum(mass_of(tl.load(leaves + place, mask=mask[:, None], other=0.0), unit), 1)


@triton.jit
def extremum_of_leaves(leaves, node, mask, largest: tl.constexpr):
    """Largest, or smallest positive, leaf of nodes of the lowest level, float32 [B]."""
    place = (node[:, None] << w.LEAF_BITS) + tl.arange(0, LEAVES_PER_NODE)[None, :]
    values = tl.load(leaves + place, mask=mask[:, None], other=0.0)
    return tl.max(values, 1) if largest else tl.min(tl.where(values > 0, values, INFINITY), 1)


@triton.jit
def children_of(nodes, below, node, mask):
    """What the children of nodes hold, [B, CHILDREN]; `below` is the first node of their level."""
    place = (node[:, None] << w.NODE_BITS) + tl.arange(0, CHILDREN)[None, :]
    return tl.load(nodes + below + place, mask=mask[:, None], other=0)


@triton.jit
def refresh_lowest(leaves, sums, mins, maxs, unit, node, mask, MINS: tl.constexpr, MAXS):
    """Recompute nodes of the lowest level, [B] different ones."""
    tl.store(sums + node, sum_leaves(leaves, unit, node, mask), mask=mask)
    if MINS:
        tl.store(mins + node, extremum_of_leaves(leaves, node, mask, False), mask=mask)
    if MAXS:
        tl.store(maxs + node, extremum_of_leaves(leaves, node, mask, True), mask=mask)


@triton.jit
def refresh_inner(sums, mins, maxs, below, here, node, mask, MINS: tl.constexpr, MAXS):
    """Recompute nodes of a higher level from their children, [B] different ones.

    `below` and `here` are the first nodes of the two levels.
    """
    tl.store(sums + here + node, tl.sum(children_of(sums, below, node, mask), 1), mask=mask)
    if MINS:
        smallest = tl.min(children_of(mins, below, node, mask), 1)
        tl.store(mins + here + node, smallest, mask=mask)
    if MAXS:
        largest = tl.max(children_of(maxs, below, node, mask), 1)
        tl.store(maxs + here + node, largest, mask=mask)


@triton.jit
def parents_of_runs(first, stop, tail, tail_stop, BITS: tl.constexpr):
    """The groups of 2^BITS that two runs lie in, the second in front of the first or empty."""
    first, tail = first >> BITS, tail >> BITS
    stop = (stop + ((1 << BITS) - 1)) >> BITS
    tail_stop = tl.minimum((tail_stop + ((1 << BITS) - 1)) >> BITS, first)
    return first, stop, tail, tl.maximum(tail_stop, tail)


@triton.jit
def place_in_runs(k, first, stop, tail):
    """The k-th of two runs."""
    return tl.where(k < stop - first, first + k, tail + k - (stop - first))


@triton.jit
def refresh(
    words,
    leaves,
    sums,
    mins,
    maxs,
    scale,
    first,
    stop,
    tail,
    tail_stop,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
):
    """Recompute every node above two runs of slots, level by level; returns the total.

    The second run is empty (0, 0) or lies in front of the first.
    """
    unit = power_of_two(scale)
    first, stop, tail, tail_stop = parents_of_runs(first, stop, tail, tail_stop, w.LEAF_BITS)
    number = stop - first + tail_stop - tail
    for start in range(0, number, NODES):
        k = start + tl.arange(0, NODES)
        node = place_in_runs(k, first, stop, tail)
        refresh_lowest(leaves, sums, mins, maxs, unit, node, k < number, MINS, MAXS)
    tl.debug_barrier()
    for level in range(1, LEVELS):
        below = tl.load(words + w.LEVEL_0 + level - 1)
        here = tl.load(words + w.LEVEL_0 + level)
        first, stop, tail, tail_stop = parents_of_runs(first, stop, tail, tail_stop, w.NODE_BITS)
        number = stop - first + tail_stop - tail
        for start in range(0, number, NODES):
            k = start + tl.arange(0, NODES)
            node = place_in_runs(k, first, stop, tail)
            refresh_inner(sums, mins, maxs, below, here, node, k < number, MINS, MAXS)
        tl.debug_barrier()
    top = tl.load(words + w.LEVEL_0 + LEVELS - 1)
    return tl.sum(tl.load(sums + top + tl.arange(0, CHILDREN)), 0)


@triton.jit
def fresh_scale(words, leaves):
    """The exponent at which the total of the leaves is about 2^target; see `shape.target_total`."""
    count = tl.load(words + w.NUM_LEAVES)
    place = tl.arange(0, LEAVES)
    largest = tl.zeros((LEAVES,), tl.float32)
    for start in range(0, count, LEAVES):
        values = tl.load(leaves + start + place, mask=start + place < count, other=0.0)
        largest = tl.maximum(largest, values)
    scale = roomy_scale(words, tl.max(largest, 0))
    unit = power_of_two(scale)
    masses = tl.zeros((LEAVES,), tl.int64)
    for start in range(0, count, LEAVES):
        values = tl.load(leaves + start + place, mask=start + place < count, other=0.0)
        masses += mass_of(values, unit)
    target = (lowest_total(words) + (w.HIGHEST_TOTAL + 1)) >> 1
    return scale + target - (bit_length(tl.sum(masses, 0)) - 1)


@triton.jit
def slots_from(words, first, k):
    """The k-th slot from `first` on, around the end of the ring, int64 [B]."""
    slot = first + k
    end = tl.load(words + w.CAPACITY)
    return tl.where(slot < end, slot, slot - tl.load(words + w.RING_CAPACITY))


@triton.jit
def fill(
    words,
    leaves,
    sums,
    mins,
    maxs,
    first,
    count,
    leaf,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
):
    """Give `count` >= 1 slots from `first` on, around the end of the ring, one leaf.

    If the scale cannot stay, it is found anew and every node recomputed, else those above the run.
    """
    scale = tl.load(words + w.SCALE)
    unit = power_of_two(scale)
    masses = tl.zeros((LEAVES,), tl.int64)
    for start in range(0, count, LEAVES):
        k = start + tl.arange(0, LEAVES)
        slots = slots_from(words, first, k)
        masses += mass_of(tl.load(leaves + slots, mask=k < count, other=0.0), unit)
        tl.store(leaves + slots, tl.zeros((LEAVES,), tl.float32) + leaf, mask=k < count)
    rest = tl.load(words + w.TOTAL) - tl.sum(masses, 0)
    coarse = tl.minimum(scale, roomy_scale(words, leaf))
    fits = total_fits(words, rest, coarse, count * mass_of(leaf, power_of_two(coarse)))
    tl.debug_barrier()
    end = tl.load(words + w.CAPACITY)
    tail = tl.load(words + w.RING_START)
    stop = tl.minimum(first + count, end)
    tail_stop = tail + count - (stop - first)
    if not fits:
        scale = fresh_scale(words, leaves)
        tl.store(words + w.SCALE, scale)
        tl.atomic_add(words + w.RESCALES, 1)
        first, stop, tail_stop = first * 0, tl.load(words + w.NUM_LEAVES), tail
    total = refresh(
        words, leaves, sums, mins, maxs, scale, first, stop, tail, tail_stop, LEVELS, MINS, MAXS
    )
    tl.store(words + w.TOTAL, total)
    tl.debug_barrier()


@triton.jit
def new_leaf(words, maxs, RANKED: tl.constexpr, LEVELS: tl.constexpr, MAXS: tl.constexpr):
    """The leaf at which a new row enters, float32 []."""
    if RANKED:
        largest = tl.full((), 1.0, tl.float32)  # as if it ranked first
    elif MAXS:
        largest = root_extremum(words, maxs, True, LEVELS)
    else:
        largest = real(words, w.MAX_LEAF).to(tl.float32)
    return tl.where(largest > 0, largest, 1.0)


@triton.jit
def enter_rows(
    words,
    leaves,
    sums,
    mins,
    maxs,
    errors,
    first_id,
    next_id,
    RANKED: tl.constexpr,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
):
    """Give the rows first_id..next_id - 1, just written, the priority of new rows.

    `words.NEXT_ID` is not read, so this program may write it, on either side of a barrier.
    """
    size = tl.load(words + w.RING_CAPACITY)
    first_live = tl.maximum(first_id, next_id - size)
    count = next_id - first_live
    first = tl.load(words + w.RING_START) + (first_live - tl.load(words + w.BASE_ID)) % size
    if count > 0:
        if MAXS:  # what is overwritten lives no more
            zero = tl.full((), 0.0, tl.float32)
            fill(words, leaves, sums, mins, maxs, first, count, zero, LEVELS, MINS, MAXS)
        leaf = new_leaf(words, maxs, RANKED, LEVELS, MAXS)
        fill(words, leaves, sums, mins, maxs, first, count, leaf, LEVELS, MINS, MAXS)
        if RANKED:
            for start in range(0, count, LEAVES):
                k = start + tl.arange(0, LEAVES)
                slots = slots_from(words, first, k)
                tl.store(errors + slots, tl.full((LEAVES,), INFINITY, tl.float32), mask=k < count)


@triton.jit
def mass_change(old, new, unit, mask):
    """By how much masses grow, int64 [B]; means nothing where `new` is too large for the scale."""
    is_small = new.to(tl.float64) * unit < MASS_LIMIT
    return tl.where(mask, mass_of(tl.where(is_small, new, 0.0), unit) - mass_of(old, unit), 0)


@triton.jit
def settle(
    words,
    leaves,
    sums,
    mins,
    maxs,
    new,
    count,
    number,
    taken,
    change,
    largest,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """After leaves have been set: the total, or, if the scale cannot stay, a whole new tree.

    Args:
        new: pointer to float32 [count], the leaves that were set; negative where none was.
        number: how many were set.
        taken: mass that was there before.
        change: by how much it grew, see `mass_change`.
        largest: of the leaves that were set.

    Returns:
        Whether the scale stays: then the sums are still to be told.
    """
    scale = tl.load(words + w.SCALE)
    total = tl.load(words + w.TOTAL)
    coarse = tl.minimum(scale, roomy_scale(words, largest))
    mass = taken + change
    if coarse < scale:
        unit = power_of_two(coarse)
        masses = tl.zeros((BLOCK,), tl.int64)
        for start in range(0, count, BLOCK):
            i = start + tl.arange(0, BLOCK)
            leaf = tl.load(new + i, mask=i < count, other=0.0)
            masses += mass_of(tl.maximum(leaf, 0.0), unit)
        mass = tl.sum(masses, 0)
    fits = (number == 0) | total_fits(words, total - taken, coarse, mass)
    tl.debug_barrier()
    if fits:
        tl.store(words + w.TOTAL, total + change)
    else:
        scale = fresh_scale(words, leaves)
        tl.store(words + w.SCALE, scale)
        tl.atomic_add(words + w.RESCALES, 1)
        stop = tl.load(words + w.NUM_LEAVES)
        total = refresh(
            words, leaves, sums, mins, maxs, scale, stop * 0, stop, 0, 0, LEVELS, MINS, MAXS
        )
        tl.store(words + w.TOTAL, total)
    return fits


@triton.jit
def put(nodes, values, mask):
    """Store what lanes of one address agree on; returns how many addresses held something else."""
    bits = values.to(tl.int32, bitcast=True)
    pointers = nodes.to(tl.pointer_type(tl.int32), bitcast=True)
    before = tl.atomic_xchg(pointers, bits, mask=mask, sem="relaxed")
    return tl.sum(((before != bits) & mask).to(tl.int32), 0)


@triton.jit
def lift_lowest(leaves, mins, maxs, node, mask, MINS: tl.constexpr, MAXS: tl.constexpr):
    """Recompute extrema of nodes of the lowest level; returns how many changed."""
    changed = tl.full((), 0, tl.int32)
    if MINS:
        changed += put(mins + node, extremum_of_leaves(leaves, node, mask, False), mask)
    if MAXS:
        changed += put(maxs + node, extremum_of_leaves(leaves, node, mask, True), mask)
    return changed


@triton.jit
def lift_inner(words, mins, maxs, level, node, mask, MINS: tl.constexpr, MAXS: tl.constexpr):
    """Recompute extrema of nodes of a higher level; returns how many changed."""
    below = tl.load(words + w.LEVEL_0 + level - 1)
    here = tl.load(words + w.LEVEL_0 + level)
    changed = tl.full((), 0, tl.int32)
    if MINS:
        smallest = tl.min(children_of(mins, below, node, mask), 1)
        changed += put(mins + here + node, smallest, mask)
    if MAXS:
        largest = tl.max(children_of(maxs, below, node, mask), 1)
        changed += put(maxs + here + node, largest, mask)
    return changed


@triton.jit
def lift(
    words,
    leaves,
    mins,
    maxs,
    slots,
    count,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Bring the extrema above slots up to date, upwards until nothing changes.

    Args:
        slots: pointer to int64 [count]; those that are negative are passed over.
    """
    changed = tl.full((), 0, tl.int32)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        slot = tl.load(slots + i, mask=i < count, other=-1)
        changed += lift_lowest(leaves, mins, maxs, slot >> w.LEAF_BITS, slot >= 0, MINS, MAXS)
    level = 1
    shift = w.LEAF_BITS + w.NODE_BITS
    while (changed > 0) & (level < LEVELS):
        tl.debug_barrier()
        changed = changed * 0
        for start in range(0, count, BLOCK):
            i = start + tl.arange(0, BLOCK)
            slot = tl.load(slots + i, mask=i < count, other=-1)
            changed += lift_inner(words, mins, maxs, level, slot >> shift, slot >= 0, MINS, MAXS)
        level += 1
        shift += w.NODE_BITS


@triton.jit(do_not_specialize=["count"])
def _assign(
    words,
    leaves,
    sums,
    mins,
    maxs,
    slots,
    new,
    changes,
    count,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
    BLOCK: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    unit = power_of_two(tl.load(words + w.SCALE))
    taken = tl.zeros((BLOCK,), tl.int64)
    change = tl.zeros((BLOCK,), tl.int64)
    largest = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        mask = i < count
        slot = tl.load(slots + i, mask=mask, other=0)
        leaf = tl.load(new + i, mask=mask, other=0.0)
        old = tl.load(leaves + slot, mask=mask, other=0.0)
        grown = mass_change(old, leaf, unit, mask)
        tl.store(leaves + slot, leaf, mask=mask)
        tl.store(changes + i, grown, mask=mask)
        taken += mass_of(old, unit)
        change += grown
        largest = tl.maximum(largest, leaf)
    total_taken, total_change, most = tl.sum(taken, 0), tl.sum(change, 0), tl.max(largest, 0)
    tl.debug_barrier()
    fits = settle(
        words,
        leaves,
        sums,
        mins,
        maxs,
        new,
        count,
        count,
        total_taken,
        total_change,
        most,
        LEVELS,
        MINS,
        MAXS,
        BLOCK,
    )
    if fits:
        for start in range(0, count, BLOCK):
            i = start + tl.arange(0, BLOCK)
            slot = tl.load(slots + i, mask=i < count, other=0)
            grown = tl.load(changes + i, mask=i < count, other=0)
            add_masses(words, sums, slot, grown, i < count, LEVELS)
        if MINS or MAXS:
            lift(words, leaves, mins, maxs, slots, count, LEVELS, MINS, MAXS, BLOCK)


@triton.jit
def _rebuild_level(
    words,
    leaves,
    sums,
    mins,
    maxs,
    LEVEL: tl.constexpr,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """Of one level, NODES nodes a program; those that are padding have no children."""
    node = tl.program_id(0).to(tl.int64) * NODES + tl.arange(0, NODES)
    here = tl.load(words + w.LEVEL_0 + LEVEL)
    exists = node < tl.load(words + w.LEVEL_0 + LEVEL + 1) - here
    if LEVEL == 0:
        unit = power_of_two(tl.load(words + w.SCALE))
        refresh_lowest(leaves, sums, mins, maxs, unit, node, exists, MINS, MAXS)
    else:
        below = tl.load(words + w.LEVEL_0 + LEVEL - 1)
        has_children = (node << w.NODE_BITS) < here - below
        refresh_inner(sums, mins, maxs, below, here, node, has_children & exists, MINS, MAXS)
        padding = exists & ((node << w.NODE_BITS) >= here - below)
        tl.store(sums + here + node, tl.zeros((NODES,), tl.int64), mask=padding)
        if MINS:
            infinite = tl.full((NODES,), INFINITY, tl.float32)
            tl.store(mins + here + node, infinite, mask=padding)
        if MAXS:
            tl.store(maxs + here + node, tl.zeros((NODES,), tl.float32), mask=padding)
    if LEVEL == LEVELS - 1:  # 8 nodes, of one program
        tl.debug_barrier()
        total = tl.sum(tl.load(sums + here + tl.arange(0, CHILDREN)), 0)
        tl.store(words + w.TOTAL, total)


def set_leaves(state: State, slots: Tensor, leaves: Tensor) -> None:
    """See `reference.set_leaves`; one launch of one program."""
    count = len(slots)
    launch(
        _assign,
        (1,),
        *tree_of(state),
        slots,
        leaves,
        torch.empty_like(slots),
        count,
        **constants(state),
        **block_of(count),
    )


def rebuild(state: State) -> None:
    """See `reference.rebuild`; a launch a level."""
    for level, size in enumerate(level_sizes(len(state.rows))):
        launch(
            _rebuild_level,
            (blocks(size, NODES.value),),
            *tree_of(state),
            LEVEL=level,
            **constants(state),
            warps=4,
        )
