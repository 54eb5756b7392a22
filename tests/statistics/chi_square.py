"""Pearson's test of drawn frequencies."""

from __future__ import annotations

import numpy as np
import torch

FALSE_ALARM = 1e-6  # chance that a right sampler fails one such test, if its seed were changed


def p_value(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """The chance of frequencies at least as far off; every expected count must be 5 or more.

    For stratified draws, which are closer to the expectation than independent ones, it is larger.
    """
    expected = counts.sum() * probabilities / probabilities.sum()
    assert expected.min() >= 5, "too few draws for Pearson's approximation"
    statistic = float(((counts - expected) ** 2 / expected).sum())
    halves = torch.tensor([len(counts) - 1, statistic], dtype=torch.float64) / 2
    return float(torch.special.gammaincc(halves[0], halves[1]))


def draw_counts(buffer: object, draws: int, batch_size: int) -> np.ndarray:
    """How often each live row was drawn, oldest first."""
    oldest = int(buffer.live_ids()[0])
    counts = np.zeros(len(buffer), np.int64)
    out = buffer.empty_batch(batch_size)
    for _ in range(draws // batch_size):
        ids = buffer.sample(batch_size, out=out).ids.numpy() - oldest
        counts += np.bincount(ids, minlength=len(counts))
    return counts
