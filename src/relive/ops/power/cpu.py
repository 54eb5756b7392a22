"""x^y for kernels, in Numba: one number, and many."""

from __future__ import annotations

from typing import Any

import numpy as np

from relive.ops.compiled import helper
from relive.ops.power.vectors import LANES, many_powers, power64

__all__ = ["power", "power64", "power_of_two", "powers"]


@helper
def power(base: Any, exponent: Any) -> Any:
    """base^exponent as float32; base a positive normal float64."""
    return np.float32(power64(base, exponent))


@helper
def powers(bases: Any, exponent: Any, results: Any) -> None:
    """The same of contiguous float64 [B], into contiguous float32 [B]."""
    count = bases.shape[0]
    whole = count - count % LANES
    source, target = np.int64(bases.ctypes.data), np.int64(results.ctypes.data)
    for i in range(0, whole, LANES):
        many_powers(source + 8 * i, exponent, target + 4 * i)
    for i in range(whole, count):
        results[i] = power(bases[i], exponent)


@helper
def power_of_two(exponent: Any) -> Any:
    """2^exponent as float64."""
    return np.int64((exponent + 1023) << 52).view(np.float64)
