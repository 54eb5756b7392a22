"""Helpers of the compiled kernels, made callable."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from relive.ops.compiled import multiply_high, words_at
from relive.ops.descent.cpu import descend
from relive.ops.philox.cpu import random_bits
from relive.ops.power.cpu import power
from relive.ops.power.cpu import powers as powers_of_many

strict = njit(error_model="numpy", fastmath=False)


@strict
def powers(bases: Any, exponent: float) -> Any:
    """float64 [K] -> float32 [K], many at once."""
    found = np.empty(len(bases), np.float32)
    powers_of_many(bases, exponent, found)
    return found


@strict
def powers_one_by_one(bases: Any, exponent: float) -> Any:
    """float64 [K] -> float32 [K]."""
    found = np.empty(len(bases), np.float32)
    for i in range(len(bases)):
        found[i] = power(bases[i], exponent)
    return found


@strict
def bits(seeds: Any, counters: Any, streams: Any) -> Any:
    """int64 [K] each -> uint64 [K]."""
    found = np.empty(len(seeds), np.uint64)
    for i in range(len(seeds)):
        found[i] = random_bits(seeds[i], counters[i], streams[i], 1, False)[0]
    return found


@strict
def all_below(bound: int, seed: int, counters: Any, stream: int) -> Any:
    """Random integers in [0, bound): int64 [K]."""
    found = np.empty(len(counters), np.int64)
    for i in range(len(counters)):
        bits_i = random_bits(seed, counters[i], stream, 1, False)[0]
        found[i] = np.int64(multiply_high(bits_i, np.uint64(bound)))
    return found


@strict
def slots(header: int, targets: Any, ascending: bool = False) -> Any:
    """The slots where masses lie: int64 [K] -> int64 [K]."""
    words, _ = words_at(header)
    found = np.empty(len(targets), np.int64)
    descend(words, targets.copy(), found, ascending)
    return found


@strict
def largest_below(bound: int) -> int:
    """The integer in [0, bound) that the largest 64-bit random number stands for."""
    return np.int64(multiply_high(np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(bound)))
