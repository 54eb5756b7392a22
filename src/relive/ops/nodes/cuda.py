"""Masses, the scale and the nodes of the sum tree, for Triton: the numbers of `tree.reference`.

Functions of a kernel; `words` is the pointer to a state's words, `leaves`, `sums`, `mins`, `maxs`
are those to its tensors, LEVELS is how many levels of nodes there are, MINS and MAXS whether those
extrema are kept (`constants` gives the three).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.power.cuda import power_of_two
from relive.ops.tree.shape import level_sizes

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State

LEAVES_PER_NODE = tl.constexpr(1 << w.LEAF_BITS)
CHILDREN = tl.constexpr(1 << w.NODE_BITS)
INFINITY = tl.constexpr(float("inf"))
LEAST_LOWEST = tl.constexpr(40)
NODES = tl.constexpr(128)  # that a program recomputes at a time
LEAVES = tl.constexpr(NODES.value << w.LEAF_BITS)
FEWEST_LANES, MOST_LANES = 128, 512  # of a batch, that one program takes at a time
MOST_WARPS, MOST_REGISTERS = 8, 128


def constants(state: State) -> dict[str, Any]:
    """What kernels of the tree are compiled for."""
    return {
        "LEVELS": num_levels(len(state.rows)),
        "MINS": len(state.mins) > 0,
        "MAXS": len(state.maxs) > 0,
    }


@cache
def num_levels(capacity: int) -> int:
    """Levels of nodes above the leaves."""
    return len(level_sizes(capacity))


def tree_of(state: State) -> tuple[Tensor, ...]:
    """What kernels that write the tree are given first."""
    return state.words, state.leaves, state.sums, state.mins, state.maxs


def block_of(count: int) -> dict[str, int]:
    """How many of a batch of `count` rows the only program of a launch takes at a time.

    A lane has a thread of its own: where several share it, all of them load, and one that comes
    late would load what another has stored. The limit on registers is above what is needed; without
    it ptxas would rather spill some than have no room for a second program.
    """
    lanes = min(MOST_LANES, max(FEWEST_LANES, 1 << (count - 1).bit_length()))
    return {"BLOCK": lanes, "warps": min(lanes // 32, MOST_WARPS), "maxnreg": MOST_REGISTERS}


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
def root_extremum(words, nodes, largest: tl.constexpr, LEVELS: tl.constexpr):
    """Largest, or smallest positive, of all leaves, float32 []."""
    top = tl.load(words + w.LEVEL_0 + LEVELS - 1)
    values = tl.load(nodes + top + tl.arange(0, CHILDREN))
    return tl.max(values, 0) if largest else tl.min(values, 0)


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
