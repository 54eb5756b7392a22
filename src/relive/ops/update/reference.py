"""Priorities of rows that have been trained on.

    leaf = (|td error| + eps)^alpha, held in [2^-40, 2^40]; 0 stays 0

(Schaul et al. 2016, arXiv:1511.05952, the proportional variant.)

Ids whose row has been overwritten are skipped and counted. Of several errors for one id the last
decides. A NaN or infinite error is counted and keeps the old leaf, or takes the largest leaf so
far, or refuses the call.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relive.ops import words as w
from relive.ops.power.reference import power
from relive.ops.tree import reference as tree

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
    next_id, capacity = state.word(w.NEXT_ID), state.word(w.CAPACITY)
    oldest = max(state.word(w.BASE_ID), next_id - capacity)
    if any(not 0 <= row_id < next_id for row_id in ids.tolist()):
        return w.UNKNOWN_ID
    bad = [not math.isfinite(value) or (as_leaves and value < 0) for value in values.tolist()]
    if state.word(w.BAD_PRIORITY) == w.RAISE_BAD and any(bad):
        return w.NOT_A_PRIORITY
    largest_seen = state.real(w.MAX_LEAF)
    leaf_of_slot: dict[int, tuple[float, bool]] = {}  # the last leaf, and whether a number set it
    for row_id, value, is_bad in zip(ids.tolist(), values.tolist(), bad, strict=True):
        state.words[w.BAD_PRIORITIES] += int(is_bad)
        if row_id < oldest:
            state.words[w.STALE_UPDATES] += 1
            continue
        slot = (row_id - state.word(w.BASE_ID)) % capacity
        old = float(state.leaves[slot])
        if not is_bad:
            leaf = value if as_leaves else _transform(state, value)
            held = min(max(leaf, w.SMALLEST_LEAF), w.LARGEST_LEAF) if leaf > 0 else 0.0
            state.words[w.CLAMPED_PRIORITIES] += int(held != leaf)
            # writing back a leaf that was read sets nothing new
            leaf_of_slot[slot] = held, not (as_leaves and held == old)
        elif state.word(w.BAD_PRIORITY) == w.MAX_BAD:
            leaf_of_slot[slot] = (largest_seen if largest_seen > 0 else 1.0), False
        else:
            leaf_of_slot[slot] = KEEP, False
    state.words[w.UPDATED_ROWS] += len(ids)
    state.floats[w.MAX_LEAF] = max(
        [largest_seen, *(f for f, is_set in leaf_of_slot.values() if is_set)]
    )
    changed = {slot: leaf for slot, (leaf, _) in leaf_of_slot.items() if leaf != KEEP}
    if changed:
        leaves = torch.tensor(list(changed.values()), dtype=torch.float32)
        tree.assign(state, torch.tensor(list(changed)), leaves)
    return w.OK


def _transform(state: State, td_error: float) -> float:
    magnitude, alpha = abs(td_error) + state.real(w.EPS), state.real(w.ALPHA)
    if alpha == 0:
        return 1.0
    if magnitude == 0:
        return 0.0
    leaf = float(power(torch.tensor([magnitude], dtype=torch.float64), alpha))
    return leaf if leaf > 0 else math.ulp(0.0)  # too small for float32, yet not zero
