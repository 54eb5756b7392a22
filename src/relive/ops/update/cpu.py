"""Priorities of rows that have been trained on, in Numba."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import carray

from relive.ops import words as w
from relive.ops.compiled import float32_pointer, helper, int64_pointer, kernel, words_at
from relive.ops.decide.cpu import (
    decide,
    find_live_slots,
    hold,
    is_good,
    note_errors,
    note_largest,
    transform,
)
from relive.ops.rank.cpu import sort
from relive.ops.tree.cpu import assign

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State


@helper
def refusal(words: Any, ids: Any, values: Any, as_leaves: Any) -> Any:
    """Why the call must be refused, before anything has changed."""
    next_id = words[w.NEXT_ID]
    added_stop = words[w.ADDED_FIRST_ID] + words[w.DEMO_ADDED]
    unknown = np.int64(0)
    for i in range(ids.shape[0]):
        is_added = (ids[i] >= w.FIRST_ADDED_ID) & (ids[i] < added_stop)
        unknown |= np.int64(ids[i] < 0) | np.int64((ids[i] >= next_id) & (not is_added))
    if unknown:
        return w.UNKNOWN_ID
    if words[w.BAD_PRIORITY] == w.RAISE_BAD:
        for i in range(values.shape[0]):
            if not is_good(values[i], as_leaves, words[w.WEIGHTING] == w.RANKED):
                return w.NOT_A_PRIORITY
    return w.OK


@kernel
def _update(header: Any, ids_address: Any, values_address: Any, count: Any, as_leaves: Any) -> Any:
    words, reals = words_at(header)
    ids = carray(int64_pointer(ids_address), count)
    values = carray(float32_pointer(values_address), count)
    refused = refusal(words, ids, values, as_leaves)
    if refused != w.OK:
        return refused
    words[w.UPDATED_ROWS] += count
    if words[w.WEIGHTING] == w.RANKED:
        note_errors(words, reals, ids, values, as_leaves)
        words[w.UPDATES] += 1
        if words[w.UPDATES] >= words[w.RESORT_EVERY]:
            sort(words, reals)
        return w.OK
    integers = np.empty((4, count), np.int64)
    floats = np.empty((3, count), np.float32)
    slots, chosen = integers[0], integers[1]
    asked, new, old = floats[0], floats[1], floats[2]
    find_live_slots(words, ids, slots)
    transform(words, reals, values, as_leaves, slots, chosen.view(np.float64), asked)
    hold(words, reals, values, as_leaves, slots, asked)
    number = decide(words, slots, asked, chosen, new, old)
    if number > 0:
        chosen, new, old = chosen[:number], new[:number], old[:number]
        note_largest(reals, as_leaves, new, old)
        assign(words, chosen, new, old, integers[2, :number], integers[3, :number])
    return w.OK


def update(state: State, ids: Tensor, values: Tensor, *, as_leaves: bool) -> int:
    """See `reference.update`."""
    return int(_update(state.header, ids.data_ptr(), values.data_ptr(), ids.numel(), as_leaves))
