"""Priorities by rank: P(i) is proportional to rank(i)^-alpha (Schaul et al. 2016, section 3.3).

A sort gives every row its rank, by falling |td error|: rows never updated come first, and of equals
the newer. The leaf of rank r is r^-alpha and stays until the next sort, whatever errors come in
between; a row written between sorts has leaf 1, that of the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from relive.ops import words as w
from relive.ops.power.reference import power
from relive.ops.tree import reference as tree
from relive.ops.window.reference import held_ids, slots_of

if TYPE_CHECKING:
    from relive.ops.state import State


def sort_by_rank(state: State) -> None:
    """Give every row the leaf of its rank."""
    state.words[w.UPDATES] = 0
    state.words[w.SORTS] += 1
    newest_first = held_ids(state).flip(0)
    if not len(newest_first):
        return
    slots = slots_of(state, newest_first)
    order = torch.sort(state.errors[slots], descending=True, stable=True).indices
    ranks = torch.arange(1, len(slots) + 1, dtype=torch.float64)
    state.leaves.zero_()
    leaves = power(ranks, -state.real(w.ALPHA))
    state.leaves[slots[order]] = leaves.clamp_min(w.SMALLEST_LEAF)
    state.words[w.SCALE] = tree.fresh_scale(state)
    tree.rebuild(state)
