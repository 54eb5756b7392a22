"""What each position of an update asks for and which of them decides, in Numba.

The arithmetic is done in loops without branches over the whole batch, so that it becomes vector
instructions; leaves and lowest nodes are asked of the memory before they are needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from relive.ops import words as w
from relive.ops.compiled import float32_pointer, helper, prefetch
from relive.ops.nodes.cpu import leaves_of
from relive.ops.power.cpu import powers
from relive.ops.window.cpu import find_slots, oldest_of_ring

SMALLEST, LARGEST = np.float32(w.SMALLEST_LEAF), np.float32(w.LARGEST_LEAF)
ZERO, ONE = np.float32(0), np.float32(1)
KEEP = np.float32(-np.inf)  # in place of a leaf: a bad number leaves the old one
STALE = -1  # in place of a slot


@helper
def is_good(value: Any, as_leaf: Any, ranked: Any) -> Any:
    """Whether a number can become a priority; by rank, infinity means a row never updated."""
    return (np.isfinite(value) & ((not as_leaf) | (value >= ZERO))) | (
        as_leaf & ranked & (value == np.inf)
    )


@helper
def find_live_slots(words: Any, ids: Any, slots: Any) -> None:
    """The slot of each id, STALE where its row has been overwritten; asks for what it needs."""
    first = words[w.DEMO_FIRST_ID]
    stop = first + words[w.DEMO_COUNT]
    oldest = oldest_of_ring(words)
    oldest_added = words[w.ADDED_FIRST_ID]
    leaves = words[w.LEAVES]
    sums = words[w.SUMS]
    mins = words[w.MINS]
    keeps_mins = words[w.NORMALIZE] == w.BUFFER_NORMALIZER
    find_slots(words, ids, slots)
    stale = np.int64(0)
    for i in range(ids.shape[0]):
        is_pinned = (first <= ids[i]) & (ids[i] < stop)
        is_cleared = (ids[i] >= w.FIRST_ADDED_ID) & (ids[i] < oldest_added)
        if is_cleared or (ids[i] < oldest and not is_pinned):
            slots[i] = STALE
            stale += 1
        else:
            prefetch(leaves + 4 * slots[i])
            prefetch(sums + 8 * (slots[i] >> w.LEAF_BITS))
            if keeps_mins:
                prefetch(mins + 4 * (slots[i] >> w.LEAF_BITS))
    words[w.STALE_UPDATES] += stale


@helper
def transform(
    words: Any, reals: Any, values: Any, as_leaves: Any, slots: Any, bases: Any, new: Any
) -> None:
    """The leaf that each good number asks for, before it is held within bounds.

    `bases`, float64 [B], is to work in.
    """
    alpha = reals[w.ALPHA]
    eps = reals[w.EPS]
    if as_leaves:
        new[:] = values
    elif alpha == 0.0:
        new[:] = ONE
    else:
        bonus = reals[w.DEMO_BONUS]
        start = words[w.RING_START]  # 0 without demonstrations: none gets a bonus
        for i in range(values.shape[0]):
            magnitude = abs(np.float64(values[i])) + eps
            magnitude += bonus if slots[i] < start else 0.0
            usable = (magnitude > 0.0) & (magnitude < np.inf)
            bases[i] = magnitude if usable else 0.0
        powers(bases, alpha, new)
        for i in range(values.shape[0]):
            leaf = max(new[i], np.float32(0.5) * SMALLEST)  # too small for float32, yet not zero
            new[i] = leaf if bases[i] > 0.0 else ZERO


@helper
def hold(words: Any, reals: Any, values: Any, as_leaves: Any, slots: Any, asked: Any) -> None:
    """Hold leaves within bounds, put in what a bad number asks for, and count both.

    What a bad number asks for is negative: it does not count as the largest leaf that was set.
    """
    bad_leaf = KEEP
    if words[w.BAD_PRIORITY] == w.MAX_BAD:
        bad_leaf = -np.float32(reals[w.MAX_LEAF]) if reals[w.MAX_LEAF] > 0.0 else -ONE
    clamped = np.int64(0)
    bad = np.int64(0)
    for i in range(values.shape[0]):
        good = is_good(values[i], as_leaves, False)
        leaf = asked[i]
        held = min(max(leaf, SMALLEST), LARGEST) if leaf > ZERO else ZERO
        clamped += np.int64(good & (leaf > ZERO) & (held != leaf) & (slots[i] != STALE))
        bad += np.int64(not good)
        asked[i] = held if good else bad_leaf
    words[w.BAD_PRIORITIES] += bad
    words[w.CLAMPED_PRIORITIES] += clamped


@helper
def decide(words: Any, slots: Any, asked: Any, chosen: Any, new: Any, old: Any) -> Any:
    """Which slots change, from which leaf to which: of several entries for one, the last decides.

    Fills `chosen`, `new` and `old`; returns how many there are. This goes backwards; the leaf of a
    slot that has been decided carries a sign bit, which setting it takes away.
    """
    leaves = leaves_of(words)
    number = np.int64(0)
    kept = np.int64(0)
    for i in range(slots.shape[0] - 1, -1, -1):
        slot = slots[i]
        if slot == STALE:
            continue
        leaf = leaves[slot]
        if np.signbit(leaf):
            continue
        leaves[slot] = -leaf
        chosen[number] = slot
        new[number] = asked[i]
        old[number] = leaf
        keep = np.int64(asked[i] == KEEP)
        kept += keep
        number += 1 - keep
    if kept > 0:
        for i in range(slots.shape[0]):
            if slots[i] != STALE:
                leaves[slots[i]] = abs(leaves[slots[i]])
    return number


@helper
def note_largest(reals: Any, as_leaves: Any, new: Any, old: Any) -> None:
    """Remember the largest leaf that was set; writing back what was read sets nothing."""
    largest = ZERO
    for k in range(new.shape[0]):
        is_set = (new[k] >= ZERO) & (not (as_leaves & (new[k] == old[k])))
        largest = max(largest, new[k] if is_set else ZERO)
        new[k] = abs(new[k])
    reals[w.MAX_LEAF] = max(reals[w.MAX_LEAF], np.float64(largest))


@helper
def note_errors(words: Any, reals: Any, ids: Any, values: Any, as_leaves: Any) -> None:
    """Keep the magnitudes of errors, for the next sort by rank; the last for a row decides."""
    errors = carray(float32_pointer(words[w.ERRORS]), words[w.CAPACITY])
    slots = np.empty(ids.shape[0], np.int64)
    find_live_slots(words, ids, slots)
    largest = np.float32(reals[w.MAX_LEAF] if reals[w.MAX_LEAF] > 0.0 else np.inf)  # as a new row
    bad = np.int64(0)
    for i in range(ids.shape[0] - 1, -1, -1):  # backwards: a decided slot carries a sign bit
        good = is_good(values[i], as_leaves, True)
        bad += np.int64(not good)
        if slots[i] == STALE or np.signbit(errors[slots[i]]):
            continue
        error = errors[slots[i]]
        if good:
            error = abs(values[i])
            if np.isfinite(error):
                reals[w.MAX_LEAF] = max(reals[w.MAX_LEAF], np.float64(error))
        elif words[w.BAD_PRIORITY] == w.MAX_BAD:
            error = largest
        errors[slots[i]] = -error
    for i in range(ids.shape[0]):
        if slots[i] != STALE:
            errors[slots[i]] = abs(errors[slots[i]])
    words[w.BAD_PRIORITIES] += bad
