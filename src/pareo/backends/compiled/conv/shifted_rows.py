"""Convolution of small images by few filters, as loops over whole images.

At stride 1, an output pixel p of a flattened image needs the pixels p + dy * width + dx. So each
row of a filter is one loop over the flat image. The few columns that wrap around an edge are
computed, too, and dropped. Three filters and up to five neighbouring taps share a loop: eight loads
and fifteen multiply-adds, which keep the arithmetic units busy, on few enough arrays for the
compiler to check that they do not overlap.
"""

from typing import Any

from pareo.array import Array
from pareo.backends.compiled.backend import Sizes
from pareo.backends.compiled.kernels.activations import RELU, SIGMOID, TANH
from pareo.backends.compiled.runtime.jit import jit, jit_in_order
from pareo.backends.compiled.runtime.vector_math import hyperbolic_tangent, logistic
from pareo.spec import Spec

FILTERS = 3
MOST_PRODUCTS = 2048  # for each pixel of all filters: with more, BLAS is faster
# The same for windows of one pixel, where each row that is read serves one tap.
MOST_POINTWISE_PRODUCTS = 64


def suits(x: Spec, w: Sizes, stride: Sizes, dilation: Sizes, groups: int) -> bool:
    """Whether filters of shape w are few and small enough for loops to beat a matrix product."""
    taps = w[1] * w[2] * w[3]
    plain = tuple(stride) == (1, 1) == tuple(dilation) and groups == 1
    most = MOST_POINTWISE_PRODUCTS if tuple(w[2:]) == (1, 1) else MOST_PRODUCTS
    return plain and taps * w[0] <= most and w[0] <= 32


def loops(out: Sizes, w: Sizes) -> int:
    """The number of loops over a plane of results."""
    return out[0] * -(-w[0] // FILTERS) * w[1] * w[2]


@jit_in_order
def _first_five(y0: Array, y1: Array, y2: Array, x: Array, w: Array, b: Array) -> None:
    a0, a1, a2, a3, a4 = w[0, 0], w[0, 1], w[0, 2], w[0, 3], w[0, 4]
    b0, b1, b2, b3, b4 = w[1, 0], w[1, 1], w[1, 2], w[1, 3], w[1, 4]
    c0, c1, c2, c3, c4 = w[2, 0], w[2, 1], w[2, 2], w[2, 3], w[2, 4]
    start0, start1, start2 = b[0], b[1], b[2]
    for p in range(y0.size):
        v0, v1, v2, v3, v4 = x[p], x[p + 1], x[p + 2], x[p + 3], x[p + 4]
        y0[p] = start0 + a0 * v0 + a1 * v1 + a2 * v2 + a3 * v3 + a4 * v4
        y1[p] = start1 + b0 * v0 + b1 * v1 + b2 * v2 + b3 * v3 + b4 * v4
        y2[p] = start2 + c0 * v0 + c1 * v1 + c2 * v2 + c3 * v3 + c4 * v4


@jit_in_order
def _five(y0: Array, y1: Array, y2: Array, x: Array, w: Array) -> None:
    a0, a1, a2, a3, a4 = w[0, 0], w[0, 1], w[0, 2], w[0, 3], w[0, 4]
    b0, b1, b2, b3, b4 = w[1, 0], w[1, 1], w[1, 2], w[1, 3], w[1, 4]
    c0, c1, c2, c3, c4 = w[2, 0], w[2, 1], w[2, 2], w[2, 3], w[2, 4]
    for p in range(y0.size):
        v0, v1, v2, v3, v4 = x[p], x[p + 1], x[p + 2], x[p + 3], x[p + 4]
        y0[p] = y0[p] + a0 * v0 + a1 * v1 + a2 * v2 + a3 * v3 + a4 * v4
        y1[p] = y1[p] + b0 * v0 + b1 * v1 + b2 * v2 + b3 * v3 + b4 * v4
        y2[p] = y2[p] + c0 * v0 + c1 * v1 + c2 * v2 + c3 * v3 + c4 * v4


@jit_in_order
def _three(y0: Array, y1: Array, y2: Array, x: Array, w: Array) -> None:
    a0, a1, a2 = w[0, 0], w[0, 1], w[0, 2]
    b0, b1, b2 = w[1, 0], w[1, 1], w[1, 2]
    c0, c1, c2 = w[2, 0], w[2, 1], w[2, 2]
    for p in range(y0.size):
        v0, v1, v2 = x[p], x[p + 1], x[p + 2]
        y0[p] = y0[p] + a0 * v0 + a1 * v1 + a2 * v2
        y1[p] = y1[p] + b0 * v0 + b1 * v1 + b2 * v2
        y2[p] = y2[p] + c0 * v0 + c1 * v1 + c2 * v2


@jit_in_order
def _one(y0: Array, y1: Array, y2: Array, x: Array, w: Array) -> None:
    a0, b0, c0 = w[0, 0], w[1, 0], w[2, 0]
    for p in range(y0.size):
        y0[p] += a0 * x[p]
        y1[p] += b0 * x[p]
        y2[p] += c0 * x[p]


@jit
def _filter_row(y0: Array, y1: Array, y2: Array, x: Array, w: Array, b: Array, fresh: bool) -> None:
    """Add one row of three filters, w (3, width), to their three flat images.

    With `fresh`, the images start from their biases b instead of their contents.
    """
    dx = 0
    if fresh and w.shape[1] >= 5:
        _first_five(y0, y1, y2, x, w, b)
        dx = 5
    elif fresh:
        y0[:] = b[0]
        y1[:] = b[1]
        y2[:] = b[2]
    while dx < w.shape[1]:
        rest, part = x[dx:], w[:, dx:]
        if part.shape[1] >= 5:
            _five(y0, y1, y2, rest, part)
            dx += 5
        elif part.shape[1] >= 3:
            _three(y0, y1, y2, rest, part)
            dx += 3
        else:
            _one(y0, y1, y2, rest, part)
            dx += 1


# The loops below index planes directly: in compiled code, a slice costs more than a short row.
@jit
def _activate(out: Array, y: Array, activation: int) -> None:
    """Copy a plane y with wide rows into out, through an activation."""
    if activation == SIGMOID:
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] = logistic(y[i, j])
    elif activation == TANH:
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] = hyperbolic_tangent(y[i, j])
    elif activation == RELU:
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] = y.dtype.type(0) if y[i, j] <= 0 else y[i, j]
    else:
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] = y[i, j]


