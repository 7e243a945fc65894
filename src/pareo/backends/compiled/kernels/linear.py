"""Matrix products through BLAS, with bias and activation in one pass over the result."""

from typing import Any

import numpy as np

from pareo.backends import blas
from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.kernels import dots
from pareo.backends.compiled.kernels.activations import NONE, RELU, SIGMOID, TANH
from pareo.backends.compiled.kernels.reduction import ROWS
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import split, split_numbered, workers
from pareo.backends.compiled.runtime.vector_math import hyperbolic, logistic
from pareo.backends.sums import gathered
from pareo.spec import Spec

kernel = backend.kernel


# With so few rows a product is a walk through the other matrix, which BLAS makes at half the
# memory's speed: it is built to reuse what it reads.
FEW_ROWS = 2
FEW_TURNED = 4  # BLAS is at its worst there
LARGE = 1 << 16
PRODUCTS = 1 << 20  # multiplications that take as long as waking a worker
COLUMNS = 2048  # of a row at a time, so that the sums stay in the nearest cache


@jit
def _add_row(out: Any, row: Any, factor: Any) -> None:
    for j in range(row.size):
        out[j] += factor * row[j]


@jit
def _walk_rows(out: Any, a: Any, b: Any, lo: int, hi: int) -> None:
    """Columns lo to hi of out = a @ b for few rows of a, along the rows of b."""
    for start in range(lo, hi, COLUMNS):
        stop = min(start + COLUMNS, hi)
        out[:, start:stop] = 0
        for k in range(b.shape[0]):
            row = b[k, start:stop]
            for i in range(out.shape[0]):
                _add_row(out[i, start:stop], row, a[i, k])


@jit
def _walk_turned(out: Any, a: Any, b: Any) -> None:
    """out = a @ b.T for few rows of a, along the rows of b."""
    for j in range(b.shape[0]):
        for i in range(a.shape[0]):
            total = a.dtype.type(0)
            for k in range(b.shape[1]):
                total += a[i, k] * b[j, k]
            out[i, j] = total


@jit
def _walk_update(out: Any, a: Any, b: Any, alpha: Any) -> None:
    """out += alpha * a.T @ b for few rows of a and b."""
    for i in range(out.shape[0]):
        for n in range(a.shape[0]):
            _add_row(out[i], b[n], alpha * a[n, i])


def _contiguous(*arrays: Any) -> bool:
    return all(a.flags.c_contiguous for a in arrays)


def _product(out: Any, a: Any, b: Any) -> None:
    """out = a @ b for matrices or stacks of them, in the way that suits their shapes."""
    if a.ndim == 2 == b.ndim and a.shape[0] <= FEW_TURNED and b.size >= LARGE:
        if a.shape[0] <= FEW_ROWS and _contiguous(a, b):
            split(lambda lo, hi: _walk_rows(out, a, b, lo, hi), b.shape[1], 64)
            return
        if _contiguous(a, b.T):
            split(lambda lo, hi: _walk_turned(out[:, lo:hi], a, b.T[lo:hi]), b.shape[1], 64)
            return
    if a.ndim == 2 == b.ndim and _contiguous(a, b.T) and dots.suits(a, b.T):
        split(
            lambda lo, hi: dots.turned(out[:, 2 * lo : 2 * hi], a, b.T[2 * lo : 2 * hi]),
            b.shape[1] // 2,
            32,
        )
        return
    # One thread of BLAS for each of ours: its own would go on spinning on a core that we need next.
    blas.threads(1)
    if out.ndim > 2:
        split(
            lambda lo, hi: np.matmul(_part(a, out, lo, hi), _part(b, out, lo, hi), out=out[lo:hi]),
            out.shape[0],
            _least(out, a),
        )
    elif out.shape[0] >= out.shape[1]:
        split(lambda lo, hi: np.matmul(a[lo:hi], b, out=out[lo:hi]), out.shape[0], _least(out, a))
    else:
        least = _least(out.T, a)
        split(lambda lo, hi: np.matmul(a, b[:, lo:hi], out=out[:, lo:hi]), out.shape[1], least)


