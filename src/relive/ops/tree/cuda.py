"""The sum tree for Triton kernels: the numbers of `reference.py`, on the paths that change.

Functions of a kernel; `words` is the pointer to a state's words, `leaves`, `sums`, `mins`, `maxs`
are those to its tensors, LEVELS is how many levels of nodes there are.
"""

from __future__ import annotations

import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.power.cuda import power_of_two

LEAVES_PER_NODE = tl.constexpr(1 << w.LEAF_BITS)
CHILDREN = tl.constexpr(1 << w.NODE_BITS)
INFINITY = tl.constexpr(float("inf"))
LEAST_LOWEST = tl.constexpr(40)


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
