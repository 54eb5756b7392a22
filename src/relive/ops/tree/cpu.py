"""The sum tree in Numba: paths are updated, not the whole tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import carray

from relive.ops import words as w
from relive.ops.compiled import float32_pointer, helper, int64_pointer, kernel, words_at
from relive.ops.nodes.cpu import (
    INFINITY,
    as_extremum,
    extremum_of_leaves,
    extremum_of_nodes,
    fresh_scale,
    leaves_of,
    mass_of,
    num_nodes,
    refresh_all_extrema,
    roomy_scale,
    sum_range,
    sums_of,
    total_fits,
)
from relive.ops.power.cpu import power_of_two

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State


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
def _assign(header: Any, slots_address: Any, leaves_address: Any, count: Any) -> None:
    words, _ = words_at(header)
    slots = carray(int64_pointer(slots_address), count)
    new = carray(float32_pointer(leaves_address), count)
    old = np.empty(count, np.float32)
    leaves = leaves_of(words)
    for k in range(count):
        old[k] = leaves[slots[k]]
    assign(words, slots, new, old, np.empty(count, np.int64), np.empty(count, np.int64))


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
