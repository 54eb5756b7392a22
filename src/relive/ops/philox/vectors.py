"""Eight blocks of Philox4x32-10 at once, with vector instructions on any processor.

Written as LLVM vectors of 64-bit numbers that hold 32 bits each, so that a product is one
instruction a vector.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from relive.ops.vectors import spread

BLOCKS = 8
ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
KEY_STEPS = 0x9E3779B9, 0xBB67AE85
LOW = 0xFFFFFFFF

INT64 = ir.IntType(64)
VECTOR = ir.VectorType(INT64, BLOCKS)


def _constant(*numbers: int) -> Any:
    """The numbers, or one of them in every lane."""
    lanes = numbers * BLOCKS if len(numbers) == 1 else numbers
    return ir.Constant(VECTOR, [INT64(number) for number in lanes])


def _halves(builder: Any, value: Any) -> tuple[Any, Any]:
    """Low and high 32 bits of every lane."""
    return builder.and_(value, _constant(LOW)), builder.lshr(value, _constant(32))


def _block(builder: Any, seed: Any, counter: Any, stream: Any) -> list[Any]:
    """The four words of the blocks of `counter`, `counter` + 1 ...; one vector each."""
    keys = list(_halves(builder, spread(builder, seed, BLOCKS)))
    counters = builder.add(spread(builder, counter, BLOCKS), _constant(*range(BLOCKS)))
    words = [*_halves(builder, counters), spread(builder, stream, BLOCKS), _constant(0)]
    for _ in range(ROUNDS):
        low_0, high_0 = _halves(builder, builder.mul(words[0], _constant(MULTIPLIERS[0])))
        low_2, high_2 = _halves(builder, builder.mul(words[2], _constant(MULTIPLIERS[1])))
        words = [
            builder.xor(builder.xor(high_2, words[1]), keys[0]),
            low_2,
            builder.xor(builder.xor(high_0, words[3]), keys[1]),
            low_0,
        ]
        keys = [
            builder.and_(builder.add(key, _constant(step)), _constant(LOW))
            for key, step in zip(keys, KEY_STEPS, strict=True)
        ]
    return words


def _eight_numbers(high: int, low: int) -> Any:
    """Writes eight 64-bit numbers to an address: two of the words of each block."""

    @intrinsic
    def write(typing_context: Any, seed: Any, counter: Any, stream: Any, address: Any) -> Any:  # noqa: ARG001
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            words = _block(builder, *args[:3])
            value = builder.or_(builder.shl(words[high], _constant(32)), words[low])
            builder.store(value, builder.inttoptr(args[3], VECTOR.as_pointer()), align=8)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, types.int64), build

    return write


eight_numbers, eight_other_numbers = _eight_numbers(0, 1), _eight_numbers(2, 3)
