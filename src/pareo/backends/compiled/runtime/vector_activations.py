"""silu and gelu with their gradients, written as LLVM instructions for a block of numbers.

The normal distribution function is Phi(-t) = e**(-t**2 / 2) * p(z) / (t + c) for t >= 0, with a
polynomial p that was fitted to z = (t - c) / (t + c). It has a small relative error everywhere,
which 1 + erf(x) has not where erf(x) is close to -1.
"""

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from pareo.backends.compiled.runtime.jit import jit_strict, llvm_intrinsic
from pareo.backends.compiled.runtime.vector_math import (
    BLOCK,
    FORMATS,
    SINGLE,
    MathBuilder,
    of_block,
    of_one,
    write_exponential,
    write_logistic,
)

# The largest t, beyond which Phi(-t) is 0; c; and the coefficients of p.
_SINGLE_TAIL = (
    15.0,
    2.0,
    (0.6724079878118687, -0.3314044697022664, 0.028798704375856705, 0.03671959519152846,
     -0.00048652005414998343, -0.006740333219184491, -0.001876974436408794,
     0.0008609577916248548, 0.0006996680916178212, 4.6797207784479434e-05,
     -6.03299506618862e-05),
)  # fmt: skip
_DOUBLE_TAIL = (
    39.0,
    4.0,
    (0.7552851304157515, -0.6078966419718921, 0.38713740074221464, -0.18652185795965937,
     0.06039657489093021, -0.0075401889666598925, -0.0034796923672520807, 0.0016308184566235734,
     0.0001333443107426556, -0.00023109492751462497, -1.9082467362071698e-06,
     3.514464951429032e-05, 7.166136531522344e-07, -5.920063789109943e-06,
     -6.295418937455188e-07, 1.0213461276683075e-06, 2.7150648766883065e-07,
     -1.547220083448872e-07, -8.504053459156654e-08, 1.3120878268311953e-08,
     1.9346558330767474e-08, 1.964327680621976e-09, -2.416548080318925e-09,
     -7.268553477210606e-10, -1.4280763756154732e-11),
)  # fmt: skip
_DENSITY = 1 / math.sqrt(2 * math.pi)
# tanh's argument is _SLOPE * (x + _CUBE * x**3); beyond _FLAT, gelu's factor is 0 or 1.
_SLOPE, _CUBE, _FLAT = math.sqrt(2 / math.pi), 0.044715, 40.0


