"""Finding a draw's child among the siblings of a node with vector instructions, on any processor.

A node's 8 sums, or 16 leaves, are one cache line and one vector. Its inclusive prefix sums take
log2 n shuffles; the child is the number of them that are not above the target. Written as LLVM
vectors, which LLVM makes into AVX-512, AVX2, SSE or NEON.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from relive.ops import words as w
from relive.ops.vectors import INDEX, repeat, spread

INT64, FLOAT32 = ir.IntType(64), ir.FloatType()
CHILDREN, LEAVES = 1 << w.NODE_BITS, 1 << w.LEAF_BITS


def _load(builder: Any, address: Any, kind: Any, lanes: int) -> Any:
    pointer = builder.inttoptr(address, ir.VectorType(kind, lanes).as_pointer())
    return builder.load(pointer, align=4)


def _prefix_sums(builder: Any, values: Any, lanes: int) -> Any:
    """Inclusive: lane i holds the sum of lanes 0..i."""
    zeros, shift = repeat(INT64, lanes, 0), 1
    while shift < lanes:  # lane i of the shuffle is lane i - shift, or a zero
        pick = [lanes if lane < shift else lane - shift for lane in range(lanes)]
        order = ir.Constant(ir.VectorType(INDEX, lanes), [INDEX(lane) for lane in pick])
        values = builder.add(values, builder.shuffle_vector(values, zeros, order))
        shift *= 2
    return values


def _count_passed(builder: Any, prefix: Any, target: Any, lanes: int) -> Any:
    """How many prefix sums are not above the target; less than all of them."""
    bits = ir.IntType(lanes)
    passed = builder.icmp_signed("<=", prefix, spread(builder, target, lanes))
    mask = builder.and_(builder.bitcast(passed, bits), ir.Constant(bits, (1 << (lanes - 1)) - 1))
    kind = ir.FunctionType(bits, [bits])
    count = cgutils.get_or_insert_function(builder.module, kind, f"llvm.ctpop.i{lanes}")
    return builder.zext(builder.call(count, [mask]), INT64)


def _masses(builder: Any, leaves: Any, unit: Any, lanes: int) -> Any:
    """trunc(leaf * unit), at least 1 where a leaf is positive."""
    scaled = builder.fmul(leaves, spread(builder, unit, lanes))
    mass = builder.fptosi(scaled, ir.VectorType(INT64, lanes))
    positive = builder.fcmp_ordered(">", leaves, repeat(FLOAT32, lanes, 0.0))
    least = builder.zext(positive, ir.VectorType(INT64, lanes))
    return builder.select(builder.icmp_signed(">", mass, least), mass, least)


@intrinsic
def find_child(typing_context: Any, address: Any, target: Any) -> Any:  # noqa: ARG001
    """(child, target less the mass before it) among the 8 sums at an address."""
    result = types.UniTuple(types.int64, 2)

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sums = _load(builder, args[0], INT64, CHILDREN)
        prefix = _prefix_sums(builder, sums, CHILDREN)
        child = _count_passed(builder, prefix, args[1], CHILDREN)
        before = builder.extract_element(builder.sub(prefix, sums), builder.trunc(child, INDEX))
        return context.make_tuple(
            builder, signature.return_type, [child, builder.sub(args[1], before)]
        )

    return result(types.int64, types.int64), build


@intrinsic
def find_leaf(typing_context: Any, address: Any, unit: Any, target: Any) -> Any:  # noqa: ARG001
    """Which of the 16 leaves at an address holds the target."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        leaves = _load(builder, args[0], FLOAT32, LEAVES)
        masses = _masses(builder, leaves, args[1], LEAVES)
        return _count_passed(builder, _prefix_sums(builder, masses, LEAVES), args[2], LEAVES)

    return types.int64(types.int64, types.float32, types.int64), build


@intrinsic
def sum_leaves(typing_context: Any, address: Any, unit: Any) -> Any:  # noqa: ARG001
    """Mass of the 16 leaves at an address."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        masses = _masses(builder, _load(builder, args[0], FLOAT32, LEAVES), args[1], LEAVES)
        kind = ir.FunctionType(INT64, [masses.type])
        reduce = cgutils.get_or_insert_function(
            builder.module, kind, f"llvm.vector.reduce.add.v{LEAVES}i64"
        )
        return builder.call(reduce, [masses])

    return types.int64(types.int64, types.float32), build
