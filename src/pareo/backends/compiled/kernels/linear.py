"""Matrix products with bias and activation, and kernels that change shapes."""

from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.kernels.activations import NONE, RELU, SIGMOID, TANH
from pareo.backends.compiled.kernels.matmul import matmul, subtract_product
from pareo.backends.compiled.kernels.reduction import ROWS
from pareo.backends.compiled.runtime.arrays import add_parts, copy, fill
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import split, split_numbered, workers
from pareo.backends.compiled.runtime.vector_math import hyperbolic_tangent, logistic
from pareo.spec import Spec

kernel = backend.kernel


@kernel(replayable=True)
def dot(out: Array, a: Array, b: Array) -> None:
    matmul(out, a, b)


@kernel(replayable=True)
def transpose(out: Array, a: Array, axes: tuple[int, ...]) -> None:
    copy(out, a.transpose(axes))


@kernel(replayable=True)
def reshape(out: Array, a: Array, shape: tuple[int, ...]) -> None:
    copy(out.reshape(a.shape), a)


@kernel(replayable=True)
def concat(out: Array, *arrays: Array, axis: int) -> None:
    start = 0
    for array in arrays:
        stop = start + array.shape[axis]
        copy(out[(slice(None),) * axis + (slice(start, stop),)], array)
        start = stop


@kernel(replayable=True)
def part(out: Array, a: Array, axis: int, between: tuple[int, int]) -> None:
    copy(out, a[(slice(None),) * axis + (slice(*between),)])


@kernel(replayable=True)
def part_gradient(out: Array, g: Array, axis: int, between: tuple[int, int], size: int) -> None:
    fill(out, 0)
    copy(out[(slice(None),) * axis + (slice(*between),)], g)


@kernel(replayable=True)
def pad(out: Array, a: Array, widths: tuple[tuple[int, int], ...], value: float) -> None:
    fill(out, value)
    inside = [slice(low, low + n) for (low, _), n in zip(widths, a.shape, strict=True)]
    copy(out[(*inside, ...)], a)


@kernel(replayable=True)
def split_(out: Array | tuple[Array, ...], a: Array, sizes: tuple[int, ...], axis: int) -> None:
    start = 0
    for target, size in zip(out if isinstance(out, tuple) else (out,), sizes, strict=True):
        copy(target, a[(slice(None),) * axis + (slice(start, start + size),)])
        start += size


@jit
def bias_activation_planes(out: Array, a: Array, b: Array, activation: int) -> None:
    """out[n, c, :] = activation(a[n, c, :] + b[c]), after a convolution."""
    for n in range(a.shape[0]):
        for c in range(a.shape[1]):
            bias = b[c]
            if activation == SIGMOID:
                for i in range(a.shape[2]):
                    out[n, c, i] = logistic(a[n, c, i] + bias)
            elif activation == TANH:
                for i in range(a.shape[2]):
                    out[n, c, i] = hyperbolic_tangent(a[n, c, i] + bias)
            elif activation == RELU:
                for i in range(a.shape[2]):
                    z = a[n, c, i] + bias
                    out[n, c, i] = a.dtype.type(0) if z <= 0 else z
            else:
                for i in range(a.shape[2]):
                    out[n, c, i] = a[n, c, i] + bias


@jit
def _bias_activation_rows(out: Array, a: Array, b: Array, activation: int) -> None:
    """out[n, :] = activation(a[n, :] + b)."""
    for n in range(a.shape[0]):
        if activation == SIGMOID:
            for i in range(a.shape[1]):
                out[n, i] = logistic(a[n, i] + b[i])
        elif activation == TANH:
            for i in range(a.shape[1]):
                out[n, i] = hyperbolic_tangent(a[n, i] + b[i])
        elif activation == RELU:
            for i in range(a.shape[1]):
                z = a[n, i] + b[i]
                out[n, i] = a.dtype.type(0) if z <= 0 else z
        else:
            for i in range(a.shape[1]):
                out[n, i] = a[n, i] + b[i]