def _normal(w: MathBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Phi(x) and e**(-x**2 / 2)."""
    most, centre, terms = _SINGLE_TAIL if w.form is SINGLE else _DOUBLE_TAIL
    build = w.builder
    t = w.call("minimum", w.call("fabs", x), w.number(most))
    # The square in two parts: a rounding of it would be a large relative error of its power.
    square = w.multiply(t, t)
    rest = w.multiply_add(t, t, build.fneg(square))
    power = write_exponential(w, w.multiply(square, w.number(-0.5)))
    power = w.multiply_add(w.multiply(power, rest), w.number(-0.5), power)
    shifted = w.add(t, w.number(centre))
    z = build.fdiv(build.fsub(t, w.number(centre)), shifted)
    total = w.number(terms[-1])
    for term in reversed(terms[:-1]):
        total = w.multiply_add(total, z, w.number(term))
    tail = w.multiply(power, build.fdiv(total, shifted))
    below = build.fcmp_ordered("<", x, w.number(0))
    return build.select(below, tail, build.fsub(w.number(1), tail)), power


def _silu(w: MathBuilder, x: ir.Value) -> ir.Value:
    return w.multiply(x, write_logistic(w, x))


def _silu_gradient(w: MathBuilder, g: ir.Value, x: ir.Value) -> ir.Value:
    """g * s * (1 + x * (1 - s)), with s = the logistic function of x."""
    s = write_logistic(w, x)
    rest = w.builder.fsub(w.number(1), s)
    slope = w.multiply_add(w.multiply(s, rest), x, s)
    return w.multiply(g, slope)


def _gelu(w: MathBuilder, x: ir.Value) -> ir.Value:
    return w.multiply(x, _normal(w, x)[0])


def _gelu_gradient(w: MathBuilder, g: ir.Value, x: ir.Value) -> ir.Value:
    chance, power = _normal(w, x)
    return w.multiply(g, w.multiply_add(w.multiply(x, w.number(_DENSITY)), power, chance))


def _gelu_tanh_factor(w: MathBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(1 + tanh(a)) / 2, which is the logistic function of 2 a; and the derivative of 2 a."""
    near = w.clamp(x, -_FLAT, _FLAT)
    square = w.multiply(near, near)
    inner = w.multiply_add(square, w.number(2 * _SLOPE * _CUBE), w.number(2 * _SLOPE))
    slope = w.multiply_add(square, w.number(6 * _SLOPE * _CUBE), w.number(2 * _SLOPE))
    return write_logistic(w, w.multiply(near, inner)), slope


def _gelu_tanh(w: MathBuilder, x: ir.Value) -> ir.Value:
    return w.multiply(x, _gelu_tanh_factor(w, x)[0])


def _gelu_tanh_gradient(w: MathBuilder, g: ir.Value, x: ir.Value) -> ir.Value:
    s, slope = _gelu_tanh_factor(w, x)
    spread = w.multiply(w.multiply(s, w.builder.fsub(w.number(1), s)), slope)
    return w.multiply(g, w.multiply_add(spread, x, s))


_Write = Callable[[MathBuilder, ir.Value, ir.Value], ir.Value]


def _of_two(write: _Write) -> Any:
    @llvm_intrinsic
    def two(typingctx, g, x):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            return write(MathBuilder(builder, FORMATS[signature.args[1]], 0), *arguments)

        return x(g, x), generate

    return two


def _of_two_blocks(write: _Write) -> Any:
    @llvm_intrinsic
    def block(typingctx, out, g, a, start):  # type: ignore[no-untyped-def]
        """out[start : start + lanes] = the function of g and a; all flat, perhaps the same."""

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            form = FORMATS[signature.args[2].dtype]
            size = form.whole.width // 8
            w = MathBuilder(builder, form, BLOCK // size)

            def place(which: int) -> Any:
                array = context.make_array(signature.args[which])(
                    context, builder, arguments[which]
                )
                first = builder.gep(array.data, [arguments[3]])
                return builder.bitcast(first, w.kind.as_pointer())

            g, x = builder.load(place(1), align=size), builder.load(place(2), align=size)
            builder.store(write(w, g, x), place(0), align=size)
            return context.get_dummy_value()

        return types.void(out, g, a, start), generate

    return block


_silu_one, silu_block = of_one(_silu), of_block(_silu)
_gelu_one, gelu_block = of_one(_gelu), of_block(_gelu)
_gelu_tanh_one, gelu_tanh_block = of_one(_gelu_tanh), of_block(_gelu_tanh)
_silu_gradient_one = _of_two(_silu_gradient)
_gelu_gradient_one = _of_two(_gelu_gradient)
_gelu_tanh_gradient_one = _of_two(_gelu_tanh_gradient)
silu_gradient_block = _of_two_blocks(_silu_gradient)
gelu_gradient_block = _of_two_blocks(_gelu_gradient)
gelu_tanh_gradient_block = _of_two_blocks(_gelu_tanh_gradient)


# Separate functions, so that the callers' compiler options do not apply inside.
@jit_strict
def silu_of(x: Any) -> Any:
    """x times its logistic function."""
    return _silu_one(x)


@jit_strict
def gelu_of(x: Any) -> Any:
    """x times the normal distribution function of x."""
    return _gelu_one(x)


@jit_strict
def gelu_tanh_of(x: Any) -> Any:
    """gelu's approximation by tanh."""
    return _gelu_tanh_one(x)


@jit_strict
def silu_gradient_of(g: Any, x: Any) -> Any:
    """g times the derivative of silu."""
    return _silu_gradient_one(g, x)


@jit_strict
def gelu_gradient_of(g: Any, x: Any) -> Any:
    """g times the derivative of gelu."""
    return _gelu_gradient_one(g, x)


@jit_strict
def gelu_tanh_gradient_of(g: Any, x: Any) -> Any:
    """g times the derivative of gelu's approximation."""
    return _gelu_tanh_gradient_one(g, x)
