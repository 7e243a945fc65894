"""Loops of batch normalisation over the columns of a matrix (examples, features).

A block of columns is read row by row, so that vectors are full, and stays in the fastest cache
between the passes. The loops over images of `batch_norm_loops` would read one element of each row.
"""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.kernels.elementwise_codes import (
    NONE,
    activate_in_place,
    differentiate_in_place,
)
from pareo.backends.compiled.runtime.jit import jit, jit_strict

COLUMNS = 64  # of a block
ROWS = 256  # that are summed in the precision of the array; such sums are added in double precision


# Separate functions, because sums may be reassociated in the loops below.
@jit_strict
def _difference(a: float, b: float) -> float:
    return a - b


@jit_strict
def _merged(
    count: float, mean: float, squares: float, size: int, near: float, first: float, second: float
) -> tuple[float, float]:
    """Mean and sum of squared distances of `count` elements, with a block of `size` more.

    `first` and `second` are the block's sums of distances from `near`, and of their squares.
    """
    own = np.float64(near) + np.float64(first) / size
    own_squares = np.float64(second) - np.float64(first) * np.float64(first) / size
    step = own - mean
    total = count + size
    mean = mean + step * (size / total)
    return mean, squares + own_squares + step * step * (count * size / total)


@jit
def _add(total: Array, row: Array) -> None:
    for j in range(row.size):
        total[j] += row[j]


@jit
def _add_moments(first: Array, second: Array, row: Array, near: Array) -> None:
    for j in range(row.size):
        d = _difference(row[j], near[j])
        first[j] += d
        second[j] += d * d


@jit
def _add_products(total: Array, inner: Array, d: Array, row: Array, mean: Array) -> None:
    for j in range(row.size):
        total[j] += d[j]
        inner[j] += d[j] * _difference(row[j], mean[j])


@jit
def _normalise(out: Array, row: Array, mean: Array, factor: Array, shift: Array) -> None:
    for j in range(row.size):
        out[j] = _difference(row[j], mean[j]) * factor[j] + shift[j]


@jit
def _slope(
    out: Array, d: Array, row: Array, mean: Array, factor: Array, level: Array, tilt: Array
) -> None:
    for j in range(row.size):
        out[j] = factor[j] * (d[j] - level[j] - _difference(row[j], mean[j]) * tilt[j])


@jit
def _copy(out: Array, a: Array) -> None:
    for j in range(a.size):
        out[j] = a[j]


@jit
def _statistics(
    means: Array, squares: Array, x: Array, lo: int, near: Array, first: Array, second: Array
) -> None:
    """Means and sums of squared distances of columns from lo on, in double precision."""
    width, rows = means.size, x.shape[0]
    for start in range(0, rows, ROWS):
        stop = min(start + ROWS, rows)
        near[:] = 0
        for n in range(start, stop):
            _add(near, x[n, lo : lo + width])
        for j in range(width):
            near[j] /= stop - start
            first[j] = 0
            second[j] = 0
        for n in range(start, stop):
            _add_moments(first, second, x[n, lo : lo + width], near)
        for j in range(width):
            means[j], squares[j] = _merged(
                float(start), means[j], squares[j], stop - start, near[j], first[j], second[j]
            )


@jit
def forward(
    y: Array, means: Array, variances: Array, x: Array, scale: Array, shift: Array,
    epsilon: float, activation: int, numbers: Array, lo: int, hi: int,
) -> None:  # fmt: skip
    """Columns lo to hi of an activation of the normalised matrix, their means and variances."""
    kind = x.dtype.type
    wide = np.empty((2, COLUMNS), np.float64)
    parts = np.empty((3, COLUMNS), x.dtype)
    for low in range(lo, hi, COLUMNS):
        width = min(COLUMNS, hi - low)
        wide[:] = 0
        near, first, second = parts[0, :width], parts[1, :width], parts[2, :width]
        _statistics(wide[0, :width], wide[1, :width], x, low, near, first, second)
        mean, factor, offset = near, first, second
        for j in range(width):
            variance = wide[1, j] / x.shape[0]
            means[low + j] = mean[j] = wide[0, j]
            variances[low + j] = variance
            by = scale[low + j] / np.sqrt(variance + epsilon)
            factor[j] = kind(by)
            # What the mean loses in the precision of the array.
            offset[j] = kind(shift[low + j] + (np.float64(mean[j]) - wide[0, j]) * by)
        for n in range(x.shape[0]):
            row = y[n, low : low + width]
            _normalise(row, x[n, low : low + width], mean, factor, offset)
            if activation != NONE:
                activate_in_place(activation, row, numbers)


@jit
def again(
    y: Array, x: Array, scale: Array, shift: Array, means: Array, variances: Array,
    epsilon: float, lo: int, hi: int,
) -> None:  # fmt: skip
    """Columns lo to hi of the normalised matrix, with means and variances that are known."""
    factors = np.empty(hi - lo, x.dtype)
    for j in range(lo, hi):
        inverse = 1 / np.sqrt(np.float64(variances[j]) + epsilon)
        factors[j - lo] = x.dtype.type(scale[j] * inverse)
    for n in range(x.shape[0]):
        _normalise(y[n, lo:hi], x[n, lo:hi], means[lo:hi], factors, shift[lo:hi])


@jit
def backward(
    gx: Array, by_scale: Array, by_shift: Array, g: Array, x: Array, scale: Array, shift: Array,
    means: Array, variances: Array, epsilon: float, activation: int, numbers: Array,
    lo: int, hi: int,
) -> None:  # fmt: skip
    """Columns lo to hi of the gradients; gx may be the memory of g.

    `activation` is one whose gradient follows from (x - mean) * factor + shift, or from its sign.
    """
    kind = x.dtype.type
    rows = x.shape[0]
    wide = np.empty((2, COLUMNS), np.float64)
    parts = np.empty((5, COLUMNS), x.dtype)
    block = np.empty((rows, COLUMNS), x.dtype)  # the gradient before the activation
    for low in range(lo, hi, COLUMNS):
        width = min(COLUMNS, hi - low)
        high = low + width
        mean, near_shift = means[low:high], shift[low:high]
        factor, total, inner = parts[0, :width], parts[1, :width], parts[2, :width]
        level, tilt = parts[3, :width], parts[4, :width]
        wide[:] = 0
        for j in range(width):
            inverse = 1 / np.sqrt(np.float64(variances[low + j]) + epsilon)
            factor[j] = kind(scale[low + j] * inverse)
        for start in range(0, rows, ROWS):
            total[:] = 0
            inner[:] = 0
            for n in range(start, min(start + ROWS, rows)):
                d, row = block[n, :width], x[n, low:high]
                _copy(d, g[n, low:high])
                if activation != NONE:
                    _normalise(level, row, mean, factor, near_shift)
                    differentiate_in_place(activation, d, level, numbers)
                _add_products(total, inner, d, row, mean)
            for j in range(width):
                wide[0, j] += total[j]
                wide[1, j] += inner[j]
        for j in range(width):
            inverse = 1 / np.sqrt(np.float64(variances[low + j]) + epsilon)
            by_scale[low + j] = wide[1, j] * inverse
            by_shift[low + j] = wide[0, j]
            level[j] = wide[0, j] / rows
            tilt[j] = wide[1, j] * inverse * inverse / rows
        for n in range(rows):
            _slope(gx[n, low:high], block[n, :width], x[n, low:high], mean, factor, level, tilt)
