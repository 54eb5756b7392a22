"""Importance weights, by the formulas of `ops.sample`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relive.ops import words as w
from relive.ops.power.reference import power
from relive.ops.tree import reference as tree

if TYPE_CHECKING:
    from relive.ops.state import State
    from relive.ops.window.reference import Part


def importance_weights(
    state: State, parts: list[Part], slots: Tensor, part_of: Tensor, beta: float
) -> Tensor:
    """Weights of drawn rows; those that are clipped are counted.

    Args:
        slots: int64 [B].
        part_of: the number of the part of each, int64 [B].
        beta: the exponent.

    Returns:
        float32 [B].
    """
    normalize = state.word(w.NORMALIZE)
    leaves = state.leaves[slots].to(torch.float64)
    smallest = [_smallest(state, part) for part in parts]
    if len(parts) == 1 and state.word(w.UNIFORM_SHARE) == 0:
        # n / M is common to all rows, and left out where it cancels
        if normalize == w.NO_NORMALIZER:
            mass = tree.masses(state.leaves[slots], state.word(w.SCALE)).to(torch.float64)
            ratio = mass * float(len(parts[0].slots)) / float(parts[0].mass(state))
        elif normalize == w.BATCH_NORMALIZER:
            ratio = leaves / leaves.min()
        else:
            ratio = leaves / smallest[0]
    else:
        terms = [_likelihood(state, part, parts) for part in parts]
        scale = torch.tensor([term[0] for term in terms], dtype=torch.float64)[part_of]
        base = torch.tensor([term[1] for term in terms], dtype=torch.float64)[part_of]
        ratio = scale * leaves + base
        if normalize == w.BATCH_NORMALIZER:
            ratio = ratio / ratio.min()
        elif normalize == w.BUFFER_NORMALIZER:
            least = min(
                a * leaf + b
                for (a, b), leaf, part in zip(terms, smallest, parts, strict=True)
                if part.share > 0
            )
            ratio = ratio / least
    weights = power(ratio, -beta)
    clip = torch.tensor(state.real(w.WEIGHT_CLIP), dtype=torch.float32)
    state.words[w.CLIPPED_WEIGHTS] += int((weights > clip).sum())
    return torch.minimum(weights, clip)


def _smallest(state: State, part: Part) -> float:
    """The smallest positive leaf of a part."""
    leaves = state.leaves[part.slots]
    return float(leaves[leaves > 0].min())


def _likelihood(state: State, part: Part, parts: list[Part]) -> tuple[float, float]:
    """(a, b) such that a leaf + b is n P of a row of a part."""
    uniform = state.word(w.UNIFORM_SHARE) / 2.0**63
    count, mass = float(len(part.slots)), float(part.mass(state))
    a, b = (1.0 - uniform) * 2.0 ** state.word(w.SCALE) * count / mass, uniform
    if state.word(w.MIXTURE_WEIGHTS) and len(parts) > 1:
        rows = float(sum(len(other.slots) for other in parts))
        factor = part.share * rows / count
        a, b = a * factor, b * factor
    return a, b
