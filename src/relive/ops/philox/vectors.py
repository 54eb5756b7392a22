"""Eight blocks of Philox4x32-10 at once, with vector instructions on any processor.

Written as LLVM vectors of 64-bit numbers that hold 32 bits each, so that a product is one
instruction a vector.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

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


def _spread(builder: Any, value: Any) -> Any:
    """A number in every lane."""
    undefined = ir.Constant(VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.IntType(32)(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), BLOCKS), [0] * BLOCKS)
    return builder.shuffle_vector(first, undefined, lanes)


def _halves(builder: Any, value: Any) -> tuple[Any, Any]:
    """Low and high 32 bits of every lane."""
    return builder.and_(value, _constant(LOW)), builder.lshr(value, _constant(32))


def _block(builder: Any, seed: Any, counter: Any, stream: Any) -> list[Any]:
    """The four words of the blocks of `counter`, `counter` + 1 ...; one vector each."""
    keys = list(_halves(builder, _spread(builder, seed)))
    counters = builder.add(_spread(builder, counter), _constant(*range(BLOCKS)))
    words = [*_halves(builder, counters), _spread(builder, stream), _constant(0)]
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


def _store(builder: Any, address: Any, high: Any, low: Any) -> None:
    value = builder.or_(builder.shl(high, _constant(32)), low)
    builder.store(value, builder.inttoptr(address, VECTOR.as_pointer()), align=8)


@intrinsic
def eight_blocks(typing_context: Any, seed: Any, counter: Any, stream: Any, address: Any) -> Any:  # noqa: ARG001
    """Write eight 64-bit numbers to an address: the first two words of each block."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        seed, counter, stream, address = args
        words = _block(builder, seed, counter, stream)
        _store(builder, address, words[0], words[1])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), build


@intrinsic
def eight_other_words(
    typing_context: Any,  # noqa: ARG001
    seed: Any,  # noqa: ARG001
    counter: Any,  # noqa: ARG001
    stream: Any,  # noqa: ARG001
    address: Any,  # noqa: ARG001
) -> Any:
    """The same of the last two words of each block."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        seed, counter, stream, address = args
        words = _block(builder, seed, counter, stream)
        _store(builder, address, words[2], words[3])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), build
