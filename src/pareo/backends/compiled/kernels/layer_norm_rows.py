"""Loops of layer normalisation over the rows of a matrix.

Sums are taken in blocks of BLOCK elements, and the blocks are added in double precision. float32
uses the vectors of `layer_norm_pieces`.
"""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.kernels.layer_norm_pieces import (
    LONGEST,
    column_products,
    normalise_rows,
    row_gradients,
)
from pareo.backends.compiled.runtime.jit import jit, jit_strict

BLOCK = 1024
ROWS = 256  # whose gradients of scale and shift are summed in the precision of the array


# A separate function, because sums may be reassociated in the loops below.
@jit_strict
def _difference(a: float, b: float) -> float:
    return a - b


@jit
def _total(x: Array) -> float:
    total = x.dtype.type(0)
    for j in range(x.size):
        total += x[j]
    return total


@jit
def _moments(x: Array, near: float) -> tuple[float, float]:
    """The sums of the distances from a number, and of their squares."""
    first, second = x.dtype.type(0), x.dtype.type(0)
    for j in range(x.size):
        d = _difference(x[j], near)
        first += d
        second += d * d
    return first, second


@jit
def _statistics(x: Array, epsilon: float) -> tuple[float, float, float]:
    """The mean of a row in two parts, and 1 / sqrt(variance + epsilon)."""
    kind = x.dtype.type
    total = 0.0
    for start in range(0, x.size, BLOCK):
        total += _total(x[start : start + BLOCK])
    near = kind(total / x.size)
    first, second = 0.0, 0.0
    for start in range(0, x.size, BLOCK):
        one, two = _moments(x[start : start + BLOCK], near)
        first += one
        second += two
    rest = first / x.size
    variance = max(second / x.size - rest * rest, 0.0) if second == second else second
    return near, kind(rest), kind(1 / np.sqrt(variance + epsilon))


@jit
def _normalise(
    out: Array, x: Array, near: float, rest: float, by: float, scale: Array, shift: Array
) -> None:
    for j in range(x.size):
        d = _difference(_difference(x[j], near), rest)
        out[j] = d * by * scale[j] + shift[j]


@jit
def forward(out: Array, x: Array, scale: Array, shift: Array, epsilon: float) -> None:
    """out = each row of x, normalised, times scale, plus shift."""
    if x.itemsize == 4 and x.shape[1] <= LONGEST:
        normalise_rows(
            out.ctypes.data, x.ctypes.data, scale.ctypes.data, shift.ctypes.data, *x.shape,
            np.float64(epsilon),
        )  # fmt: skip
        return
    for i in range(x.shape[0]):
        near, rest, by = _statistics(x[i], epsilon)
        _normalise(out[i], x[i], near, rest, by, scale, shift)


@jit
def _products(
    g: Array, x: Array, near: float, rest: float, by: float, scale: Array
) -> tuple[float, float]:
    """The sums of g times scale, and of that times the normalised row."""
    total, inner = x.dtype.type(0), x.dtype.type(0)
    for j in range(x.size):
        value = _difference(_difference(x[j], near), rest) * by
        slope = g[j] * scale[j]
        total += slope
        inner += slope * value
    return total, inner


@jit
def _slope(
    gx: Array, g: Array, x: Array, near: float, rest: float, by: float, scale: Array,
    level: float, tilt: float,
) -> None:  # fmt: skip
    for j in range(x.size):
        value = _difference(_difference(x[j], near), rest) * by
        gx[j] = by * (g[j] * scale[j] - level - value * tilt)


@jit
def backward(
    gx: Array, statistics: Array, g: Array, x: Array, scale: Array, epsilon: float
) -> None:
    """gx = the gradient of x; statistics (rows, 3) are kept for `column_sums`."""
    if x.itemsize == 4 and x.shape[1] <= LONGEST:
        row_gradients(
            gx.ctypes.data, statistics.ctypes.data, g.ctypes.data, x.ctypes.data,
            scale.ctypes.data, *x.shape, np.float64(epsilon),
        )  # fmt: skip
        return
    kind = x.dtype.type
    for i in range(x.shape[0]):
        near, rest, by = _statistics(x[i], epsilon)
        statistics[i, 0], statistics[i, 1], statistics[i, 2] = near, rest, by
        total, inner = 0.0, 0.0
        for start in range(0, x.shape[1], BLOCK):
            stop = min(start + BLOCK, x.shape[1])
            one, two = _products(
                g[i, start:stop], x[i, start:stop], near, rest, by, scale[start:stop]
            )
            total += one
            inner += two
        level, tilt = kind(total / x.shape[1]), kind(inner / x.shape[1])
        _slope(gx[i], g[i], x[i], near, rest, by, scale, level, tilt)


@jit
def _add_products(
    by_scale: Array, by_shift: Array, g: Array, x: Array, near: float, rest: float, by: float
) -> None:
    for j in range(x.size):
        by_scale[j] += g[j] * (_difference(_difference(x[j], near), rest) * by)
        by_shift[j] += g[j]


@jit
def column_sums(
    by_scale: Array, by_shift: Array, statistics: Array, g: Array, x: Array, lo: int, hi: int
) -> None:
    """Columns lo to hi of the gradients of scale and shift."""
    wide = np.zeros((2, hi - lo), np.float64)
    parts = np.empty((2, hi - lo), x.dtype)
    for start in range(0, x.shape[0], ROWS):
        stop = min(start + ROWS, x.shape[0])
        if x.itemsize == 4:
            column_products(
                parts[0].ctypes.data, parts[1].ctypes.data, statistics[start].ctypes.data,
                g[start, lo:].ctypes.data, x[start, lo:].ctypes.data, x.strides[0], stop - start,
                hi - lo,
            )  # fmt: skip
        else:
            parts[:] = 0
            for i in range(start, stop):
                near, rest, by = statistics[i, 0], statistics[i, 1], statistics[i, 2]
                _add_products(parts[0], parts[1], g[i, lo:hi], x[i, lo:hi], near, rest, by)
        for j in range(hi - lo):
            wide[0, j] += parts[0, j]
            wide[1, j] += parts[1, j]
    for j in range(hi - lo):
        by_scale[lo + j] = wide[0, j]
        by_shift[lo + j] = wide[1, j]
