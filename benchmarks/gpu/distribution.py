"""Whether draws follow their distribution, with NumPy and torch alone."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def chi_square(drawn: NDArray[np.int64], expected: Floats) -> float:
    """P value of Pearson's test.

    Args:
        drawn: int64 [K], how often each of K things was drawn.
        expected: float64 [K], how often it should be; all positive.
    """
    statistic = float(((drawn - expected) ** 2 / expected).sum())
    half_freedom = torch.tensor((len(expected) - 1) / 2, dtype=torch.float64)
    half_statistic = torch.tensor(statistic / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half_freedom, half_statistic))


def kolmogorov_smirnov(samples: Floats) -> float:
    """P value that samples are uniform on [0, 1), by the limit for many of them."""
    ordered, count = np.sort(samples), len(samples)
    steps = np.arange(count + 1) / count
    distance = max(np.max(steps[1:] - ordered), np.max(ordered - steps[:-1]))
    scaled = (math.sqrt(count) + 0.12 + 0.11 / math.sqrt(count)) * distance
    terms = (2 * (-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))
    return min(1.0, max(0.0, sum(terms))) if scaled > 0.2 else 1.0


def spread(ids: NDArray[np.int64], probabilities: Floats, rng: np.random.Generator) -> Floats:
    """Draws of a discrete distribution as numbers that are uniform on [0, 1) if it was followed.

    Args:
        ids: int64 [B], places in `probabilities`.
        probabilities: float64 [K].
    """
    until = np.cumsum(probabilities)
    places: Floats = (until - probabilities)[ids] + probabilities[ids] * rng.random(len(ids))
    return places
