"""x^y for kernels: the polynomial of `reference.py`, term for term."""

from __future__ import annotations

from typing import Any

import numpy as np

from relive.ops.compiled import helper
from relive.ops.power.reference import EXP2, SQRT_2, TWO_OVER_LN_2

E13, E12, E11, E10, E9, E8, E7, E6, E5, E4, E3, E2, E1, E0 = EXP2


@helper
def power64(base: Any, exponent: Any) -> Any:
    """The same as float64."""
    bits = np.float64(base).view(np.int64)
    exponent_2 = ((bits >> 52) & 0x7FF) - 1023
    mantissa = np.int64((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64)
    large = mantissa > SQRT_2  # selected, not branched on: so a loop over many can be vectorised
    mantissa = mantissa * 0.5 if large else mantissa
    exponent_2 = exponent_2 + 1 if large else exponent_2
    z = (mantissa - 1.0) / (mantissa + 1.0)
    s = z * z
    q = 1.0 / 17
    q = q * s + 1.0 / 15
    q = q * s + 1.0 / 13
    q = q * s + 1.0 / 11
    q = q * s + 1.0 / 9
    q = q * s + 1.0 / 7
    q = q * s + 1.0 / 5
    q = q * s + 1.0 / 3
    q = q * s + 1.0
    y = exponent * (np.float64(exponent_2) + (z * q) * TWO_OVER_LN_2)
    whole = np.floor(y + 0.5)
    f = y - whole
    whole = min(max(whole, -1022.0), 1023.0)
    r = E13
    r = r * f + E12
    r = r * f + E11
    r = r * f + E10
    r = r * f + E9
    r = r * f + E8
    r = r * f + E7
    r = r * f + E6
    r = r * f + E5
    r = r * f + E4
    r = r * f + E3
    r = r * f + E2
    r = r * f + E1
    r = r * f + E0
    return r * np.int64((np.int64(whole) + 1023) << 52).view(np.float64)


@helper
def power(base: Any, exponent: Any) -> Any:
    """base^exponent as float32; base a positive normal float64."""
    return np.float32(power64(base, exponent))


@helper
def power_of_two(exponent: Any) -> Any:
    """2^exponent as float64."""
    return np.int64((exponent + 1023) << 52).view(np.float64)
