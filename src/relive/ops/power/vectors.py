"""x^y of many numbers at once, with vector instructions on any processor.

The polynomial of `reference.py`, term for term, as LLVM writes it: of one number or of a vector.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from relive.ops.power.reference import ATANH, EXP2, SQRT_2, TWO_OVER_LN_2
from relive.ops.vectors import spread

LANES = 32  # several vectors side by side: each step of one polynomial waits for the last
INT64, FLOAT64, FLOAT32 = ir.IntType(64), ir.DoubleType(), ir.FloatType()


class _Numbers:
    """Float64 numbers, one or a vector of them, and what LLVM does with them."""

    def __init__(self, builder: Any, lanes: int) -> None:
        self._lanes = lanes
        self.builder = builder
        self.integers, self.floats = self._several(INT64), self._several(FLOAT64)

    def _several(self, kind: Any) -> Any:
        return kind if self._lanes == 1 else ir.VectorType(kind, self._lanes)

    def whole(self, value: int) -> Any:
        """The same integer in every lane."""
        return ir.Constant(self.integers, value if self._lanes == 1 else [value] * self._lanes)

    def real(self, value: float) -> Any:
        """The same float in every lane."""
        return ir.Constant(self.floats, value if self._lanes == 1 else [value] * self._lanes)

    def spread(self, value: Any) -> Any:
        """A scalar in every lane."""
        return value if self._lanes == 1 else spread(self.builder, value, self._lanes)

    def floor(self, values: Any) -> Any:
        """The largest whole numbers not above them."""
        name = "llvm.floor.f64" if self._lanes == 1 else f"llvm.floor.v{self._lanes}f64"
        kind = ir.FunctionType(self.floats, [self.floats])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, [values])

    def larger(self, values: Any, least: float) -> Any:
        """They, or `least` where they are not above it."""
        above = self.builder.fcmp_ordered(">", values, self.real(least))
        return self.builder.select(above, values, self.real(least))

    def smaller(self, values: Any, most: float) -> Any:
        """They, or `most` where they are not below it."""
        below = self.builder.fcmp_ordered("<", values, self.real(most))
        return self.builder.select(below, values, self.real(most))

    def polynomial(self, coefficients: tuple[float, ...], x: Any) -> Any:
        """By Horner's rule, the highest power's coefficient first."""
        result = self.real(coefficients[0])
        for coefficient in coefficients[1:]:
            scaled = self.builder.fmul(result, x)
            result = self.builder.fadd(scaled, self.real(coefficient))
        return result


def _power(builder: Any, base: Any, exponent: Any, lanes: int) -> Any:
    """base^exponent, float64; base positive and normal."""
    n = _Numbers(builder, lanes)
    bits = builder.bitcast(base, n.integers)
    biased = builder.and_(builder.lshr(bits, n.whole(52)), n.whole(0x7FF))
    exponent_2 = builder.sub(biased, n.whole(1023))
    fraction = builder.and_(bits, n.whole((1 << 52) - 1))
    mantissa = builder.bitcast(builder.or_(fraction, n.whole(1023 << 52)), n.floats)  # in [1, 2)
    large = builder.fcmp_ordered(">", mantissa, n.real(SQRT_2))
    mantissa = builder.select(large, builder.fmul(mantissa, n.real(0.5)), mantissa)
    exponent_2 = builder.select(large, builder.add(exponent_2, n.whole(1)), exponent_2)
    below, above = builder.fsub(mantissa, n.real(1.0)), builder.fadd(mantissa, n.real(1.0))
    z = builder.fdiv(below, above)
    series = builder.fmul(z, n.polynomial(ATANH, builder.fmul(z, z)))
    log2 = builder.fadd(
        builder.sitofp(exponent_2, n.floats), builder.fmul(series, n.real(TWO_OVER_LN_2))
    )
    y = builder.fmul(n.spread(exponent), log2)
    whole = n.floor(builder.fadd(y, n.real(0.5)))
    series = n.polynomial(EXP2, builder.fsub(y, whole))
    held = builder.fptosi(n.smaller(n.larger(whole, -1022.0), 1023.0), n.integers)
    two = builder.shl(builder.add(held, n.whole(1023)), n.whole(52))
    return builder.fmul(series, builder.bitcast(two, n.floats))


@intrinsic
def power64(typing_context: Any, base: Any, exponent: Any) -> Any:  # noqa: ARG001
    """base^exponent as float64; base a positive normal float64."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        base, exponent = args
        return _power(builder, base, exponent, 1)

    return types.float64(types.float64, types.float64), build


@intrinsic
def many_powers(typing_context: Any, bases: Any, exponent: Any, powers: Any) -> Any:  # noqa: ARG001
    """LANES float64 at an address to an exponent, as float32 at another."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        several, rounded = ir.VectorType(FLOAT64, LANES), ir.VectorType(FLOAT32, LANES)
        base = builder.load(builder.inttoptr(args[0], several.as_pointer()), align=8)
        power = builder.fptrunc(_power(builder, base, args[1], LANES), rounded)
        builder.store(power, builder.inttoptr(args[2], rounded.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.float64, types.int64), build
