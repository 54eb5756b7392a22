"""Masses, the scale and the nodes of the sum tree, in Numba: the numbers of `tree.reference`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from relive.ops import words as w
from relive.ops.compiled import float32_pointer, helper, int64_pointer
from relive.ops.nodes.vectors import sum_leaves
from relive.ops.power.cpu import power_of_two

INFINITY = np.float32(np.inf)
LEAVES_PER_NODE, CHILDREN = 1 << w.LEAF_BITS, 1 << w.NODE_BITS


@helper
def leaves_of(words: Any) -> Any:
    """The leaves as an array."""
    return carray(float32_pointer(words[w.LEAVES]), words[w.NUM_LEAVES])


@helper
def num_nodes(words: Any) -> Any:
    """Inner nodes of all levels together."""
    return words[w.LEVEL_0 + words[w.NUM_LEVELS]]


@helper
def sums_of(words: Any) -> Any:
    """The sums as an array."""
    return carray(int64_pointer(words[w.SUMS]), num_nodes(words))


@helper
def mass_of(leaf: Any, unit: Any) -> Any:
    """Mass of a leaf; `unit` is 2^s."""
    mass = np.int64(np.float64(leaf) * unit)
    return max(mass, np.int64(leaf > np.float32(0)))


@helper
def bit_length(x: Any) -> Any:
    """Bits of a non-negative integer."""
    bits = 0
    while x > 0:
        x >>= 1
        bits += 1
    return bits


@helper
def exponent_above(leaf: Any) -> Any:
    """The smallest e with leaf < 2^e; leaf a positive normal float32."""
    return ((np.float64(leaf).view(np.int64) >> 52) & 0x7FF) - 1022


@helper
def roomy_scale(words: Any, largest: Any) -> Any:
    """The exponent at which a tree full of leaves up to `largest` cannot overflow."""
    room = w.HIGHEST_TOTAL - bit_length(words[w.CAPACITY] - 1)
    return room - (exponent_above(largest) if largest > np.float32(0) else -64)


@helper
def lowest_total(words: Any) -> Any:
    """See `shape.lowest_total`."""
    return max(40, 20 + bit_length(words[w.CAPACITY] - 1))


@helper
def total_fits(words: Any, rest: Any, coarse: Any, coarse_mass: Any) -> Any:
    """Whether the scale can stay when `coarse_mass` (at exponent `coarse`) joins `rest`."""
    shift = words[w.SCALE] - coarse
    total = coarse_mass + (rest >> min(shift, 63))
    log2 = bit_length(total) - 1 + shift
    return total == 0 or (lowest_total(words) <= log2 and log2 < w.HIGHEST_TOTAL)


@helper
def fresh_scale(words: Any) -> Any:
    """The exponent at which the total of the leaves is about 2^target."""
    leaves = leaves_of(words)
    largest = np.float32(0)
    for slot in range(leaves.shape[0]):
        largest = max(largest, leaves[slot])
    scale = roomy_scale(words, largest)
    unit = power_of_two(scale)
    total = np.int64(0)
    for slot in range(leaves.shape[0]):
        total += mass_of(leaves[slot], unit)
    return scale + (lowest_total(words) + w.HIGHEST_TOTAL + 1) // 2 - (bit_length(total) - 1)


@helper
def sum_range(words: Any, first: Any, last: Any) -> Any:
    """Recompute the sums above the slots first..last; returns the total."""
    sums = sums_of(words)
    unit = np.float32(power_of_two(words[w.SCALE]))
    low = first >> w.LEAF_BITS
    high = last >> w.LEAF_BITS
    for node in range(low, high + 1):
        sums[node] = sum_leaves(words[w.LEAVES] + (node << w.LEAF_BITS) * 4, unit)
    for level in range(1, words[w.NUM_LEVELS]):
        low >>= w.NODE_BITS
        high >>= w.NODE_BITS
        below = words[w.LEVEL_0 + level - 1]
        here = words[w.LEVEL_0 + level]
        for node in range(low, high + 1):
            total = np.int64(0)
            first_child = below + (node << w.NODE_BITS)
            for child in range(first_child, first_child + CHILDREN):
                total += sums[child]
            sums[here + node] = total
    total = np.int64(0)
    top = words[w.LEVEL_0 + words[w.NUM_LEVELS] - 1]
    for node in range(top, top + CHILDREN):
        total += sums[node]
    return total


@helper
def as_extremum(leaf: Any, largest: Any) -> Any:
    """What a leaf counts for: a leaf of 0 is nobody's smallest."""
    return leaf if largest or leaf > np.float32(0) else INFINITY


@helper
def extremum_of_leaves(leaves: Any, node: Any, largest: Any) -> Any:
    """Smallest positive leaf of a node (infinity if there is none), or its largest leaf."""
    first = node << w.LEAF_BITS
    value = np.float32(0) if largest else INFINITY
    for slot in range(first, first + LEAVES_PER_NODE):
        leaf = leaves[slot]
        if largest:
            value = max(value, leaf)
        elif leaf > np.float32(0):
            value = min(value, leaf)
    return value


@helper
def extremum_of_nodes(nodes: Any, first: Any, largest: Any) -> Any:
    """Extremum of a group of siblings."""
    value = nodes[first]
    for node in range(first + 1, first + CHILDREN):
        value = max(value, nodes[node]) if largest else min(value, nodes[node])
    return value


@helper
def root_extremum(words: Any, address: Any, largest: Any) -> Any:
    """Extremum of all leaves."""
    nodes = carray(float32_pointer(address), num_nodes(words))
    return extremum_of_nodes(nodes, words[w.LEVEL_0 + words[w.NUM_LEVELS] - 1], largest)


@helper
def refresh_extrema(words: Any, nodes: Any, first: Any, last: Any, largest: Any) -> None:
    """Recompute the extrema above the slots first..last, upwards until nothing changes."""
    leaves = leaves_of(words)
    low = first >> w.LEAF_BITS
    high = last >> w.LEAF_BITS
    changed = False
    for node in range(low, high + 1):
        value = extremum_of_leaves(leaves, node, largest)
        changed |= value != nodes[node]
        nodes[node] = value
    for level in range(1, words[w.NUM_LEVELS]):
        if not changed:
            return
        changed = False
        low >>= w.NODE_BITS
        high >>= w.NODE_BITS
        below = words[w.LEVEL_0 + level - 1]
        here = words[w.LEVEL_0 + level]
        for node in range(low, high + 1):
            value = extremum_of_nodes(nodes, below + (node << w.NODE_BITS), largest)
            changed |= value != nodes[here + node]
            nodes[here + node] = value


@helper
def refresh_all_extrema(words: Any, first: Any, last: Any) -> None:
    """The same for whichever extrema are kept."""
    if words[w.NORMALIZE] == w.BUFFER_NORMALIZER:
        mins = carray(float32_pointer(words[w.MINS]), num_nodes(words))
        refresh_extrema(words, mins, first, last, False)
    if words[w.NEW_PRIORITY] == w.MAX_CURRENT:
        maxs = carray(float32_pointer(words[w.MAXS]), num_nodes(words))
        refresh_extrema(words, maxs, first, last, True)
