"""The sum tree in Numba: paths are updated, not the whole tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import carray

from relive.ops import words as w
from relive.ops.compiled import (
    float32_pointer,
    helper,
    int64_pointer,
    kernel,
    words_at,
)

if TYPE_CHECKING:
    from relive.ops.state import State

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
def power_of_two(exponent: Any) -> Any:
    """2^exponent as float64."""
    return np.int64((exponent + 1023) << 52).view(np.float64)


@helper
def mass_of(leaf: Any, unit: Any) -> Any:
    """Mass of a leaf; `unit` is 2^s."""
    mass = np.int64(np.float64(leaf) * unit)
    if mass == 0 and leaf > np.float32(0):
        return np.int64(1)
    return mass


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
def coarse_scale(words: Any, largest: Any) -> Any:
    """The exponent at which a tree full of leaves up to `largest` cannot overflow."""
    if largest <= np.float32(0):
        return words[w.SCALE]
    room = w.HIGHEST_TOTAL - bit_length(words[w.CAPACITY] - 1)
    return min(words[w.SCALE], room - exponent_above(largest))


@helper
def scale_after(words: Any, rest: Any, coarse: Any, coarse_mass: Any) -> Any:
    """The exponent to be used once `coarse_mass` (at exponent `coarse`) joins `rest`."""
    scale = words[w.SCALE]
    shift = scale - coarse
    total = coarse_mass + (rest >> min(shift, 63))
    if total == 0:
        return scale
    log2 = bit_length(total) - 1 + shift
    size = bit_length(words[w.CAPACITY] - 1)
    lowest = max(40, 20 + size)
    if lowest <= log2 and log2 < w.HIGHEST_TOTAL:
        return scale
    return scale + (lowest + w.HIGHEST_TOTAL + 1) // 2 - log2


@helper
def sum_leaf_node(leaves: Any, node: Any, unit: Any) -> Any:
    """Mass of the leaves of one node."""
    total = np.int64(0)
    first = node << w.LEAF_BITS
    for slot in range(first, first + LEAVES_PER_NODE):
        total += mass_of(leaves[slot], unit)
    return total


@helper
def sum_range(words: Any, first: Any, last: Any) -> Any:
    """Recompute the sums above the slots first..last; returns the total."""
    leaves = leaves_of(words)
    sums = sums_of(words)
    unit = power_of_two(words[w.SCALE])
    low = first >> w.LEAF_BITS
    high = last >> w.LEAF_BITS
    for node in range(low, high + 1):
        sums[node] = sum_leaf_node(leaves, node, unit)
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
def add_mass(words: Any, sums: Any, slot: Any, mass: Any) -> None:
    """Add to every node above a slot."""
    node = slot >> w.LEAF_BITS
    for level in range(words[w.NUM_LEVELS]):
        sums[words[w.LEVEL_0 + level] + node] += mass
        node >>= w.NODE_BITS


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


@helper
def root_extremum(words: Any, address: Any, largest: Any) -> Any:
    """Extremum of all leaves."""
    nodes = carray(float32_pointer(address), num_nodes(words))
    return extremum_of_nodes(nodes, words[w.LEVEL_0 + words[w.NUM_LEVELS] - 1], largest)


@helper
def change_scale(words: Any, scale: Any) -> None:
    """Use another exponent: every sum is rebuilt from the leaves."""
    words[w.SCALE] = scale
    words[w.RESCALES] += 1
    words[w.TOTAL] = sum_range(words, 0, words[w.NUM_LEAVES] - 1)


@helper
def fill(words: Any, first: Any, count: Any, leaf: Any) -> None:
    """Give `count` >= 1 slots from `first` on, around the end of the ring, one leaf."""
    leaves = leaves_of(words)
    unit = power_of_two(words[w.SCALE])
    capacity = words[w.CAPACITY]
    head = min(count, capacity - first)  # slots before the end; the others start at 0
    rest = words[w.TOTAL]
    for slot in range(first, first + head):
        rest -= mass_of(leaves[slot], unit)
        leaves[slot] = leaf
    for slot in range(count - head):
        rest -= mass_of(leaves[slot], unit)
        leaves[slot] = leaf
    coarse = coarse_scale(words, leaf)
    scale = scale_after(words, rest, coarse, count * mass_of(leaf, power_of_two(coarse)))
    if scale != words[w.SCALE]:
        change_scale(words, scale)
    else:
        words[w.TOTAL] = sum_range(words, first, first + head - 1)
        if count > head:
            words[w.TOTAL] = sum_range(words, 0, count - head - 1)
    refresh_all_extrema(words, first, first + head - 1)
    if count > head:
        refresh_all_extrema(words, 0, count - head - 1)


@helper
def new_leaf(words: Any, reals: Any) -> Any:
    """The leaf at which a new row enters."""
    if words[w.NEW_PRIORITY] == w.MAX_CURRENT:
        largest = root_extremum(words, words[w.MAXS], True)
    else:
        largest = np.float32(reals[w.MAX_LEAF])
    return largest if largest > np.float32(0) else np.float32(1)


@helper
def find(words: Any, leaves: Any, sums: Any, unit: Any, target: Any) -> Any:
    """The slot in whose share of the mass `target` lies."""
    node = np.int64(0)
    for level in range(words[w.NUM_LEVELS] - 1, -1, -1):
        child = words[w.LEVEL_0 + level] + (node << w.NODE_BITS)
        node <<= w.NODE_BITS
        while target >= sums[child]:
            target -= sums[child]
            child += 1
            node += 1
    slot = node << w.LEAF_BITS
    mass = mass_of(leaves[slot], unit)
    while target >= mass:
        target -= mass
        slot += 1
        mass = mass_of(leaves[slot], unit)
    return slot


@kernel
def _rebuild(header: Any) -> None:
    words, _ = words_at(header)
    last = words[w.NUM_LEAVES] - 1
    words[w.TOTAL] = sum_range(words, 0, last)
    refresh_all_extrema(words, 0, last)


def rebuild(state: State) -> None:
    """Recompute every node, and the total, from the leaves."""
    _rebuild(state.header)
