"""Priorities by rank, in Numba: a radix sort of the errors, then one pass over the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import carray

from relive.ops import words as w
from relive.ops.compiled import helper, kernel, uint32_pointer, words_at
from relive.ops.nodes.cpu import fresh_scale, leaves_of
from relive.ops.power.cpu import power
from relive.ops.tree.cpu import rebuild_all
from relive.ops.window.cpu import oldest_of_ring, ring_slot

if TYPE_CHECKING:
    from relive.ops.state import State

DIGIT_BITS = 11
DIGITS = 3  # of a float32


@helper
def newest_first(words: Any, slots: Any) -> None:
    """The slots of all rows, ids descending."""
    number = 0
    count = words[w.DEMO_COUNT]
    for k in range(words[w.DEMO_ADDED] - 1, -1, -1):
        slots[number] = count + k
        number += 1
    oldest = oldest_of_ring(words)
    if words[w.NEXT_ID] > oldest:
        slot = ring_slot(words, words[w.NEXT_ID] - 1)
        for _ in range(words[w.NEXT_ID] - oldest):
            slots[number] = slot
            number += 1
            slot = slot - 1 if slot > words[w.RING_START] else words[w.CAPACITY] - 1
    for k in range(count - 1, -1, -1):
        slots[number] = k
        number += 1


@helper
def sort_descending(keys: Any, slots: Any, other: Any) -> Any:
    """Slots by falling key, equal keys as they stand: from the lowest digit to the highest.

    The bits of floats that are not negative sort as the floats do.
    """
    source, target = slots, other
    starts = np.empty(1 << DIGIT_BITS, np.int64)
    for digit in range(DIGITS):
        shift = np.uint32(digit * DIGIT_BITS)
        mask = np.uint32((1 << DIGIT_BITS) - 1)
        starts[:] = 0
        for i in range(source.shape[0]):
            starts[np.int64((~keys[source[i]] >> shift) & mask)] += 1
        before = np.int64(0)
        for value in range(starts.shape[0]):
            count = starts[value]
            starts[value] = before
            before += count
        for i in range(source.shape[0]):
            bucket = np.int64((~keys[source[i]] >> shift) & mask)
            target[starts[bucket]] = source[i]
            starts[bucket] += 1
        source, target = target, source
    return source


@helper
def sort(words: Any, reals: Any) -> None:
    """See `reference.sort_by_rank`; works in 16 bytes a row."""
    rows = words[w.DEMO_COUNT] + words[w.DEMO_ADDED] + words[w.NEXT_ID] - oldest_of_ring(words)
    words[w.UPDATES] = 0
    words[w.SORTS] += 1
    if rows == 0:
        return
    slots = np.empty(rows, np.int64)
    newest_first(words, slots)
    keys = carray(uint32_pointer(words[w.ERRORS]), words[w.CAPACITY])
    by_rank = sort_descending(keys, slots, np.empty(rows, np.int64))
    leaves = leaves_of(words)
    leaves[:] = np.float32(0)
    for i in range(rows):
        leaf = power(np.float64(i + 1), -reals[w.ALPHA])
        leaves[by_rank[i]] = max(leaf, np.float32(w.SMALLEST_LEAF))
    words[w.SCALE] = fresh_scale(words)
    rebuild_all(words)


@kernel
def _sort(header: Any) -> None:
    words, reals = words_at(header)
    sort(words, reals)


def sort_by_rank(state: State) -> None:
    """See `reference.sort_by_rank`."""
    _sort(state.header)