@jit
def padded(buffer: Array, x: Array, top: int, left: int) -> Any:
    """An image (C, H, W) with zeros around it, in `buffer`; itself if it needs no padding."""
    if buffer.shape == x.shape:
        return x
    buffer[:] = 0
    buffer[:, top : top + x.shape[1], left : left + x.shape[2]] = x
    return buffer


@jit
def forward(
    out: Array,
    buffer: Array,
    wide: Array,
    x: Array,
    w: Array,
    b: Array,
    activation: int,
    top: int,
    left: int,
) -> None:
    """out = activation(conv(x, w) + b). w and b are padded to a multiple of three filters.

    buffer is (C, H, W) of one padded image; wide is three output planes with rows of its width.
    """
    pixels = (out.shape[2] - 1) * buffer.shape[2] + out.shape[3]
    y0 = wide[0].reshape(-1)[:pixels]
    y1 = wide[1].reshape(-1)[:pixels]
    y2 = wide[2].reshape(-1)[:pixels]
    for n in range(x.shape[0]):
        image = padded(buffer, x[n], top, left)
        for k in range(0, out.shape[1], 3):
            for c in range(image.shape[0]):
                line = image[c].reshape(-1)
                for dy in range(w.shape[2]):
                    row, part = line[dy * buffer.shape[2] :], w[k : k + 3, c, dy]
                    _filter_row(y0, y1, y2, row, part, b[k : k + 3], c == dy == 0)
            for r in range(min(3, out.shape[1] - k)):
                _activate(out[n, k + r], wide[r], activation)


@jit
def _activation_gradient(d: Array, g: Array, y: Array, activation: int) -> None:
    """d = g times the activation's derivative at y, in wide rows."""
    if activation == SIGMOID:
        for i in range(g.shape[0]):
            for j in range(g.shape[1]):
                d[i, j] = g[i, j] * y[i, j] * (y.dtype.type(1) - y[i, j])
    elif activation == TANH:
        for i in range(g.shape[0]):
            for j in range(g.shape[1]):
                d[i, j] = g[i, j] * (y.dtype.type(1) - y[i, j] * y[i, j])
    elif activation == RELU:
        for i in range(g.shape[0]):
            for j in range(g.shape[1]):
                given = g[i, j]  # read unconditionally, so that the loop is vectorised
                d[i, j] = g.dtype.type(0) if y[i, j] <= 0 else given
    else:
        for i in range(g.shape[0]):
            for j in range(g.shape[1]):
                d[i, j] = g[i, j]


