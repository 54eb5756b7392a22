"""Importance weights, in Numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from relive.ops import words as w
from relive.ops.compiled import helper
from relive.ops.nodes.cpu import leaves_of, mass_of
from relive.ops.parts.cpu import MASS, ROWS, smallest_leaf
from relive.ops.power.cpu import power_of_two, powers
from relive.ops.window.cpu import schedule


@helper
def likelihood(words: Any, parts: Any, shares: Any, number: Any, part: Any) -> Any:
    """(a, b) such that a leaf + b is rows times probability of a row of a part."""
    uniform = np.float64(words[w.UNIFORM_SHARE]) / 2.0**63
    count = np.float64(parts[part, ROWS])
    mass = np.float64(parts[part, MASS])
    a = (1.0 - uniform) * power_of_two(words[w.SCALE]) * count / mass
    b = uniform
    if words[w.MIXTURE_WEIGHTS] and number == 2:
        factor = shares[part] * np.float64(parts[0, ROWS] + parts[1, ROWS]) / count
        a *= factor
        b *= factor
    return a, b


@helper
def smallest_positive(values: Any) -> Any:
    """The smallest of float32 [B], all positive: their bits sort as they do, and as integers."""
    bits = values.view(np.int32)
    least = bits[0]
    for i in range(1, bits.shape[0]):
        least = min(least, bits[i])
    return np.int32(least).view(np.float32)


@helper
def find_simple_ratios(words: Any, runs: Any, part: Any, leaves: Any, ratios: Any) -> None:
    """Ratios where every row is drawn from one part by priority: rows and mass are common to all.

    They are left out where they cancel.
    """
    batch_size = leaves.shape[0]
    if words[w.NORMALIZE] == w.NO_NORMALIZER:
        unit = power_of_two(words[w.SCALE])
        rows, mass = np.float64(part[ROWS]), np.float64(part[MASS])
        for i in range(batch_size):
            ratios[i] = np.float64(mass_of(leaves[i], unit)) * rows / mass
        return
    if words[w.NORMALIZE] == w.BUFFER_NORMALIZER:
        smallest = smallest_leaf(words, runs, part)
    else:
        smallest = smallest_positive(leaves)
    for i in range(batch_size):
        ratios[i] = np.float64(leaves[i]) / np.float64(smallest)


@helper
def find_ratios(
    words: Any,
    runs: Any,
    parts: Any,
    shares: Any,
    number: Any,
    slots: Any,
    leaves: Any,
    ratios: Any,
) -> None:
    """Rows times probability of every drawn row, over what the normaliser makes of it."""
    batch_size = slots.shape[0]
    a_0, b_0 = likelihood(words, parts, shares, number, 0)
    a_1, b_1 = likelihood(words, parts, shares, number, number - 1)
    start = words[w.RING_START] if number == 2 else words[w.CAPACITY]
    for i in range(batch_size):
        is_first = slots[i] < start
        ratios[i] = (a_0 if is_first else a_1) * np.float64(leaves[i]) + (b_0 if is_first else b_1)
    if words[w.NORMALIZE] == w.NO_NORMALIZER:
        return
    least = np.inf
    if words[w.NORMALIZE] == w.BATCH_NORMALIZER:
        for i in range(batch_size):
            least = min(least, ratios[i])
    else:
        if shares[0] > 0.0:
            least = a_0 * np.float64(smallest_leaf(words, runs[0], parts[0])) + b_0
        if number == 2 and shares[1] > 0.0:
            other = a_1 * np.float64(smallest_leaf(words, runs[1], parts[1])) + b_1
            least = min(least, other)
    for i in range(batch_size):
        ratios[i] /= least


@helper
def weigh(
    words: Any,
    reals: Any,
    runs: Any,
    parts: Any,
    shares: Any,
    number: Any,
    slots: Any,
    weights: Any,
) -> None:
    """Importance weights of the drawn rows."""
    batch_size = slots.shape[0]
    leaves = leaves_of(words)
    beta = schedule(words, reals, w.BETA_START)
    for i in range(batch_size):
        weights[i] = leaves[slots[i]]
    ratios = np.empty(batch_size, np.float64)
    if number == 1 and words[w.UNIFORM_SHARE] == 0:
        find_simple_ratios(words, runs[0], parts[0], weights, ratios)
    else:
        find_ratios(words, runs, parts, shares, number, slots, weights, ratios)
    powers(ratios, -beta, weights)
    clip = np.float32(reals[w.WEIGHT_CLIP])
    clipped = np.int64(0)
    for i in range(batch_size):
        clipped += np.int64(weights[i] > clip)
        weights[i] = min(weights[i], clip)
    words[w.CLIPPED_WEIGHTS] += clipped
