"""exp, the logistic function and tanh, written as LLVM instructions for a block of numbers.

All three use e**x = 2**n * e**s, with an integer n, and s between -ln(2)/2 and ln(2)/2. The same
code serves a single number and a block of them, so the last few elements of an array, which do not
fill a block, have the same bits. A block is four registers of 16 bytes, whose instructions overlap;
a loop that LLVM vectorises by itself takes 1.5 times as long.

LARGEST_ERRORS has their largest errors over every float32 number, as
`tests/backends/compiled/runtime/function_errors.py` prints them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from pareo.backends.compiled.runtime.jit import jit_strict, llvm_intrinsic

# In units in the last place, for results that are normal numbers. For smaller ones, exp and tanh
# are within one unit, and sigmoid may be 0.
LARGEST_ERRORS = {"exp": 1.1, "sigmoid": 2.5, "tanh": 2.7}
BLOCK = 64  # bytes


@dataclass(frozen=True)
class _Format:
    """Constants of a floating-point format."""

    kind: ir.Type
    whole: ir.IntType
    letter: str
    mantissa: int  # bits
    bias: int
    ln2: tuple[float, float]  # in two parts, so that subtracting a multiple of it is exact
    series: tuple[float, ...]  # e**s = 1 + s + s**2 * (the sum of series[k] * s**k), fitted
    exp_range: tuple[float, float]  # outside, e**x is zero or infinite
    logistic_range: float  # beyond, 2**n overflows, or is zero
    tanh_range: float  # beyond, tanh rounds to 1


SINGLE = _Format(
    ir.FloatType(), ir.IntType(32), "f32", 23, 127, (0.693359375, -2.12194440e-4),
    (0.49999994, 0.166665196, 0.0416684002, 0.00836885069, 0.00138143206),
    (-105.0, 89.0), 88.0, 9.1,
)  # fmt: skip
_DOUBLE = _Format(
    ir.DoubleType(), ir.IntType(64), "f64", 52, 1023,
    (6.93147180369123816490e-01, 1.90821492927058770002e-10),
    (0.5000000000000001, 0.16666666666666669, 0.04166666666662399, 0.008333333333330051,
     0.0013888888917281794, 0.00019841269863105968, 2.480152119021773e-05,
     2.7557268378684192e-06, 2.7620138719733994e-07, 2.5100424157005067e-08),
    (-746.0, 710.0), 709.0, 20.0,
)  # fmt: skip
FORMATS = {types.float32: SINGLE, types.float64: _DOUBLE}


class MathBuilder:
    """Emits arithmetic on one number (lanes = 0) or on a vector of them."""

    def __init__(self, builder: ir.IRBuilder, form: _Format, lanes: int) -> None:
        self.builder, self.form, self.lanes = builder, form, lanes
        self.kind = ir.VectorType(form.kind, lanes) if lanes else form.kind
        self.whole = ir.VectorType(form.whole, lanes) if lanes else form.whole
        self._suffix = f"v{lanes}{form.letter}" if lanes else form.letter

    def number(self, value: float) -> ir.Value:
        exact = float(np.float32(value)) if self.form is SINGLE else float(value)
        return ir.Constant(self.kind, [exact] * self.lanes if self.lanes else exact)

    def integer(self, value: int) -> ir.Value:
        return ir.Constant(self.whole, [value] * self.lanes if self.lanes else value)

    def call(self, name: str, *given: ir.Value) -> ir.Value:
        """Call an LLVM intrinsic."""
        full, module = f"llvm.{name}.{self._suffix}", self.builder.module
        kind = ir.FunctionType(self.kind, [self.kind] * len(given))
        return self.builder.call(module.globals.get(full) or ir.Function(module, kind, full), given)

    def clamp(self, x: ir.Value, low: float, high: float) -> ir.Value:
        """x clamped to bounds; NaN stays NaN."""
        return self.call("maximum", self.call("minimum", x, self.number(high)), self.number(low))

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a * b + c, rounded once."""
        return self.call("fma", a, b, c)

    def add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.fadd(a, b)

    def multiply(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.fmul(a, b)

    def reduced(self, x: ir.Value, times: float, shift: int) -> tuple[ir.Value, ir.Value]:
        """(n + shift in the lowest bits, s) with times * x = n * ln(2) + times * s."""
        # Added to a small number, this leaves the nearest integer in the lowest bits.
        rounder = self.number(1.5 * 2**self.form.mantissa + shift)
        high, low = self.form.ln2
        rounded = self.multiply_add(x, self.number(times / np.log(2)), rounder)
        n = self.builder.fsub(rounded, rounder)
        s = self.multiply_add(n, self.number(-high / times), x)
        s = self.multiply_add(n, self.number(-low / times), s)
        return self.builder.bitcast(rounded, self.whole), s

    def two_to(self, biased: ir.Value) -> ir.Value:
        """2**n, where the lowest bits are n + bias; 0 if they are 0."""
        bits = self.builder.shl(biased, self.integer(self.form.mantissa))
        return self.builder.bitcast(bits, self.kind)

    def exp_minus_one(self, s: ir.Value, times: float) -> ir.Value:
        """e**(times * s) - 1, with a relative error near 0 as small as that of s."""
        square = self.multiply(s, s)
        terms = [c * times ** (k + 2) for k, c in enumerate(self.form.series)]
        # In pairs, which do not depend on each other, from the highest down.
        total = None
        for k in reversed(range(0, len(terms), 2)):
            pair = self.number(terms[k])
            if k + 1 < len(terms):
                pair = self.multiply_add(s, self.number(terms[k + 1]), pair)
            total = pair if total is None else self.multiply_add(square, total, pair)
        return self.multiply_add(square, total, s if times == 1 else self.add(s, s))


def write_exponential(w: MathBuilder, x: ir.Value) -> ir.Value:
    bits, s = w.reduced(w.clamp(x, *w.form.exp_range), 1.0, 0)
    power = w.add(w.number(1), w.exp_minus_one(s, 1.0))
    # Two factors, because 2**n alone may overflow or underflow. The bits above the lowest 16 belong
    # to the rounder, and are shifted out.
    above = w.integer(w.form.whole.width - 16)
    n = w.builder.ashr(w.builder.shl(bits, above), above)
    half = w.builder.ashr(n, w.integer(1))
    bias = w.integer(w.form.bias)
    first = w.two_to(w.builder.add(half, bias))
    second = w.two_to(w.builder.add(w.builder.sub(n, half), bias))
    return w.multiply(w.multiply(power, first), second)


def write_logistic(w: MathBuilder, x: ir.Value) -> ir.Value:
    """e**x / (e**x + 1), which is accurate for both signs of x."""
    bound = w.form.logistic_range
    bits, s = w.reduced(w.clamp(x, -bound, bound), 1.0, w.form.bias)
    power = w.two_to(bits)
    whole = w.multiply_add(power, w.exp_minus_one(s, 1.0), power)
    return w.builder.fdiv(whole, w.add(whole, w.number(1)))


def _tanh(w: MathBuilder, x: ir.Value) -> ir.Value:
    """tanh(x) = m / (m + 2) with m = e**(2 * x) - 1, which is accurate near 0."""
    size = w.call("minimum", w.call("fabs", x), w.number(w.form.tanh_range))
    bits, s = w.reduced(size, 2.0, w.form.bias)
    power = w.two_to(bits)
    rest = w.builder.fsub(power, w.number(1))
    less = w.multiply_add(power, w.exp_minus_one(s, 2.0), rest)
    return w.call("copysign", w.builder.fdiv(less, w.add(less, w.number(2))), x)


def of_one(write: Callable[[MathBuilder, ir.Value], ir.Value]) -> Any:
    @llvm_intrinsic
    def one(typingctx, x):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            return write(MathBuilder(builder, FORMATS[signature.args[0]], 0), arguments[0])

        return x(x), generate

    return one


def of_block(write: Callable[[MathBuilder, ir.Value], ir.Value]) -> Any:
    @llvm_intrinsic
    def block(typingctx, out, a, start):  # type: ignore[no-untyped-def]
        """out[start : start + lanes] = the function of a; both flat, perhaps the same array."""

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            form = FORMATS[signature.args[1].dtype]
            size = form.whole.width // 8
            w = MathBuilder(builder, form, BLOCK // size)

            def place(which: int) -> Any:
                array = context.make_array(signature.args[which])(
                    context, builder, arguments[which]
                )
                first = builder.gep(array.data, [arguments[2]])
                return builder.bitcast(first, w.kind.as_pointer())

            x = builder.load(place(1), align=size)
            builder.store(write(w, x), place(0), align=size)
            return context.get_dummy_value()

        return types.void(out, a, start), generate

    return block


_exponential_one, exp_block = of_one(write_exponential), of_block(write_exponential)
_logistic_one, sigmoid_block = of_one(write_logistic), of_block(write_logistic)
_tanh_one, tanh_block = of_one(_tanh), of_block(_tanh)


# Separate functions, so that the callers' compiler options do not apply inside.
@jit_strict
def exponential(x: Any) -> Any:
    """e to the power of x."""
    return _exponential_one(x)


@jit_strict
def logistic(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return _logistic_one(x)


@jit_strict
def hyperbolic_tangent(x: Any) -> Any:
    """Hyperbolic tangent of x."""
    return _tanh_one(x)
