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
    prefetch,
    words_at,
)
from relive.ops.tree.vectors import find_child, find_leaf, sum_leaves

if TYPE_CHECKING:
    from torch import Tensor

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
def add_masses(words: Any, slots: Any, masses: Any) -> None:
    """Add to every node above each slot, one level after the other."""
    sums = sums_of(words)
    shift = w.LEAF_BITS
    for level in range(words[w.NUM_LEVELS]):
        first = words[w.LEVEL_0 + level]
        for k in range(slots.shape[0]):
            sums[np.uintp(first + (slots[k] >> shift))] += masses[k]
        shift += w.NODE_BITS


@helper
def add_mass(words: Any, slot: Any, mass: Any) -> None:
    """Add to every node above a slot."""
    sums = sums_of(words)
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
def better(a: Any, b: Any, largest: Any) -> Any:
    """Whether a comes before b as an extremum."""
    return a > b if largest else a < b


@helper
def update_extremum(
    words: Any, nodes: Any, slot: Any, before: Any, value: Any, largest: Any
) -> None:
    """Bring the extrema above a slot up to date, as far up as they change.

    A node needs to look at all its children only if the one that was its extremum has got worse.
    """
    leaves = leaves_of(words)
    child = slot
    for level in range(words[w.NUM_LEVELS]):
        node = child >> (w.LEAF_BITS if level == 0 else w.NODE_BITS)
        here = words[w.LEVEL_0 + level] + node
        current = nodes[here]
        if not better(value, current, largest):
            if before != current or value == current:
                return
            if level == 0:
                value = extremum_of_leaves(leaves, node, largest)
            else:
                first = words[w.LEVEL_0 + level - 1] + (node << w.NODE_BITS)
                value = extremum_of_nodes(nodes, first, largest)
            if value == current:
                return
        nodes[here] = value
        before = current
        child = node


@helper
def as_extremum(leaf: Any, largest: Any) -> Any:
    """What a leaf counts for: a leaf of 0 is nobody's smallest."""
    return leaf if largest or leaf > np.float32(0) else INFINITY


@helper
def update_extrema(
    words: Any, address: Any, slots: Any, old: Any, new: Any, picked: Any, largest: Any
) -> None:
    """Bring the extrema at an address up to date after leaves have changed from old to new.

    Most changes leave the lowest node as it is: those that may not are picked out first.
    """
    nodes = carray(float32_pointer(address), num_nodes(words))
    number = np.int64(0)
    for k in range(slots.shape[0]):
        current = nodes[slots[k] >> w.LEAF_BITS]
        before = as_extremum(old[k], largest)
        value = as_extremum(new[k], largest)
        picked[number] = k
        number += np.int64(better(value, current, largest) | (before == current))
    for j in range(number):
        k = picked[j]
        before = as_extremum(old[k], largest)
        update_extremum(words, nodes, slots[k], before, as_extremum(new[k], largest), largest)


@helper
def update_all_extrema(words: Any, slots: Any, old: Any, new: Any, spare: Any) -> None:
    """The same for whichever extrema are kept; `spare` is to work in."""
    if words[w.NORMALIZE] == w.BUFFER_NORMALIZER:
        update_extrema(words, words[w.MINS], slots, old, new, spare, False)
    if words[w.NEW_PRIORITY] == w.MAX_CURRENT:
        update_extrema(words, words[w.MAXS], slots, old, new, spare, True)


@helper
def root_extremum(words: Any, address: Any, largest: Any) -> Any:
    """Extremum of all leaves."""
    nodes = carray(float32_pointer(address), num_nodes(words))
    return extremum_of_nodes(nodes, words[w.LEVEL_0 + words[w.NUM_LEVELS] - 1], largest)


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


@helper
def change_scale(words: Any) -> None:
    """Find the exponent anew and rebuild every sum from the leaves."""
    words[w.SCALE] = fresh_scale(words)
    words[w.RESCALES] += 1
    words[w.TOTAL] = sum_range(words, 0, words[w.NUM_LEAVES] - 1)


@helper
def assign(words: Any, slots: Any, new: Any, old: Any, changes: Any, spare: Any) -> None:
    """Set the leaves of different slots and everything above them; two vectors to work in."""
    leaves = leaves_of(words)
    count = slots.shape[0]
    unit = power_of_two(words[w.SCALE])
    largest = np.float32(0)
    change = np.int64(0)
    taken = np.int64(0)
    for k in range(count):
        mass = mass_of(old[k], unit)
        changes[k] = mass_of(new[k], unit) - mass  # means something if the scale stays
        change += changes[k]
        taken += mass
        largest = max(largest, new[k])
    for k in range(count):
        leaves[slots[k]] = new[k]
    coarse = min(words[w.SCALE], roomy_scale(words, largest))
    coarse_mass = taken + change
    if coarse < words[w.SCALE]:
        coarse_unit = power_of_two(coarse)
        coarse_mass = np.int64(0)
        for k in range(count):
            coarse_mass += mass_of(new[k], coarse_unit)
    if not total_fits(words, words[w.TOTAL] - taken, coarse, coarse_mass):
        change_scale(words)
    else:
        words[w.TOTAL] += change
        add_masses(words, slots, changes)
    update_all_extrema(words, slots, old, new, spare)


