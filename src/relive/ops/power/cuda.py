"""x^y for Triton kernels: the polynomial of `reference.py`, term for term."""

from __future__ import annotations

import triton
import triton.language as tl

from relive.ops.power.reference import ATANH, EXP2, SQRT_2, TWO_OVER_LN_2

FRACTION = tl.constexpr((1 << 52) - 1)
SQUARE_ROOT, TWO_OVER_LN2 = tl.constexpr(SQRT_2), tl.constexpr(TWO_OVER_LN_2)
ATANH_TERMS, EXP2_TERMS = tl.constexpr(ATANH), tl.constexpr(EXP2)
NUM_ATANH, NUM_EXP2 = tl.constexpr(len(ATANH)), tl.constexpr(len(EXP2))


@triton.jit
def power_of_two(exponent):
    """2^exponent as float64 [*], of an integer in [-1022, 1023]."""
    return ((exponent.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit
def power64(base, exponent):
    """base^exponent, float64 [*]; see `power.reference`.

    Args:
        base: float64 [*], positive, finite and normal.
        exponent: float64.
    """
    bits = base.to(tl.int64, bitcast=True)
    exponent_2 = (bits >> 52) - 1023
    mantissa = ((bits & FRACTION) | (1023 << 52)).to(tl.float64, bitcast=True)  # in [1, 2)
    large = mantissa > SQUARE_ROOT
    mantissa = tl.where(large, mantissa * 0.5, mantissa)
    exponent_2 = tl.where(large, exponent_2 + 1, exponent_2)
    z = (mantissa - 1.0) / (mantissa + 1.0)
    square = z * z
    series = tl.zeros_like(z) + ATANH_TERMS[0]
    for k in tl.static_range(1, NUM_ATANH):
        series = series * square + ATANH_TERMS[k]
    log2 = exponent_2.to(tl.float64) + (z * series) * TWO_OVER_LN2
    y = exponent * log2
    whole = tl.floor(y + 0.5)
    fraction = y - whole
    whole = tl.minimum(tl.maximum(whole, -1022.0), 1023.0)
    series = tl.zeros_like(z) + EXP2_TERMS[0]
    for k in tl.static_range(1, NUM_EXP2):
        series = series * fraction + EXP2_TERMS[k]
    return series * power_of_two(whole.to(tl.int64))


@triton.jit
def power(base, exponent):
    """The same, rounded to float32."""
    return power64(base, exponent).to(tl.float32)