def bias_activation(out: Array, a: Array, b: Array, activation: int) -> None:
    """Add biases and apply an activation, on (N, features) or (N, C, H, W), in all threads."""
    if a.ndim == 4:
        planes = (*a.shape[:2], a.shape[2] * a.shape[3])
        a, out, loop = a.reshape(planes), out.reshape(planes), bias_activation_planes
    else:
        loop = _bias_activation_rows
    least = max(1, GRAIN * a.shape[0] // max(1, 2 * a.size))
    split(lambda lo, hi: loop(out[lo:hi], a[lo:hi], b, activation), a.shape[0], least)


@kernel(in_place=True, strided=False, replayable=True)
def add_bias(out: Array, a: Array, b: Array) -> None:
    bias_activation(out, a, b, NONE)


def _dense(out: Array, x: Array, w: Array, b: Array, activation: int) -> None:
    matmul(out, x, w)
    bias_activation(out, out, b, activation)


def _matrices(out: Spec, x: Spec, w: Spec, b: Spec) -> bool:
    return x.ndim == 2 == w.ndim


_with_bias: dict[str, Any] = {"when": _matrices, "replayable": True}


@backend.fusion("t = dot(x, w)\nu = add_bias(t, b)\ny = sigmoid(u)", "y", **_with_bias)
def dot_bias_sigmoid(out: Array, x: Array, w: Array, b: Array) -> None:
    _dense(out, x, w, b, SIGMOID)


@backend.fusion("t = dot(x, w)\nu = add_bias(t, b)\ny = tanh(u)", "y", **_with_bias)
def dot_bias_tanh(out: Array, x: Array, w: Array, b: Array) -> None:
    _dense(out, x, w, b, TANH)


@backend.fusion("t = dot(x, w)\nu = add_bias(t, b)\ny = relu(u)", "y", **_with_bias)
def dot_bias_relu(out: Array, x: Array, w: Array, b: Array) -> None:
    _dense(out, x, w, b, RELU)


@backend.fusion("t = dot(x, w)\nu = add_bias(t, b)", "u", **_with_bias)
def dot_bias(out: Array, x: Array, w: Array, b: Array) -> None:
    _dense(out, x, w, b, NONE)


@backend.fusion(
    "t = dot(a, b)\ns = scale(rate, t)\nq = sub(p, s)",
    "q",
    when=lambda out, p, a, b, rate: a.ndim == 2 == b.ndim,
    in_place=(0,),
    strided=True,
    replayable=True,
)
def descend(out: Array, p: Array, a: Array, b: Array, rate: Array) -> None:
    """One step of a dense layer's weights, whose gradient a @ b is not stored."""
    if out.ctypes.data != p.ctypes.data:
        copy(out, p)
    subtract_product(out, a, b, rate)


@jit
def _backward_rows(
    d: Array, totals: Array, sums: Array, g: Array, y: Array, activation: int
) -> None:
    """d = g times the activation's derivative at y; totals = the column sums of d.

    The sums are taken in blocks of rows: totals are in double precision, sums are a buffer for
    those of one block.
    """
    totals[:] = 0
    for start in range(0, g.shape[0], ROWS):
        stop = min(start + ROWS, g.shape[0])
        _backward_block(d[start:stop], sums, g[start:stop], y[start:stop], activation)
        for i in range(sums.size):
            totals[i] += sums[i]


@jit
def _backward_block(d: Array, sums: Array, g: Array, y: Array, activation: int) -> None:
    """The same for one block; sums = the column sums of d."""
    sums[:] = 0
    for n in range(g.shape[0]):
        if activation == SIGMOID:
            for i in range(g.shape[1]):
                d[n, i] = g[n, i] * y[n, i] * (y.dtype.type(1) - y[n, i])
        elif activation == TANH:
            for i in range(g.shape[1]):
                d[n, i] = g[n, i] * (y.dtype.type(1) - y[n, i] * y[n, i])
        else:
            for i in range(g.shape[1]):
                given = g[n, i]  # read unconditionally, so that the loop is vectorised
                d[n, i] = g.dtype.type(0) if y[n, i] <= 0 else given
        for i in range(g.shape[1]):
            sums[i] += d[n, i]


def _sums_scratch(out: tuple[Spec, Spec], g: Spec, y: Spec) -> list[Spec]:
    """For every worker, a row in double precision and one in the array's own."""
    return [Spec((workers(), g.shape[1]), np.float64), g.like((workers(), g.shape[1]))]


def _dense_backward(
    out: tuple[Array, Array], g: Array, y: Array, activation: int, scratch: tuple[Array, ...]
) -> None:
    d, gb = out
    totals, sums = scratch
    least = max(1, GRAIN * g.shape[0] // max(1, 2 * g.size))

    def work(part: int, lo: int, hi: int) -> None:
        _backward_rows(d[lo:hi], totals[part], sums[part], g[lo:hi], y[lo:hi], activation)

    add_parts(gb, totals, split_numbered(work, g.shape[0], least))


@backend.fusion(
    "d = sigmoid_gradient(g, y)\ns = sum(d, axis=(0,), keepdims=False)",
    "d s",
    when=lambda out, g, y: g.ndim == 2,
    scratch=_sums_scratch,
    replayable=True,
)
def sigmoid_bias_gradient(
    out: tuple[Array, Array], g: Array, y: Array, *, scratch: tuple[Array, ...]
) -> None:
    _dense_backward(out, g, y, SIGMOID, scratch)


@backend.fusion(
    "d = tanh_gradient(g, y)\ns = sum(d, axis=(0,), keepdims=False)",
    "d s",
    when=lambda out, g, y: g.ndim == 2,
    scratch=_sums_scratch,
    replayable=True,
)
def tanh_bias_gradient(
    out: tuple[Array, Array], g: Array, y: Array, *, scratch: tuple[Array, ...]
) -> None:
    _dense_backward(out, g, y, TANH, scratch)


@backend.fusion(
    "d = relu_gradient(g, y)\ns = sum(d, axis=(0,), keepdims=False)",
    "d s",
    when=lambda out, g, y: g.ndim == 2,
    scratch=_sums_scratch,
    replayable=True,
)
def relu_bias_gradient(
    out: tuple[Array, Array], g: Array, y: Array, *, scratch: tuple[Array, ...]
) -> None:
    _dense_backward(out, g, y, RELU, scratch)