@helper
def fill(words: Any, first: Any, count: Any, leaf: Any) -> None:
    """Give `count` >= 1 slots from `first` on, around the end of the ring, one leaf."""
    leaves = leaves_of(words)
    unit = power_of_two(words[w.SCALE])
    start = words[w.RING_START]
    head = min(count, words[w.CAPACITY] - first)  # slots before the end of the ring
    tail = count - head  # those that go on at its start
    before = leaves[first]
    rest = words[w.TOTAL]
    for slot in range(first, first + head):
        rest -= mass_of(leaves[slot], unit)
        leaves[slot] = leaf
    for slot in range(start, start + tail):
        rest -= mass_of(leaves[slot], unit)
        leaves[slot] = leaf
    coarse = min(words[w.SCALE], roomy_scale(words, leaf))
    if not total_fits(words, rest, coarse, count * mass_of(leaf, power_of_two(coarse))):
        change_scale(words)
    elif count == 1:
        add_mass(words, first, mass_of(leaf, unit) - mass_of(before, unit))
        words[w.TOTAL] = rest + mass_of(leaf, unit)
    else:
        words[w.TOTAL] = sum_range(words, first, first + head - 1)
        if tail > 0:
            words[w.TOTAL] = sum_range(words, start, start + tail - 1)
    if count == 1:
        if words[w.NORMALIZE] == w.BUFFER_NORMALIZER:
            mins = carray(float32_pointer(words[w.MINS]), num_nodes(words))
            was, value = as_extremum(before, False), as_extremum(leaf, False)
            update_extremum(words, mins, first, was, value, False)
        if words[w.NEW_PRIORITY] == w.MAX_CURRENT:
            maxs = carray(float32_pointer(words[w.MAXS]), num_nodes(words))
            update_extremum(words, maxs, first, before, leaf, True)
    else:
        refresh_all_extrema(words, first, first + head - 1)
        if tail > 0:
            refresh_all_extrema(words, start, start + tail - 1)


@helper
def new_leaf(words: Any, reals: Any) -> Any:
    """The leaf at which a new row enters."""
    if words[w.WEIGHTING] == w.RANKED:
        return np.float32(1)  # as if it ranked first
    if words[w.NEW_PRIORITY] == w.MAX_CURRENT:
        largest = root_extremum(words, words[w.MAXS], True)
    else:
        largest = np.float32(reals[w.MAX_LEAF])
    return largest if largest > np.float32(0) else np.float32(1)


@helper
def descend(words: Any, targets: Any, slots: Any) -> None:
    """The slot in whose share of the mass each target lies; uses `targets` up.

    One level at a time for all of them, so that their reads overlap.
    """
    unit = np.float32(power_of_two(words[w.SCALE]))
    leaves = words[w.LEAVES]
    nodes = slots
    nodes[:] = 0
    for level in range(words[w.NUM_LEVELS] - 1, -1, -1):
        first = words[w.SUMS] + words[w.LEVEL_0 + level] * 8
        for i in range(targets.shape[0]):
            siblings = nodes[i] << w.NODE_BITS
            child, targets[i] = find_child(first + siblings * 8, targets[i])
            nodes[i] = siblings + child
            if level == 0:
                prefetch(leaves + (nodes[i] << w.LEAF_BITS) * 4)
    for i in range(targets.shape[0]):
        first = nodes[i] << w.LEAF_BITS
        slots[i] = first + find_leaf(leaves + first * 4, unit, targets[i])


@kernel
def _assign(header: Any, slots_address: Any, leaves_address: Any, count: Any) -> None:
    words, _ = words_at(header)
    slots = carray(int64_pointer(slots_address), count)
    new = carray(float32_pointer(leaves_address), count)
    old = np.empty(count, np.float32)
    leaves = leaves_of(words)
    for k in range(count):
        old[k] = leaves[slots[k]]
    assign(words, slots, new, old, np.empty(count, np.int64), np.empty(count, np.int64))


@helper
def rebuild_all(words: Any) -> None:
    """Recompute every node, and the total, from the leaves."""
    last = words[w.NUM_LEAVES] - 1
    sums_of(words)[:] = 0  # padding too
    words[w.TOTAL] = sum_range(words, 0, last)
    if words[w.NORMALIZE] == w.BUFFER_NORMALIZER:
        carray(float32_pointer(words[w.MINS]), num_nodes(words))[:] = INFINITY
    if words[w.NEW_PRIORITY] == w.MAX_CURRENT:
        carray(float32_pointer(words[w.MAXS]), num_nodes(words))[:] = np.float32(0)
    refresh_all_extrema(words, 0, last)


@kernel
def _rebuild(header: Any) -> None:
    words, _ = words_at(header)
    rebuild_all(words)


def set_leaves(state: State, slots: Tensor, leaves: Tensor) -> None:
    """See `reference.assign`."""
    _assign(state.header, slots.data_ptr(), leaves.data_ptr(), len(slots))


def rebuild(state: State) -> None:
    """Recompute every node, and the total, from the leaves."""
    _rebuild(state.header)
