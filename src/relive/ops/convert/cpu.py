"""Reading floats that are stored in fewer bits, in Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

from relive.batch import CACHE_LINE
from relive.fields import FROM_FLOAT16, FROM_UINT8
from relive.ops.compiled import (
    byte_pointer,
    float32_pointer,
    helper,
    uint16_pointer,
    uint32_pointer,
)

LANES = 16  # floats of a cache line


def _unit_floats(past_caches: bool) -> Any:
    """16 bytes k to 16 floats k/255, as vectors; past the caches if a cache line is aligned."""

    @intrinsic
    def convert_line(typing_context: Any, target: Any, source: Any) -> Any:  # noqa: ARG001
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            floats = ir.VectorType(ir.FloatType(), LANES)
            stored = builder.load(
                builder.inttoptr(args[1], ir.VectorType(ir.IntType(8), LANES).as_pointer()), align=1
            )
            unit = ir.Constant(floats, [ir.Constant(ir.FloatType(), 255.0)] * LANES)
            values = builder.fdiv(builder.uitofp(stored, floats), unit)
            pointer = builder.inttoptr(args[0], floats.as_pointer())
            store = builder.store(values, pointer, align=CACHE_LINE if past_caches else 4)
            if past_caches:
                one = ir.Constant(ir.IntType(32), 1)
                store.set_metadata("nontemporal", builder.module.add_metadata([one]))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), build

    return convert_line


unit_floats, unit_floats_past_caches = _unit_floats(False), _unit_floats(True)


@helper
def from_uint8(target: Any, source: Any, count: Any, past_caches: Any) -> None:
    """k/255."""
    first = count - count % LANES
    if past_caches and target % CACHE_LINE == 0:
        for j in range(0, first, LANES):
            unit_floats_past_caches(target + 4 * j, source + j)
    else:
        for j in range(0, first, LANES):
            unit_floats(target + 4 * j, source + j)
    values = carray(float32_pointer(target), count)
    stored = carray(byte_pointer(source), count)
    for j in range(first, count):
        values[j] = np.float32(stored[j]) / np.float32(255)


@helper
def from_bfloat16(target: Any, source: Any, count: Any) -> None:
    """The upper half of a float32."""
    bits = carray(uint32_pointer(target), count)
    stored = carray(uint16_pointer(source), count)
    for j in range(count):
        bits[j] = np.uint32(stored[j]) << np.uint32(16)


@helper
def from_float16(target: Any, source: Any, count: Any) -> None:
    """Sign, 5 bits of exponent (bias 15 in place of 127), 10 of mantissa."""
    bits = carray(uint32_pointer(target), count)
    stored = carray(uint16_pointer(source), count)
    bias = np.uint32((127 - 15) << 23)
    for j in range(count):
        half = np.uint32(stored[j])
        magnitude = half & np.uint32(0x7FFF)
        normal = (magnitude << np.uint32(13)) + bias
        normal += bias if magnitude >= np.uint32(0x7C00) else np.uint32(0)  # infinity and NaN
        tiny = np.float32(np.float32(magnitude) * np.float32(2.0**-24)).view(np.uint32)
        value = tiny if magnitude < np.uint32(0x0400) else normal
        bits[j] = value | ((half & np.uint32(0x8000)) << np.uint32(16))


@helper
def convert(conversion: Any, target: Any, source: Any, nbytes: Any, past_caches: Any) -> None:
    """Write the float32 values of `nbytes` of what is stored.

    Args:
        past_caches: write straight to memory: for a batch that no cache holds, half the traffic.
    """
    if conversion == FROM_UINT8:
        from_uint8(target, source, nbytes, past_caches)
    elif conversion == FROM_FLOAT16:
        from_float16(target, source, nbytes // 2)
    else:
        from_bfloat16(target, source, nbytes // 2)