def _least(out: Any, a: Any) -> int:
    """How much of the first axis of a product is worth a worker of its own."""
    return max(1, PRODUCTS * out.shape[0] // max(1, out.size * a.shape[-1]))


def _part(a: Any, out: Any, lo: int, hi: int) -> Any:
    """Of a stack of matrices, those that part of a stacked product needs, broadcast or not."""
    return a[lo:hi] if a.ndim == out.ndim and a.shape[0] > 1 else a


@kernel()
def dot(out: Any, a: Any, b: Any) -> None:
    _product(out, a, b)


@kernel()
def transpose(out: Any, a: Any, axes: tuple[int, ...]) -> None:
    out[...] = a.transpose(axes)


@kernel()
def reshape(out: Any, a: Any, shape: tuple[int, ...]) -> None:
    out.reshape(a.shape)[...] = a


@kernel()
def concat(out: Any, *arrays: Any, axis: int) -> None:
    np.concatenate(arrays, axis=axis, out=out)


@kernel()
def part(out: Any, a: Any, axis: int, between: tuple[int, int]) -> None:
    out[...] = a[(slice(None),) * axis + (slice(*between),)]


@kernel()
def part_gradient(out: Any, g: Any, axis: int, between: tuple[int, int], size: int) -> None:
    out[...] = 0
    out[(slice(None),) * axis + (slice(*between),)] = g


@jit
def finish_planes(out: Any, a: Any, b: Any, activation: int) -> None:
    """out[n, c, :] = activation(a[n, c, :] + b[c]): what follows a product or a convolution."""
    for n in range(a.shape[0]):
        for c in range(a.shape[1]):
            bias = b[c]
            if activation == SIGMOID:
                for i in range(a.shape[2]):
                    out[n, c, i] = logistic(a[n, c, i] + bias)
            elif activation == TANH:
                for i in range(a.shape[2]):
                    out[n, c, i] = hyperbolic(a[n, c, i] + bias)
            elif activation == RELU:
                for i in range(a.shape[2]):
                    z = a[n, c, i] + bias
                    out[n, c, i] = a.dtype.type(0) if z <= 0 else z
            else:
                for i in range(a.shape[2]):
                    out[n, c, i] = a[n, c, i] + bias


@jit
def _finish_rows(out: Any, a: Any, b: Any, activation: int) -> None:
    """out[n, :] = activation(a[n, :] + b)."""
    for n in range(a.shape[0]):
        if activation == SIGMOID:
            for i in range(a.shape[1]):
                out[n, i] = logistic(a[n, i] + b[i])
        elif activation == TANH:
            for i in range(a.shape[1]):
                out[n, i] = hyperbolic(a[n, i] + b[i])
        elif activation == RELU:
            for i in range(a.shape[1]):
                z = a[n, i] + b[i]
                out[n, i] = a.dtype.type(0) if z <= 0 else z
        else:
            for i in range(a.shape[1]):
                out[n, i] = a[n, i] + b[i]


def finish(out: Any, a: Any, b: Any, activation: int) -> None:
    """Bias and activation over (N, features) or (N, C, H, W), split over the threads."""
    if a.ndim == 4:
        planes = (*a.shape[:2], a.shape[2] * a.shape[3])
        a, out, loop = a.reshape(planes), out.reshape(planes), finish_planes
    else:
        loop = _finish_rows
    least = max(1, GRAIN * a.shape[0] // max(1, 2 * a.size))
    split(lambda lo, hi: loop(out[lo:hi], a[lo:hi], b, activation), a.shape[0], least)


@kernel(in_place=True, strided=False)
def add_bias(out: Any, a: Any, b: Any) -> None:
    finish(out, a, b, NONE)


def _dense(out: Any, x: Any, w: Any, b: Any, activation: int) -> None:
    _product(out, x, w)
    finish(out, out, b, activation)


def _matrices(out: Spec, x: Spec, w: Spec, b: Spec) -> bool:
    return x.ndim == 2 == w.ndim


@backend.fusion("t = dot(x, w)\nu = add_bias(t, b)\ny = sigmoid(u)", "y", when=_matrices)
def dot_bias_sigmoid(out: Any, x: Any, w: Any, b: Any) -> None:
    _dense(out, x, w, b, SIGMOID)


@backend.fusion("t = dot(x, w)\nu = add_bias(t, b)\ny = tanh(u)", "y", when=_matrices)
def dot_bias_tanh(out: Any, x: Any, w: Any, b: Any) -> None:
    _dense(out, x, w, b, TANH)


@backend.fusion("t = dot(x, w)\nu = add_bias(t, b)\ny = relu(u)", "y", when=_matrices)
def dot_bias_relu(out: Any, x: Any, w: Any, b: Any) -> None:
    _dense(out, x, w, b, RELU)


@backend.fusion("t = dot(x, w)\nu = add_bias(t, b)", "u", when=_matrices)
def dot_bias(out: Any, x: Any, w: Any, b: Any) -> None:
    _dense(out, x, w, b, NONE)


@backend.fusion(
    "t = dot(a, b)\ns = scale(rate, t)\nq = sub(p, s)",
    "q",
    when=lambda out, p, a, b, rate: a.ndim == 2 == b.ndim,
    in_place=(0,),
    strided=True,
)
def descend(out: Any, p: Any, a: Any, b: Any, rate: Any) -> None:
    """A dense layer's weights down their gradient, which is never written anywhere."""
    if out.ctypes.data != p.ctypes.data:
        np.copyto(out, p)
    if a.shape[1] <= FEW_ROWS and out.size >= LARGE and _contiguous(a.T, b):
        alpha = out.dtype.type(-rate.item())
        split(lambda lo, hi: _walk_update(out[lo:hi], a.T[:, lo:hi], b, alpha), out.shape[0], 64)
        return
    blas.threads(1)
    alpha = -rate.item()
    split(
        lambda lo, hi: blas.add_product(out[lo:hi], a[lo:hi], b, alpha),
        out.shape[0],
        _least(out, a),
    )


@jit
def _back_rows(d: Any, totals: Any, sums: Any, g: Any, y: Any, activation: int) -> None:
    """d = g times the activation's slope at y; totals = the column sums of d, in blocks of rows.

    totals are in double precision, sums have room for those of a block.
    """
    totals[:] = 0
    for start in range(0, g.shape[0], ROWS):
        stop = min(start + ROWS, g.shape[0])
        _back_block(d[start:stop], sums, g[start:stop], y[start:stop], activation)
        for i in range(sums.size):
            totals[i] += sums[i]


@jit
def _back_block(d: Any, sums: Any, g: Any, y: Any, activation: int) -> None:
    """Likewise for one block; sums = the column sums of d."""
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
                given = g[n, i]  # read whether used or not, so that the loop is vectorised
                d[n, i] = g.dtype.type(0) if y[n, i] <= 0 else given
        for i in range(g.shape[1]):
            sums[i] += d[n, i]


def _sums_for_each_worker(out: Any, g: Spec, y: Spec) -> list[Spec]:
    """A row in double precision and one in the array's own."""
    return [Spec((workers(), g.shape[1]), np.float64), g.like((workers(), g.shape[1]))]


def _dense_back(out: Any, g: Any, y: Any, activation: int, scratch: tuple[Any, ...]) -> None:
    d, gb = out
    totals, sums = scratch
    least = max(1, GRAIN * g.shape[0] // max(1, 2 * g.size))

    def work(part: int, lo: int, hi: int) -> None:
        _back_rows(d[lo:hi], totals[part], sums[part], g[lo:hi], y[lo:hi], activation)

    gb[...] = gathered(totals, split_numbered(work, g.shape[0], least))


@backend.fusion(
    "d = sigmoid_gradient(g, y)\ns = sum(d, axis=(0,), keepdims=False)",
    "d s",
    when=lambda out, g, y: g.ndim == 2,
    scratch=_sums_for_each_worker,
)
def sigmoid_bias_gradient(out: Any, g: Any, y: Any, *, scratch: tuple[Any, ...]) -> None:
    _dense_back(out, g, y, SIGMOID, scratch)


@backend.fusion(
    "d = tanh_gradient(g, y)\ns = sum(d, axis=(0,), keepdims=False)",
    "d s",
    when=lambda out, g, y: g.ndim == 2,
    scratch=_sums_for_each_worker,
)
def tanh_bias_gradient(out: Any, g: Any, y: Any, *, scratch: tuple[Any, ...]) -> None:
    _dense_back(out, g, y, TANH, scratch)


@backend.fusion(
    "d = relu_gradient(g, y)\ns = sum(d, axis=(0,), keepdims=False)",
    "d s",
    when=lambda out, g, y: g.ndim == 2,
    scratch=_sums_for_each_worker,
)
def relu_bias_gradient(out: Any, g: Any, y: Any, *, scratch: tuple[Any, ...]) -> None:
    _dense_back(out, g, y, RELU, scratch)
