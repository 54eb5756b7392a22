"""The sum tree, by definition.

A leaf is (|td error| + eps)^alpha of the row in its slot, float32, 0 where no row lives. Its mass
is a whole number,

    mass = trunc(leaf 2^s),  at least 1 if leaf > 0

and a node is the int64 sum of its children. Sums of whole numbers do not depend on the order of
additions, so nothing drifts, a slot of mass 0 cannot be drawn, and trees of different shapes agree
bit for bit.

The exponent s is common to all. It changes when the total, as it is after a batch of changes, lies
outside [2^lowest, 2^highest): then s is found anew from all leaves, so that the total becomes about
2^target, and every sum is rebuilt. Until the next change the total must move by a factor of 2^9 at
least, which is what makes their cost amortised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relive.ops import words as w
from relive.ops.tree.shape import (
    CHILDREN,
    LEAVES_PER_NODE,
    level_sizes,
    lowest_total,
    target_total,
)

if TYPE_CHECKING:
    from relive.ops.state import State


def masses(leaves: Tensor, scale: int) -> Tensor:
    """Mass of each leaf: float32 [*] -> int64 [*]."""
    mass = (leaves.to(torch.float64) * 2.0**scale).to(torch.int64)
    return torch.where((leaves > 0) & (mass == 0), 1, mass)


def set_leaves(state: State, slots: Tensor, leaves: Tensor) -> None:
    """Set leaves and everything above them.

    Args:
        slots: int64 [K], distinct.
        leaves: float32 [K], each 0 or in [2^-40, 2^40].
    """
    rest = state.word(w.TOTAL) - int(masses(state.leaves[slots], state.word(w.SCALE)).sum())
    fits = total_fits(state, rest, leaves)
    state.leaves[slots] = leaves
    if not fits:
        state.words[w.SCALE] = fresh_scale(state)
        state.words[w.RESCALES] += 1
    rebuild(state)


def total_fits(state: State, rest: int, leaves: Tensor) -> bool:
    """Whether the scale can stay when `leaves` join a mass of `rest`; always, if nothing is left.

    Where the new leaves might be too large for s, all is compared at a coarser exponent at which
    they are not.
    """
    capacity, scale = state.word(w.CAPACITY), state.word(w.SCALE)
    coarse = min(scale, roomy_scale(capacity, leaves))
    total = (rest >> (scale - coarse)) + int(masses(leaves, coarse).sum())
    log2 = total.bit_length() - 1 + scale - coarse
    return total == 0 or lowest_total(capacity) <= log2 < w.HIGHEST_TOTAL


def roomy_scale(capacity: int, leaves: Tensor) -> int:
    """The exponent at which a tree full of leaves like the largest of these cannot overflow."""
    largest = leaves.max() if len(leaves) else torch.zeros(())
    exponent = int(torch.frexp(largest)[1]) if largest > 0 else -64  # largest < 2^exponent
    return w.HIGHEST_TOTAL - (capacity - 1).bit_length() - exponent


def fresh_scale(state: State) -> int:
    """The exponent at which the total of the leaves is about 2^target."""
    capacity = state.word(w.CAPACITY)
    scale = roomy_scale(capacity, state.leaves)
    total = int(masses(state.leaves, scale).sum())
    return scale + target_total(capacity) - (total.bit_length() - 1)


def rebuild(state: State) -> None:
    """Recompute every node, and the total, from the leaves."""
    capacity, scale = state.word(w.CAPACITY), state.word(w.SCALE)
    sums = masses(state.leaves, scale).view(-1, LEAVES_PER_NODE).sum(1)
    positive = torch.where(state.leaves > 0, state.leaves, torch.inf)
    smallest = positive.view(-1, LEAVES_PER_NODE).amin(1)
    largest = state.leaves.view(-1, LEAVES_PER_NODE).amax(1)
    start = 0
    for size in level_sizes(capacity):
        end = start + size
        _store(state.sums, sums, start, end, 0)
        _store(state.mins, smallest, start, end, torch.inf)
        _store(state.maxs, largest, start, end, 0.0)
        sums = state.sums[start:end].view(-1, CHILDREN).sum(1)
        smallest = state.mins[start:end].view(-1, CHILDREN).amin(1) if len(state.mins) else smallest
        largest = state.maxs[start:end].view(-1, CHILDREN).amax(1) if len(state.maxs) else largest
        start = end
    state.words[w.TOTAL] = sums.sum()


def _store(level: Tensor, values: Tensor, start: int, end: int, padding: float) -> None:
    if len(level):
        level[start:end] = padding
        level[start : start + len(values)] = values


def find(leaf_masses: Tensor, targets: Tensor) -> Tensor:
    """In whose share of the mass each target lies: the first with prefix sum > target.

    Args:
        leaf_masses: int64 [N].
        targets: int64 [K], each in [0, sum of the masses).

    Returns:
        int64 [K] indices, none of mass 0.
    """
    return torch.searchsorted(leaf_masses.cumsum(0), targets, right=True)


def new_leaf(state: State) -> float:
    """The leaf of a new row: the largest set so far or the largest that lives; 1 if none."""
    if state.word(w.WEIGHTING) == w.RANKED:
        return 1.0  # as if it ranked first
    if state.word(w.NEW_PRIORITY) == w.MAX_CURRENT:
        largest = float(state.leaves.max())
    else:
        largest = state.real(w.MAX_LEAF)
    return largest if largest > 0 else 1.0
