"""Reading floats that are stored in fewer bits, for Triton kernels: the bits of `reference.py`."""

from __future__ import annotations

import triton
import triton.language as tl

from relive.fields import FROM_FLOAT16, FROM_UINT8

UINT8, FLOAT16 = tl.constexpr(FROM_UINT8), tl.constexpr(FROM_FLOAT16)
# 1/255 = 257/65536 + 1/(255 65536): the first product is exact, and of k = 0...255 the sum is the
# float32 nearest to k/255. Three operations, where an exact division takes some twenty.
HEAD, TAIL = tl.constexpr(257 / 65536), tl.constexpr(1 / (255 * 65536))


@triton.jit
def from_uint8(stored):
    """k/255, float32 [*]."""
    k = stored.to(tl.float32)
    return k * HEAD + k * TAIL


@triton.jit
def from_bfloat16(stored):
    """The upper half of a float32; uint16 [*] -> float32 [*]."""
    return (stored.to(tl.uint32) << 16).to(tl.float32, bitcast=True)


@triton.jit
def from_float16(stored):
    """Sign, 5 bits of exponent (bias 15 in place of 127), 10 of mantissa; uint16 [*] -> float32."""
    half = stored.to(tl.uint32)
    magnitude = half & 0x7FFF
    bias: tl.constexpr = (127 - 15) << 23
    normal = (magnitude << 13) + bias
    normal = tl.where(magnitude >= 0x7C00, normal + bias, normal)  # infinity and NaN
    tiny = (magnitude.to(tl.float32) * 2.0**-24).to(tl.uint32, bitcast=True)
    value = tl.where(magnitude < 0x0400, tiny, normal)
    return (value | ((half & 0x8000) << 16)).to(tl.float32, bitcast=True)


@triton.jit
def decode(stored, CONVERSION: tl.constexpr):
    """The float32 values of what is stored: uint8 or uint16 [*]."""
    if CONVERSION == UINT8:
        return from_uint8(stored)
    elif CONVERSION == FLOAT16:  # noqa: RET505 - both branches are compiled alike
        return from_float16(stored)
    else:
        return from_bfloat16(stored)
