"""x^y with the same bits on every backend: float64 additions, multiplications and divisions only.

    x = m 2^e, m in (sqrt(1/2), sqrt(2)]       log2 x = e + 2/ln 2 * atanh(z),  z = (m - 1)/(m + 1)
    x^y = 2^n 2^f,  n = floor(y log2 x + 1/2)  2^f by the Taylor series of exp(f ln 2)

Eight terms of atanh and thirteen of exp leave a relative error below 1e-14, so the float32 result
is correctly rounded but for rare ties.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

SQRT_2 = 1.4142135623730951
TWO_OVER_LN_2 = 2.8853900817779268
ATANH = tuple(1.0 / k for k in (17, 15, 13, 11, 9, 7, 5, 3, 1))
EXP2 = tuple(math.log(2) ** k / math.factorial(k) for k in range(13, -1, -1))


def power(base: Tensor, exponent: float) -> Tensor:
    """base^exponent, element by element, rounded once more.

    Args:
        base: float64 [*], positive and finite.
        exponent: any finite number. A result below 2^-1022 counts as about that, one above 2^1023
            as about that.

    Returns:
        float32 [*].
    """
    return power64(base, exponent).to(torch.float32)


def power64(base: Tensor, exponent: float) -> Tensor:
    """The same as float64 [*]."""
    mantissa, exponent_2 = torch.frexp(base)  # mantissa in [1/2, 1)
    mantissa, exponent_2 = mantissa * 2.0, exponent_2 - 1
    large = mantissa > SQRT_2
    mantissa = torch.where(large, mantissa * 0.5, mantissa)
    exponent_2 = torch.where(large, exponent_2 + 1, exponent_2)
    z = (mantissa - 1.0) / (mantissa + 1.0)
    square = z * z
    series = torch.full_like(z, ATANH[0])
    for coefficient in ATANH[1:]:
        series = series * square + coefficient
    log2 = exponent_2.to(torch.float64) + (z * series) * TWO_OVER_LN_2
    y = exponent * log2
    whole = torch.floor(y + 0.5)
    fraction = y - whole
    series = torch.full_like(z, EXP2[0])
    for coefficient in EXP2[1:]:
        series = series * fraction + coefficient
    return torch.ldexp(series, whole.clamp(-1022, 1023).to(torch.int32))
