"""Vectors of LLVM, for kernels that are written in its instructions: they run on any processor."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

INDEX = ir.IntType(32)


def repeat(kind: Any, lanes: int, value: Any) -> Any:
    """A constant in every lane."""
    return ir.Constant(ir.VectorType(kind, lanes), [ir.Constant(kind, value)] * lanes)


def spread(builder: Any, value: Any, lanes: int) -> Any:
    """A scalar in every lane."""
    undefined = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, value, INDEX(0))
    return builder.shuffle_vector(first, undefined, repeat(INDEX, lanes, 0))
