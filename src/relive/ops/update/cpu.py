"""Priorities of rows that have been trained on, in Numba.

The arithmetic is done in loops without branches over the whole batch, so that it becomes vector
instructions; leaves and lowest nodes are asked of the memory before they are needed.
"""

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
from relive.ops.power.cpu import power
from relive.ops.tree.cpu import (
    add_mass,
    change_scale,
    keeps_extrema,
    leaves_of,
    mass_of,
    power_of_two,
    roomy_scale,
    sums_of,
    total_fits,
    update_extrema,
)

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State

SMALLEST, LARGEST = np.float32(w.SMALLEST_LEAF), np.float32(w.LARGEST_LEAF)
ZERO, ONE = np.float32(0), np.float32(1)
KEEP = np.float32(-1)  # in place of a leaf: a bad number leaves the old one
STALE = -1  # in place of a slot


@helper
def is_good(value: Any, as_leaf: Any) -> Any:
    """Whether a number can become a priority."""
    return np.isfinite(value) & ((not as_leaf) | (value >= ZERO))


@helper
def refusal(words: Any, ids: Any, values: Any, as_leaves: Any) -> Any:
    """Why the call must be refused, before anything has changed."""
    next_id = words[w.NEXT_ID]
    unknown = np.int64(0)
    for i in range(ids.shape[0]):
        unknown |= np.int64(ids[i] < 0) | np.int64(ids[i] >= next_id)
    if unknown:
        return w.UNKNOWN_ID
    if words[w.BAD_PRIORITY] == w.RAISE_BAD:
        for i in range(values.shape[0]):
            if not is_good(values[i], as_leaves):
                return w.NOT_A_PRIORITY
    return w.OK


@helper
def find_slots(words: Any, ids: Any, slots: Any) -> None:
    """The slot of each id, STALE where its row has been overwritten; asks for what it needs."""
    capacity = words[w.CAPACITY]
    oldest = max(words[w.BASE_ID], words[w.NEXT_ID] - capacity)
    oldest_slot = (oldest - words[w.BASE_ID]) % capacity
    leaves = words[w.LEAVES]
    sums = words[w.SUMS]
    stale = np.int64(0)
    for i in range(ids.shape[0]):
        slot = oldest_slot + ids[i] - oldest
        slot = slot - capacity if slot >= capacity else slot
        if ids[i] < oldest:
            slots[i] = STALE
            stale += 1
        else:
            slots[i] = slot
            prefetch(leaves + 4 * slot)
            prefetch(sums + 8 * (slot >> w.LEAF_BITS))
    words[w.STALE_UPDATES] += stale


@helper
def transform(reals: Any, values: Any, as_leaves: Any, new: Any) -> None:
    """The leaf that each good number asks for, before it is held within bounds."""
    alpha = reals[w.ALPHA]
    eps = reals[w.EPS]
    if as_leaves:
        new[:] = values
    elif alpha == 0.0:
        new[:] = ONE
    else:
        for i in range(values.shape[0]):
            magnitude = abs(np.float64(values[i])) + eps
            usable = (magnitude > 0.0) & (magnitude < np.inf)
            leaf = power(magnitude if usable else 1.0, alpha)
            leaf = max(leaf, np.float32(0.5) * SMALLEST)  # too small for float32, yet not zero
            new[i] = leaf if magnitude > 0.0 else ZERO


@helper
def hold(words: Any, reals: Any, values: Any, as_leaves: Any, slots: Any, new: Any) -> None:
    """Hold leaves within bounds, put in what a bad number asks for, and count both."""
    bad_leaf = KEEP
    if words[w.BAD_PRIORITY] == w.MAX_BAD:
        bad_leaf = np.float32(reals[w.MAX_LEAF]) if reals[w.MAX_LEAF] > 0.0 else ONE
    clamped = np.int64(0)
    bad = np.int64(0)
    for i in range(values.shape[0]):
        good = is_good(values[i], as_leaves)
        leaf = new[i]
        held = min(max(leaf, SMALLEST), LARGEST) if leaf > ZERO else ZERO
        clamped += np.int64(good & (leaf > ZERO) & (held != leaf) & (slots[i] != STALE))
        bad += np.int64(not good)
        new[i] = held if good else bad_leaf
    words[w.BAD_PRIORITIES] += bad
    words[w.CLAMPED_PRIORITIES] += clamped


@helper
def decide(
    words: Any, reals: Any, values: Any, as_leaves: Any, slots: Any, new: Any, old: Any
) -> Any:
    """Keep one entry for each slot, the last of the batch.

    Entries move to the end of `slots` and `new`, their old leaves into `old`: KEEP where the leaf
    stays as it is. Returns where they begin. This goes backwards; the leaf of a slot that has been
    decided carries a sign bit, which `assign` takes away.
    """
    leaves = leaves_of(words)
    count = slots.shape[0]
    decided = count
    largest = ZERO
    for i in range(count - 1, -1, -1):
        slot = slots[i]
        if slot == STALE:
            continue
        leaf = leaves[slot]
        if np.signbit(leaf):
            continue
        decided -= 1
        leaves[slot] = -leaf
        slots[decided] = slot
        if new[i] == KEEP:
            new[decided] = leaf
            old[decided] = KEEP
        else:
            # what a bad number asks for is not set by it, nor a leaf that is written back as read
            if is_good(values[i], as_leaves) and not (as_leaves and new[i] == leaf):
                largest = max(largest, new[i])
            new[decided] = new[i]
            old[decided] = leaf
    reals[w.MAX_LEAF] = max(reals[w.MAX_LEAF], np.float64(largest))
    return decided


@helper
def assign(words: Any, slots: Any, new: Any, old: Any) -> None:
    """Set the leaves of slots and everything above them."""
    leaves = leaves_of(words)
    count = slots.shape[0]
    unit = power_of_two(words[w.SCALE])
    largest = ZERO
    rest = words[w.TOTAL]
    for k in range(count):
        leaves[slots[k]] = new[k]
        changes = old[k] != KEEP
        rest -= mass_of(old[k], unit) if changes else np.int64(0)
        largest = max(largest, new[k] if changes else ZERO)
    coarse = min(words[w.SCALE], roomy_scale(words, largest))
    coarse_unit = power_of_two(coarse)
    coarse_mass = np.int64(0)
    for k in range(count):
        coarse_mass += mass_of(new[k], coarse_unit) if old[k] != KEEP else np.int64(0)
    if not total_fits(words, rest, coarse, coarse_mass):
        change_scale(words)
    else:
        sums = sums_of(words)
        total = rest
        for k in range(count):
            if old[k] != KEEP:
                mass = mass_of(new[k], unit)
                total += mass
                add_mass(words, sums, slots[k], mass - mass_of(old[k], unit))
        words[w.TOTAL] = total
    if keeps_extrema(words):
        for k in range(count):
            if old[k] != KEEP:
                update_extrema(words, slots[k], old[k], new[k])


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
    old = np.empty(count, np.float32)
    find_slots(words, ids, slots)
    transform(reals, values, as_leaves, new)
    hold(words, reals, values, as_leaves, slots, new)
    first = decide(words, reals, values, as_leaves, slots, new, old)
    assign(words, slots[first:], new[first:], old[first:])
    words[w.UPDATED_ROWS] += count
    return w.OK


def update(state: State, ids: Tensor, values: Tensor, *, as_leaves: bool) -> int:
    """See `reference.update`."""
    return int(_update(state.header, ids.data_ptr(), values.data_ptr(), len(ids), as_leaves))
