"""The activations of newer networks, element by element."""

import math
from typing import Any

import numpy as np

from pareo.backends.sequential.numbers import at, backend, exp, larger, smaller
from pareo.operators.activation import CUBE, DENSITY, HALF_ROOT, TWICE


@backend.kernel(in_place=True)
def gelu(out: Any, a: Any, *, approximate: bool) -> None:
    for i in np.ndindex(out.shape):
        value = at(a, i)
        if approximate:  # (1 + tanh(u)) / 2 is 1 / (1 + exp(-2 u))
            twice = value * (TWICE + TWICE * CUBE * (value * value))
            out[i] = value / (1 + exp(-twice))
        else:
            out[i] = value * 0.5 * math.erfc(-value * HALF_ROOT)


@backend.kernel(in_place=True)
def gelu_gradient(out: Any, g: Any, a: Any, *, approximate: bool) -> None:
    for i in np.ndindex(out.shape):
        value = at(a, i)
        square = value * value
        if approximate:
            share = 1 / (1 + exp(-value * (TWICE + TWICE * CUBE * square)))
            slope = TWICE + 3 * TWICE * CUBE * square
            out[i] = at(g, i) * (share + value * share * (1 - share) * slope)
        else:
            share = 0.5 * math.erfc(-value * HALF_ROOT)
            out[i] = at(g, i) * (share + value * (DENSITY * exp(-0.5 * square)))


@backend.kernel(in_place=True)
def silu(out: Any, a: Any) -> None:
    for i in np.ndindex(out.shape):
        out[i] = at(a, i) / (1 + exp(-at(a, i)))


@backend.kernel(in_place=True)
def silu_gradient(out: Any, g: Any, a: Any) -> None:
    for i in np.ndindex(out.shape):
        share = 1 / (1 + exp(-at(a, i)))
        out[i] = at(g, i) * (share * (1 + at(a, i) * (1 - share)))


@backend.kernel(in_place=True)
def hard_sigmoid(out: Any, a: Any) -> None:
    for i in np.ndindex(out.shape):
        out[i] = smaller(larger(at(a, i) + 3, 0.0), 6.0) / 6


@backend.kernel(in_place=True)
def hard_sigmoid_gradient(out: Any, g: Any, a: Any) -> None:
    for i in np.ndindex(out.shape):
        share = at(g, i) / 6
        above, below = at(a, i) > -3, at(a, i) < 3
        out[i] = share if above and below else 0.0


@backend.kernel(in_place=True)
def hard_swish(out: Any, a: Any) -> None:
    for i in np.ndindex(out.shape):
        out[i] = at(a, i) * (smaller(larger(at(a, i) + 3, 0.0), 6.0) / 6)


@backend.kernel(in_place=True)
def hard_swish_gradient(out: Any, g: Any, a: Any) -> None:
    for i in np.ndindex(out.shape):
        error = at(g, i)
        between = error * (at(a, i) / 3 + 0.5)
        low, high = at(a, i) <= -3, at(a, i) >= 3
        out[i] = 0.0 if low else error if high else between


def rounded(out: Any, number: float) -> float:
    """An attribute in the precision of the result, as every device has it."""
    return float(out.dtype.type(number))


@backend.kernel(in_place=True)
def leaky_relu(out: Any, a: Any, *, slope: float) -> None:
    factor = rounded(out, slope)
    for i in np.ndindex(out.shape):
        value = at(a, i)
        sloped = factor * value
        out[i] = value if value > 0 else sloped


@backend.kernel(in_place=True)
def leaky_relu_gradient(out: Any, g: Any, a: Any, *, slope: float) -> None:
    factor = rounded(out, slope)
    for i in np.ndindex(out.shape):
        error = at(g, i)
        sloped = factor * error
        out[i] = error if at(a, i) > 0 else sloped


@backend.kernel(in_place=True)
def clip(out: Any, a: Any, *, low: float, high: float) -> None:
    lowest, highest = rounded(out, low), rounded(out, high)
    for i in np.ndindex(out.shape):
        out[i] = smaller(larger(at(a, i), lowest), highest)


@backend.kernel(in_place=True)
def clip_gradient(out: Any, g: Any, a: Any, *, low: float, high: float) -> None:
    lowest, highest = rounded(out, low), rounded(out, high)
    for i in np.ndindex(out.shape):
        error = at(g, i)
        above, below = at(a, i) > lowest, at(a, i) < highest
        out[i] = error if above and below else 0.0
