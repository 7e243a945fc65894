"""Loops of batch normalisation over the columns of a matrix (examples, features).

A block of columns is read row by row, so that vectors are full, and stays in a near cache between
the passes. The loops over images of `batch_norm_loops` would read one element of each row. float32
uses the vectors of `batch_norm_column_pieces`.
"""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.kernels.batch_norm_column_pieces import (
    ANY,
    POSITIVE,
    WITHIN,
    column_gradient_sums,
    column_moments,
    column_slopes,
    normalise_columns,
)
from pareo.backends.compiled.kernels.elementwise_codes import (
    CLIP,
    NONE,
    RELU,
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


# Loops over single rows, which the compiler makes vectors of; over several it would not.
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
def _normalise_row(out: Array, row: Array, mean: Array, factor: Array, shift: Array) -> None:
    for j in range(row.size):
        out[j] = _difference(row[j], mean[j]) * factor[j] + shift[j]


@jit
def _limit(row: Array, low: float, high: float) -> None:
    for j in range(row.size):
        y = low if row[j] <= low else row[j]
        row[j] = high if y > high else y


@jit
def _pass_on(
    d: Array, g: Array, row: Array, mean: Array, factor: Array, shift: Array, low: float,
    high: float,
) -> None:  # fmt: skip
    """d = g where the normalised row is between the limits, or is not a number."""
    for j in range(row.size):
        z = _difference(row[j], mean[j]) * factor[j] + shift[j]
        given = g[j]  # read unconditionally, so that the loop is vectorised
        d[j] = 0 if z <= low or z >= high else given


@jit
def _slope(out: Array, row: Array, mean: Array, factor: Array, level: Array, tilt: Array) -> None:
    for j in range(row.size):
        out[j] = factor[j] * (out[j] - level[j] - _difference(row[j], mean[j]) * tilt[j])


@jit
def _copy_row(out: Array, row: Array) -> None:
    for j in range(row.size):
        out[j] = row[j]


@jit
def _moments(first: Array, second: Array, x: Array, near: Array) -> None:
    """The sums of each column's distances from `near`, and those of their squares."""
    rows, columns = x.shape
    if x.itemsize == 4:
        column_moments(
            first.ctypes.data, second.ctypes.data, x.ctypes.data, x.strides[0], rows, columns,
            near.ctypes.data,
        )  # fmt: skip
        return
    first[:] = 0
    second[:] = 0
    for n in range(rows):
        _add_moments(first, second, x[n], near)


@jit
def _normalise(
    out: Array, x: Array, mean: Array, factor: Array, shift: Array, low: float, high: float
) -> None:
    """out = (x - mean) * factor + shift, at least `low` and at most `high`."""
    rows, columns = x.shape
    if x.itemsize == 4:
        normalise_columns(
            out.ctypes.data, out.strides[0], x.ctypes.data, x.strides[0], rows, columns,
            mean.ctypes.data, factor.ctypes.data, shift.ctypes.data, np.float32(low),
            np.float32(high),
        )  # fmt: skip
        return
    for n in range(rows):
        _normalise_row(out[n], x[n], mean, factor, shift)
        if low > -np.inf or high < np.inf:
            _limit(out[n], low, high)


@jit
def _gradient_sums(
    total: Array, inner: Array, d: Array, g: Array, x: Array, mean: Array, factor: Array,
    shift: Array, passes: int, low: float, high: float,
) -> None:  # fmt: skip
    """d = g where it passes; the sums of d, and of d times (x - mean)."""
    rows, columns = x.shape
    if x.itemsize == 4:
        column_gradient_sums(
            total.ctypes.data, inner.ctypes.data, d.ctypes.data, d.strides[0], g.ctypes.data,
            g.strides[0], x.ctypes.data, x.strides[0], rows, columns, mean.ctypes.data,
            factor.ctypes.data, shift.ctypes.data, passes, np.float32(low), np.float32(high),
        )  # fmt: skip
        return
    total[:] = 0
    inner[:] = 0
    for n in range(rows):
        if passes == ANY:
            _copy_row(d[n], g[n])
        else:
            most = high if passes == WITHIN else np.inf
            _pass_on(d[n], g[n], x[n], mean, factor, shift, low, most)
        _add_products(total, inner, d[n], x[n], mean)


@jit
def _slopes(out: Array, x: Array, mean: Array, factor: Array, level: Array, tilt: Array) -> None:
    """out = factor * (out - level - (x - mean) * tilt)."""
    rows, columns = x.shape
    if x.itemsize == 4:
        column_slopes(
            out.ctypes.data, out.strides[0], x.ctypes.data, x.strides[0], rows, columns,
            mean.ctypes.data, factor.ctypes.data, level.ctypes.data, tilt.ctypes.data,
        )  # fmt: skip
        return
    for n in range(rows):
        _slope(out[n], x[n], mean, factor, level, tilt)


@jit
def _copy(out: Array, a: Array) -> None:
    for n in range(a.shape[0]):
        _copy_row(out[n], a[n])


@jit
def _limits(activation: int, numbers: Array) -> tuple[float, float]:
    """The least and the greatest result of an activation that only limits; else none."""
    if activation == CLIP:
        return float(numbers[0]), float(numbers[1])
    return 0.0 if activation == RELU else -np.inf, np.inf


@jit
def _only_limits(activation: int) -> bool:
    return activation in (NONE, RELU, CLIP)


@jit
def forward(
    y: Array, means: Array, variances: Array, x: Array, scale: Array, shift: Array,
    epsilon: float, activation: int, numbers: Array, lo: int, hi: int,
) -> None:  # fmt: skip
    """Columns lo to hi of an activation of the normalised matrix, their means and variances."""
    kind, rows = x.dtype.type, x.shape[0]
    wide = np.empty((2, COLUMNS), np.float64)
    parts = np.empty((3, COLUMNS), x.dtype)
    least, most = _limits(activation, numbers)
    # Rows one after another, so that an activation is one call.
    flat = np.empty(0 if _only_limits(activation) else min(ROWS, rows) * COLUMNS, x.dtype)
    for low in range(lo, hi, COLUMNS):
        width = min(COLUMNS, hi - low)
        high = low + width
        near, first, second = parts[0, :width], parts[1, :width], parts[2, :width]
        wide[:] = 0
        for start in range(0, rows, ROWS):
            stop = min(start + ROWS, rows)
            block = x[start:stop, low:high]
            near[:] = 0
            _moments(first, second, block, near)
            for j in range(width):
                near[j] = first[j] / (stop - start)
            _moments(first, second, block, near)
            for j in range(width):
                wide[0, j], wide[1, j] = _merged(
                    float(start), wide[0, j], wide[1, j], stop - start, near[j], first[j],
                    second[j],
                )  # fmt: skip
        mean, factor, offset = near, first, second
        for j in range(width):
            variance = wide[1, j] / rows
            means[low + j] = mean[j] = wide[0, j]
            variances[low + j] = variance
            by = scale[low + j] / np.sqrt(variance + epsilon)
            factor[j] = kind(by)
            # What the mean loses in the precision of the array.
            offset[j] = kind(shift[low + j] + (np.float64(mean[j]) - wide[0, j]) * by)
        if _only_limits(activation):
            _normalise(y[:, low:high], x[:, low:high], mean, factor, offset, least, most)
            continue
        for start in range(0, rows, ROWS):
            stop = min(start + ROWS, rows)
            made = flat[: (stop - start) * width].reshape(stop - start, width)
            _normalise(made, x[start:stop, low:high], mean, factor, offset, least, most)
            activate_in_place(activation, flat[: made.size], numbers)
            _copy(y[start:stop, low:high], made)


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
    _normalise(y[:, lo:hi], x[:, lo:hi], means[lo:hi], factors, shift[lo:hi], -np.inf, np.inf)


@jit
def backward(
    gx: Array, by_scale: Array, by_shift: Array, g: Array, x: Array, scale: Array, shift: Array,
    means: Array, variances: Array, epsilon: float, activation: int, numbers: Array,
    lo: int, hi: int,
) -> None:  # fmt: skip
    """Columns lo to hi of the gradients; gx may be the memory of g.

    `activation` is one whose gradient follows from (x - mean) * factor + shift, or from its sign.
    """
    kind, rows = x.dtype.type, x.shape[0]
    wide = np.zeros((2, hi - lo), np.float64)
    parts = np.empty((5, hi - lo), x.dtype)
    factor, total, inner, level, tilt = parts[0], parts[1], parts[2], parts[3], parts[4]
    mean, shifted = means[lo:hi], shift[lo:hi]
    inverse = 1 / np.sqrt(variances[lo:hi].astype(np.float64) + epsilon)
    for j in range(hi - lo):
        factor[j] = kind(scale[lo + j] * inverse[j])
    is_limit = _only_limits(activation)
    passes = POSITIVE if activation == RELU else WITHIN if activation == CLIP else ANY
    least, most = _limits(activation, numbers)
    room = 0 if is_limit else min(ROWS, rows) * COLUMNS
    before, after = np.empty(room, x.dtype), np.empty(room, x.dtype)  # see `forward`
    for start in range(0, rows, ROWS):
        stop = min(start + ROWS, rows)
        d, own, given = gx[start:stop, lo:hi], x[start:stop, lo:hi], g[start:stop, lo:hi]
        for low in range(0, hi - lo, COLUMNS):
            high = min(low + COLUMNS, hi - lo)
            part = given[:, low:high]
            if not is_limit:
                size = part.size
                z = before[:size].reshape(part.shape)
                _normalise(
                    z, own[:, low:high], mean[low:high], factor[low:high], shifted[low:high],
                    -np.inf, np.inf,
                )  # fmt: skip
                _copy(after[:size].reshape(part.shape), part)
                differentiate_in_place(activation, after[:size], before[:size], numbers)
                _gradient_sums(
                    total[low:high], inner[low:high], d[:, low:high],
                    after[:size].reshape(part.shape), own[:, low:high], mean[low:high],
                    factor[low:high], shifted[low:high], ANY, least, most,
                )  # fmt: skip
                continue
            _gradient_sums(
                total[low:high], inner[low:high], d[:, low:high], part, own[:, low:high],
                mean[low:high], factor[low:high], shifted[low:high], passes, least, most,
            )  # fmt: skip
        for j in range(hi - lo):
            wide[0, j] += total[j]
            wide[1, j] += inner[j]
    for j in range(hi - lo):
        by_scale[lo + j] = wide[1, j] * inverse[j]
        by_shift[lo + j] = wide[0, j]
        level[j] = wide[0, j] / rows
        tilt[j] = wide[1, j] * inverse[j] * inverse[j] / rows
    _slopes(gx[:, lo:hi], x[:, lo:hi], mean, factor, level, tilt)
