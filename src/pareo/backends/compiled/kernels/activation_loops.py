"""Loops of the newer activations over flat arrays, like those of `elementwise_loops`.

`numbers` are the attributes: one slope, or a lower and an upper limit. silu and gelu go block by
block; the others have a second loop for a result in place.
"""

from pareo.array import Array
from pareo.backends.compiled.runtime.jit import jit, jit_strict
from pareo.backends.compiled.runtime.vector_activations import (
    gelu_block,
    gelu_gradient_block,
    gelu_gradient_of,
    gelu_of,
    gelu_tanh_block,
    gelu_tanh_gradient_block,
    gelu_tanh_gradient_of,
    gelu_tanh_of,
    silu_block,
    silu_gradient_block,
    silu_gradient_of,
    silu_of,
)
from pareo.backends.compiled.runtime.vector_math import BLOCK


@jit_strict
def silu(out: Array, a: Array) -> None:
    lanes = BLOCK // a.itemsize
    whole = a.size - a.size % lanes
    for i in range(0, whole, lanes):
        silu_block(out, a, i)
    for i in range(whole, a.size):
        out[i] = silu_of(a[i])


@jit_strict
def silu_in_place(a: Array) -> None:
    silu(a, a)


@jit_strict
def gelu(out: Array, a: Array) -> None:
    lanes = BLOCK // a.itemsize
    whole = a.size - a.size % lanes
    for i in range(0, whole, lanes):
        gelu_block(out, a, i)
    for i in range(whole, a.size):
        out[i] = gelu_of(a[i])


@jit_strict
def gelu_in_place(a: Array) -> None:
    gelu(a, a)


@jit_strict
def gelu_tanh(out: Array, a: Array) -> None:
    lanes = BLOCK // a.itemsize
    whole = a.size - a.size % lanes
    for i in range(0, whole, lanes):
        gelu_tanh_block(out, a, i)
    for i in range(whole, a.size):
        out[i] = gelu_tanh_of(a[i])


@jit_strict
def gelu_tanh_in_place(a: Array) -> None:
    gelu_tanh(a, a)


@jit_strict
def silu_gradient(out: Array, g: Array, a: Array) -> None:
    lanes = BLOCK // a.itemsize
    whole = a.size - a.size % lanes
    for i in range(0, whole, lanes):
        silu_gradient_block(out, g, a, i)
    for i in range(whole, a.size):
        out[i] = silu_gradient_of(g[i], a[i])


@jit_strict
def silu_gradient_in_place(g: Array, a: Array) -> None:
    silu_gradient(g, g, a)


@jit_strict
def gelu_gradient(out: Array, g: Array, a: Array) -> None:
    lanes = BLOCK // a.itemsize
    whole = a.size - a.size % lanes
    for i in range(0, whole, lanes):
        gelu_gradient_block(out, g, a, i)
    for i in range(whole, a.size):
        out[i] = gelu_gradient_of(g[i], a[i])


@jit_strict
def gelu_gradient_in_place(g: Array, a: Array) -> None:
    gelu_gradient(g, g, a)


@jit_strict
def gelu_tanh_gradient(out: Array, g: Array, a: Array) -> None:
    lanes = BLOCK // a.itemsize
    whole = a.size - a.size % lanes
    for i in range(0, whole, lanes):
        gelu_tanh_gradient_block(out, g, a, i)
    for i in range(whole, a.size):
        out[i] = gelu_tanh_gradient_of(g[i], a[i])


@jit_strict
def gelu_tanh_gradient_in_place(g: Array, a: Array) -> None:
    gelu_tanh_gradient(g, g, a)


@jit
def _hard_sigmoid(x: float, kind: Array) -> float:
    y = (x + kind.dtype.type(3)) / kind.dtype.type(6)
    y = kind.dtype.type(0) if y < 0 else y
    return kind.dtype.type(1) if y > 1 else y


@jit
def hard_sigmoid(out: Array, a: Array) -> None:
    for i in range(a.size):
        out[i] = _hard_sigmoid(a[i], a)


@jit
def hard_sigmoid_in_place(a: Array) -> None:
    for i in range(a.size):
        a[i] = _hard_sigmoid(a[i], a)


@jit
def hard_swish(out: Array, a: Array) -> None:
    for i in range(a.size):
        out[i] = a[i] * _hard_sigmoid(a[i], a)


@jit
def hard_swish_in_place(a: Array) -> None:
    for i in range(a.size):
        a[i] = a[i] * _hard_sigmoid(a[i], a)


@jit
def hard_sigmoid_gradient(out: Array, g: Array, a: Array) -> None:
    for i in range(a.size):
        given = g[i] / g.dtype.type(6)  # read unconditionally, so that the loop is vectorised
        out[i] = given if -3 < a[i] < 3 else g.dtype.type(0)


@jit
def hard_sigmoid_gradient_in_place(g: Array, a: Array) -> None:
    for i in range(a.size):
        given = g[i] / g.dtype.type(6)
        g[i] = given if -3 < a[i] < 3 else g.dtype.type(0)


@jit
def _hard_swish_gradient(g: float, x: float, kind: Array) -> float:
    slope = x / kind.dtype.type(3) + kind.dtype.type(0.5)
    bent = kind.dtype.type(0) if x <= -3 else g * slope
    return g if x >= 3 else bent


@jit
def hard_swish_gradient(out: Array, g: Array, a: Array) -> None:
    for i in range(a.size):
        out[i] = _hard_swish_gradient(g[i], a[i], a)


@jit
def hard_swish_gradient_in_place(g: Array, a: Array) -> None:
    for i in range(a.size):
        g[i] = _hard_swish_gradient(g[i], a[i], a)


@jit
def leaky_relu(out: Array, a: Array, numbers: Array) -> None:
    slope = numbers[0]
    for i in range(a.size):
        out[i] = a[i] if a[i] > 0 else slope * a[i]


@jit
def leaky_relu_in_place(a: Array, numbers: Array) -> None:
    slope = numbers[0]
    for i in range(a.size):
        a[i] = a[i] if a[i] > 0 else slope * a[i]


@jit
def leaky_relu_gradient(out: Array, g: Array, a: Array, numbers: Array) -> None:
    slope = numbers[0]
    for i in range(a.size):
        given = g[i]
        out[i] = given if a[i] > 0 else slope * given


@jit
def leaky_relu_gradient_in_place(g: Array, a: Array, numbers: Array) -> None:
    slope = numbers[0]
    for i in range(a.size):
        given = g[i]
        g[i] = given if a[i] > 0 else slope * given


@jit
def clip(out: Array, a: Array, numbers: Array) -> None:
    low, high = numbers[0], numbers[1]
    for i in range(a.size):
        x = low if a[i] < low else a[i]
        out[i] = high if x > high else x


@jit
def clip_in_place(a: Array, numbers: Array) -> None:
    low, high = numbers[0], numbers[1]
    for i in range(a.size):
        x = low if a[i] < low else a[i]
        a[i] = high if x > high else x


@jit
def clip_gradient(out: Array, g: Array, a: Array, numbers: Array) -> None:
    low, high = numbers[0], numbers[1]
    for i in range(a.size):
        given = g[i]
        out[i] = given if low < a[i] < high else g.dtype.type(0)


@jit
def clip_gradient_in_place(g: Array, a: Array, numbers: Array) -> None:
    low, high = numbers[0], numbers[1]
    for i in range(a.size):
        given = g[i]
        g[i] = given if low < a[i] < high else g.dtype.type(0)
