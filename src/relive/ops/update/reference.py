"""Priorities of rows that have been trained on.

    leaf = (|td error| + eps)^alpha, held in [2^-40, 2^40]; 0 stays 0

(Schaul et al. 2016, arXiv:1511.05952, the proportional variant.)

Ids whose row has been overwritten are skipped and counted. Of several errors for one id the last
decides. A NaN or infinite error is counted and keeps the old leaf, or takes the largest leaf so
far (before there is one, that of a new row), or refuses the call.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relive.ops import words as w
from relive.ops.power.reference import power
from relive.ops.rank.reference import sort_by_rank
from relive.ops.tree import reference as tree
from relive.ops.window.reference import held_ids, slots_of

KEEP = -1.0  # in place of a leaf: a bad number leaves the old one

if TYPE_CHECKING:
    from relive.ops.state import State


def update(state: State, ids: Tensor, values: Tensor, *, as_leaves: bool) -> int:
    """Set the leaves of rows.

    Args:
        ids: int64 [B].
        values: float32 [B], TD errors of any sign; with `as_leaves`, the leaves themselves.

    Returns:
        OK; UNKNOWN_ID or NOT_A_PRIORITY, in which case nothing has changed.
    """
    row_ids, ranked = ids.tolist(), state.word(w.WEIGHTING) == w.RANKED
    held = set(held_ids(state).tolist())
    added = range(w.FIRST_ADDED_ID, state.word(w.ADDED_FIRST_ID) + state.word(w.DEMO_ADDED))
    if any(not (0 <= row_id < state.word(w.NEXT_ID) or row_id in added) for row_id in row_ids):
        return w.UNKNOWN_ID
    bad = [not _is_good(value, as_leaves, ranked) for value in values.tolist()]
    if state.word(w.BAD_PRIORITY) == w.RAISE_BAD and any(bad):
        return w.NOT_A_PRIORITY
    state.words[w.BAD_PRIORITIES] += sum(bad)
    state.words[w.STALE_UPDATES] += sum(row_id not in held for row_id in row_ids)
    state.words[w.UPDATED_ROWS] += len(ids)
    slots = slots_of(state, ids).tolist()
    entries = [
        (slot, value, is_bad)
        for row_id, slot, value, is_bad in zip(row_ids, slots, values.tolist(), bad, strict=True)
        if row_id in held
    ]
    if ranked:
        _note_errors(state, entries)
        state.words[w.UPDATES] += 1
        if state.word(w.UPDATES) >= state.word(w.RESORT_EVERY):
            sort_by_rank(state)
    else:
        _set_leaves(state, entries, as_leaves)
    return w.OK


def _is_good(value: float, as_leaf: bool, ranked: bool) -> bool:
    """Whether a number can become a priority; by rank, infinity means a row never updated."""
    if as_leaf and ranked and value == math.inf:
        return True
    return math.isfinite(value) and not (as_leaf and value < 0)


def _note_errors(state: State, entries: list[tuple[int, float, bool]]) -> None:
    """Keep the magnitudes of errors, for the next sort by rank; the last for a row decides."""
    largest = state.real(w.MAX_LEAF) or math.inf  # before any, as a new row
    for slot, (value, is_bad) in {slot: (v, b) for slot, v, b in entries}.items():
        if not is_bad:
            state.errors[slot] = abs(value)
            if math.isfinite(value):
                state.floats[w.MAX_LEAF] = max(state.real(w.MAX_LEAF), abs(value))
        elif state.word(w.BAD_PRIORITY) == w.MAX_BAD:
            state.errors[slot] = largest


def _set_leaves(state: State, entries: list[tuple[int, float, bool]], as_leaves: bool) -> None:
    """Set the leaves that errors ask for; the last for a row decides."""
    largest_seen = state.real(w.MAX_LEAF)
    leaf_of_slot: dict[int, tuple[float, bool]] = {}  # the last leaf, and whether a number set it
    for slot, value, is_bad in entries:
        old = float(state.leaves[slot])
        if not is_bad:
            leaf = value if as_leaves else _transform(state, slot, value)
            held = min(max(leaf, w.SMALLEST_LEAF), w.LARGEST_LEAF) if leaf > 0 else 0.0
            state.words[w.CLAMPED_PRIORITIES] += int(held != leaf)
            # writing back a leaf that was read sets nothing new
            leaf_of_slot[slot] = held, not (as_leaves and held == old)
        elif state.word(w.BAD_PRIORITY) == w.MAX_BAD:
            leaf_of_slot[slot] = (largest_seen if largest_seen > 0 else 1.0), False
        else:
            leaf_of_slot[slot] = KEEP, False
    state.floats[w.MAX_LEAF] = max(
        [largest_seen, *(f for f, is_set in leaf_of_slot.values() if is_set)]
    )
    changed = {slot: leaf for slot, (leaf, _) in leaf_of_slot.items() if leaf != KEEP}
    if changed:
        leaves = torch.tensor(list(changed.values()), dtype=torch.float32)
        tree.set_leaves(state, torch.tensor(list(changed)), leaves)


def _transform(state: State, slot: int, td_error: float) -> float:
    """(|td error| + eps)^alpha, with the bonus of a demonstration beside eps."""
    magnitude, alpha = abs(td_error) + state.real(w.EPS), state.real(w.ALPHA)
    if slot < state.word(w.RING_START):
        magnitude += state.real(w.DEMO_BONUS)
    if alpha == 0:
        return 1.0
    if magnitude == 0:
        return 0.0
    leaf = float(power(torch.tensor([magnitude], dtype=torch.float64), alpha))
    return leaf if leaf > 0 else math.ulp(0.0)  # too small for float32, yet not zero
