"""The leaves of new rows, in Numba: a run of slots, around the end of the ring."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from relive.ops import words as w
from relive.ops.compiled import float32_pointer, helper
from relive.ops.nodes.cpu import (
    as_extremum,
    leaves_of,
    mass_of,
    num_nodes,
    refresh_all_extrema,
    roomy_scale,
    root_extremum,
    sum_range,
    total_fits,
)
from relive.ops.power.cpu import power_of_two
from relive.ops.tree.cpu import add_mass, change_scale, update_extremum
from relive.ops.window.cpu import ring_slot


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
def enter_rows(words: Any, reals: Any, first_id: Any) -> None:
    """Give the rows written since `first_id` the priority of new rows."""
    if words[w.WEIGHTING] == w.UNIFORM or words[w.NEXT_ID] == first_id:
        return
    first_live = max(first_id, words[w.NEXT_ID] - words[w.RING_CAPACITY])
    first_slot = ring_slot(words, first_live)
    count = words[w.NEXT_ID] - first_live
    if words[w.NEW_PRIORITY] == w.MAX_CURRENT:  # what is overwritten lives no more
        fill(words, first_slot, count, np.float32(0))
    fill(words, first_slot, count, new_leaf(words, reals))
    if words[w.WEIGHTING] == w.RANKED:
        errors = carray(float32_pointer(words[w.ERRORS]), words[w.CAPACITY])
        slot = first_slot
        for _ in range(count):
            errors[slot] = np.float32(np.inf)
            slot = slot + 1 if slot + 1 < words[w.CAPACITY] else words[w.RING_START]
