"""Priorities of rows that have been trained on, in Numba."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import carray

from relive.ops import words as w
from relive.ops.compiled import float32_pointer, helper, int64_pointer, kernel, words_at
from relive.ops.power.cpu import power
from relive.ops.tree.cpu import (
    add_mass,
    change_scale,
    coarse_scale,
    leaves_of,
    mass_of,
    power_of_two,
    refresh_all_extrema,
    scale_after,
    sums_of,
)

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State

UNCHANGED = -1  # in place of the old mass of a leaf that a bad number leaves as it is
SMALLEST, LARGEST = np.float32(w.SMALLEST_LEAF), np.float32(w.LARGEST_LEAF)


@helper
def is_bad(value: Any, as_leaves: Any) -> Any:
    """Whether a number cannot become a priority."""
    return not np.isfinite(value) or (as_leaves and value < np.float32(0))


@helper
def refusal(words: Any, ids: Any, values: Any, as_leaves: Any) -> Any:
    """Why the call must be refused, before anything has changed."""
    for i in range(ids.shape[0]):
        if ids[i] < 0 or ids[i] >= words[w.NEXT_ID]:
            return w.UNKNOWN_ID
    if words[w.BAD_PRIORITY] == w.RAISE_BAD:
        for i in range(ids.shape[0]):
            if is_bad(values[i], as_leaves):
                return w.NOT_A_PRIORITY
    return w.OK


@helper
def held(words: Any, reals: Any, value: Any, as_leaves: Any) -> Any:
    """The leaf of a good number, within bounds; counts what had to be clamped."""
    leaf = value
    positive = value > np.float32(0)
    if not as_leaves:
        magnitude = abs(np.float64(value)) + reals[w.EPS]
        positive = magnitude > 0.0 or reals[w.ALPHA] == 0.0
        if reals[w.ALPHA] == 0.0:
            leaf = np.float32(1)
        elif positive:
            leaf = power(magnitude, reals[w.ALPHA])
    if not positive:
        return np.float32(0)
    if leaf < SMALLEST:
        words[w.CLAMPED_PRIORITIES] += 1
        return SMALLEST
    if leaf > LARGEST:
        words[w.CLAMPED_PRIORITIES] += 1
        return LARGEST
    return leaf


@helper
def decide(
    words: Any,
    reals: Any,
    ids: Any,
    values: Any,
    as_leaves: Any,
    slots: Any,
    new: Any,
    old_mass: Any,
) -> Any:
    """Find the slots that change, their new leaves and their old masses; returns how many.

    The last error for an id decides, so this goes backwards. The leaf of a slot that has been
    decided carries a sign bit; `assign` takes it away.
    """
    leaves = leaves_of(words)
    capacity = words[w.CAPACITY]
    oldest = max(words[w.BASE_ID], words[w.NEXT_ID] - capacity)
    unit = power_of_two(words[w.SCALE])
    fallback = np.float32(reals[w.MAX_LEAF])
    if fallback == np.float32(0):
        fallback = np.float32(1)
    decided = 0
    for i in range(ids.shape[0] - 1, -1, -1):
        bad = is_bad(values[i], as_leaves)
        words[w.BAD_PRIORITIES] += np.int64(bad)
        if ids[i] < oldest:
            words[w.STALE_UPDATES] += 1
            continue
        slot = (ids[i] - words[w.BASE_ID]) % capacity
        old = leaves[slot]
        leaf = abs(old)
        if not bad:
            leaf = held(words, reals, values[i], as_leaves)
        elif words[w.BAD_PRIORITY] == w.MAX_BAD:
            leaf = fallback
        if np.signbit(old):
            continue
        slots[decided] = slot
        new[decided] = leaf
        if bad and words[w.BAD_PRIORITY] == w.KEEP_BAD:
            old_mass[decided] = UNCHANGED
        else:
            old_mass[decided] = mass_of(old, unit)
        decided += 1
        leaves[slot] = -old
    return decided


@helper
def assign(words: Any, reals: Any, slots: Any, new: Any, old_mass: Any, decided: Any) -> None:
    """Set the leaves that were decided and everything above them."""
    leaves = leaves_of(words)
    unit = power_of_two(words[w.SCALE])
    largest = np.float32(0)
    rest = words[w.TOTAL]
    for k in range(decided):
        if old_mass[k] != UNCHANGED:
            rest -= old_mass[k]
            largest = max(largest, new[k])
    reals[w.MAX_LEAF] = max(reals[w.MAX_LEAF], np.float64(largest))
    coarse = coarse_scale(words, largest)
    coarse_unit = power_of_two(coarse)
    coarse_mass = np.int64(0)
    for k in range(decided):
        leaves[slots[k]] = new[k]
        if old_mass[k] != UNCHANGED:
            coarse_mass += mass_of(new[k], coarse_unit)
    scale = scale_after(words, rest, coarse, coarse_mass)
    if scale != words[w.SCALE]:
        change_scale(words, scale)
    else:
        sums = sums_of(words)
        total = rest
        for k in range(decided):
            if old_mass[k] != UNCHANGED:
                mass = mass_of(new[k], unit)
                total += mass
                add_mass(words, sums, slots[k], mass - old_mass[k])
        words[w.TOTAL] = total
    for k in range(decided):
        refresh_all_extrema(words, slots[k], slots[k])


@kernel
def _update(header: Any, ids_address: Any, values_address: Any, count: Any, as_leaves: Any) -> Any:
    words, reals = words_at(header)
    ids = carray(int64_pointer(ids_address), count)
    values = carray(float32_pointer(values_address), count)
    refused = refusal(words, ids, values, as_leaves)
    if refused != w.OK:
        return refused
    slots = np.empty(count, np.int64)
    new = np.empty(count, np.float32)
    old_mass = np.empty(count, np.int64)
    decided = decide(words, reals, ids, values, as_leaves, slots, new, old_mass)
    assign(words, reals, slots, new, old_mass, decided)
    words[w.UPDATED_ROWS] += count
    return w.OK


def update(state: State, ids: Tensor, values: Tensor, *, as_leaves: bool) -> int:
    """See `reference.update`."""
    return int(_update(state.header, ids.data_ptr(), values.data_ptr(), len(ids), as_leaves))