@jit
def _sum(d: Array) -> Any:
    total = d.dtype.type(0)
    for p in range(d.size):
        total += d[p]
    return total


@jit
def _dots_five(gw: Array, d0: Array, d1: Array, d2: Array, x: Array) -> None:
    zero = x.dtype.type(0)
    a0 = a1 = a2 = a3 = a4 = zero
    b0 = b1 = b2 = b3 = b4 = zero
    c0 = c1 = c2 = c3 = c4 = zero
    for p in range(d0.size):
        v0, v1, v2, v3, v4 = x[p], x[p + 1], x[p + 2], x[p + 3], x[p + 4]
        e0, e1, e2 = d0[p], d1[p], d2[p]
        a0 += e0 * v0
        a1 += e0 * v1
        a2 += e0 * v2
        a3 += e0 * v3
        a4 += e0 * v4
        b0 += e1 * v0
        b1 += e1 * v1
        b2 += e1 * v2
        b3 += e1 * v3
        b4 += e1 * v4
        c0 += e2 * v0
        c1 += e2 * v1
        c2 += e2 * v2
        c3 += e2 * v3
        c4 += e2 * v4
    gw[0, 0] += a0
    gw[0, 1] += a1
    gw[0, 2] += a2
    gw[0, 3] += a3
    gw[0, 4] += a4
    gw[1, 0] += b0
    gw[1, 1] += b1
    gw[1, 2] += b2
    gw[1, 3] += b3
    gw[1, 4] += b4
    gw[2, 0] += c0
    gw[2, 1] += c1
    gw[2, 2] += c2
    gw[2, 3] += c3
    gw[2, 4] += c4


@jit
def _dots_one(gw: Array, d0: Array, d1: Array, d2: Array, x: Array) -> None:
    a = b = c = x.dtype.type(0)
    for p in range(d0.size):
        a += d0[p] * x[p]
        b += d1[p] * x[p]
        c += d2[p] * x[p]
    gw[0, 0] += a
    gw[1, 0] += b
    gw[2, 0] += c


@jit
def _gradient_row(gw: Array, d0: Array, d1: Array, d2: Array, x: Array) -> None:
    """Add to gw (3, width) the products of three flat gradients with a flat image, tap by tap."""
    dx = 0
    while dx < gw.shape[1]:
        if gw.shape[1] - dx >= 5:
            _dots_five(gw[:, dx:], d0, d1, d2, x[dx:])
            dx += 5
        else:
            _dots_one(gw[:, dx:], d0, d1, d2, x[dx:])
            dx += 1


@jit
def backward(
    gw: Array,
    gb: Array,
    buffer: Array,
    wide: Array,
    x: Array,
    g: Array,
    y: Array,
    activation: int,
    top: int,
    left: int,
    by_rows: bool,
) -> None:
    """Add to gw and gb, in double precision, the gradients of y = activation(conv(x, w) + b).

    In a loop over all rows, gradients of 0 meet the pixels that wrap around an edge, and 0 times
    infinity is NaN. With `by_rows`, each row has its own loop, which is slower.
    """
    wide[:] = 0
    pixels = (g.shape[2] - 1) * buffer.shape[2] + g.shape[3]
    d0 = wide[0].reshape(-1)[:pixels]
    d1 = wide[1].reshape(-1)[:pixels]
    d2 = wide[2].reshape(-1)[:pixels]
    for n in range(x.shape[0]):
        image = padded(buffer, x[n], top, left)
        for k in range(0, g.shape[1], 3):
            for r in range(min(3, g.shape[1] - k)):
                _activation_gradient(wide[r], g[n, k + r], y[n, k + r], activation)
            for r in range(g.shape[1] - k, 3):
                wide[r] = 0
            gb[k] += _sum(d0)
            gb[k + 1] += _sum(d1)
            gb[k + 2] += _sum(d2)
            for c in range(image.shape[0]):
                line = image[c].reshape(-1)
                for dy in range(gw.shape[2]):
                    row, part = line[dy * buffer.shape[2] :], gw[k : k + 3, c, dy]
                    if not by_rows:
                        _gradient_row(part, d0, d1, d2, row)
                        continue
                    for at in range(0, pixels, buffer.shape[2]):
                        end = at + g.shape[3]
                        _gradient_row(part, d0[at:end], d1[at:end], d2[at:end], row[at:])
