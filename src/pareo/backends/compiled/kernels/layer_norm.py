"""Layer normalisation along any axis."""

import math
from collections.abc import Callable

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.kernels import layer_norm_pixels, layer_norm_rows
from pareo.backends.compiled.runtime.arrays import add_parts, fill
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import split, split_numbered, workers
from pareo.spec import Spec

kernel = backend.kernel
COLUMNS = 128  # that are normalised at a time, where the axis is not the last


@jit
def _column_statistics(
    means: Array, inverses: Array, x: Array, low: int, high: int, epsilon: float
) -> None:
    """Of columns low to high of x (size, columns); both results are in double precision."""
    means[:] = 0
    inverses[:] = 0
    for j in range(x.shape[0]):
        for k in range(low, high):
            means[k - low] += x[j, k]
    for k in range(high - low):
        means[k] /= x.shape[0]
    for j in range(x.shape[0]):
        for k in range(low, high):
            d = np.float64(x[j, k]) - means[k - low]
            inverses[k - low] += d * d
    for k in range(high - low):
        inverses[k] = 1 / np.sqrt(inverses[k] / x.shape[0] + epsilon)


@jit
def normalise_columns(
    out: Array, x: Array, scale: Array, shift: Array, epsilon: float, lo: int, hi: int, pieces: int
) -> None:
    """Pieces lo to hi of all columns of x (before, size, after); a row has `pieces` of them."""
    means, inverses = np.empty(COLUMNS), np.empty(COLUMNS)
    for piece in range(lo, hi):
        i, low = piece // pieces, piece % pieces * COLUMNS
        high = min(low + COLUMNS, x.shape[2])
        _column_statistics(means, inverses, x[i], low, high, epsilon)
        for j in range(x.shape[1]):
            for k in range(low, high):
                d = (np.float64(x[i, j, k]) - means[k - low]) * inverses[k - low]
                out[i, j, k] = d * scale[j] + shift[j]


@jit
def normalise_columns_gradient(
    gx: Array, by_scale: Array, by_shift: Array, g: Array, x: Array, scale: Array,
    epsilon: float, lo: int, hi: int, pieces: int,
) -> None:  # fmt: skip
    means, inverses = np.empty(COLUMNS), np.empty(COLUMNS)
    totals, inners = np.empty(COLUMNS), np.empty(COLUMNS)
    for piece in range(lo, hi):
        i, low = piece // pieces, piece % pieces * COLUMNS
        high = min(low + COLUMNS, x.shape[2])
        _column_statistics(means, inverses, x[i], low, high, epsilon)
        totals[:] = 0
        inners[:] = 0
        for j in range(x.shape[1]):
            one, two = 0.0, 0.0
            for k in range(low, high):
                given = np.float64(g[i, j, k])
                value = (np.float64(x[i, j, k]) - means[k - low]) * inverses[k - low]
                one += given * value
                two += given
                totals[k - low] += given * scale[j]
                inners[k - low] += given * scale[j] * value
            by_scale[j] += one
            by_shift[j] += two
        for k in range(high - low):
            totals[k] /= x.shape[1]
            inners[k] /= x.shape[1]
        for j in range(x.shape[1]):
            for k in range(low, high):
                value = (np.float64(x[i, j, k]) - means[k - low]) * inverses[k - low]
                slope = np.float64(g[i, j, k]) * scale[j] - totals[k - low]
                gx[i, j, k] = inverses[k - low] * (slope - value * inners[k - low])


def _shape(x: Array | Spec, axis: int) -> tuple[int, int, int]:
    return math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])


def _split_pixels(
    work: Callable[[int, int, int], None], shape: tuple[int, int, int], passes: int
) -> int:
    """Divide all images' pieces; how many parts there are."""
    before, size, after = shape
    pieces = layer_norm_pixels.pieces(after)
    least = GRAIN * pieces // max(1, passes * size * after)
    return split_numbered(work, before * pieces, max(1, least))


@kernel(strided=False, replayable=True)
def layer_norm(out: Array, x: Array, scale: Array, shift: Array, axis: int, epsilon: float) -> None:
    before, size, after = shape = _shape(x, axis)
    target, given = out.reshape(shape), x.reshape(shape)

    def rows(_: int, lo: int, hi: int) -> None:
        to_rows, of_rows = (a.reshape(before, size)[lo:hi] for a in (target, given))
        layer_norm_rows.forward(to_rows, of_rows, scale, shift, epsilon)

    pieces = -(-after // COLUMNS)

    def columns(_: int, lo: int, hi: int) -> None:
        normalise_columns(target, given, scale, shift, epsilon, lo, hi, pieces)

    def pixels(_: int, lo: int, hi: int) -> None:
        layer_norm_pixels.forward(target, given, scale, shift, epsilon, lo, hi)

    if after == 1:
        split_numbered(rows, before, max(1, GRAIN // (4 * size)))
    elif layer_norm_pixels.suits(x, size):
        _split_pixels(pixels, shape, 4)
    else:
        least = max(1, GRAIN // (4 * size * COLUMNS))
        split_numbered(columns, before * pieces, least)


def _sums_scratch(
    out: tuple[Spec, ...], g: Spec, x: Spec, scale: Spec, axis: int, epsilon: float
) -> list[Spec]:
    """Statistics of each row; for columns, sums in double precision for each worker."""
    before, _, after = _shape(x, axis)
    if after == 1:
        return [x.like((before, 3))]
    return [Spec((workers(), scale.size), np.float64)] * 2


@kernel(strided=False, scratch=_sums_scratch, replayable=True)
def layer_norm_gradient(
    out: tuple[Array, Array, Array], g: Array, x: Array, scale: Array, axis: int, epsilon: float,
    scratch: tuple[Array, ...],
) -> None:  # fmt: skip
    shape = _shape(x, axis)
    if shape[2] == 1:
        _rows_gradient(out, g, x, scale, epsilon, scratch[0])
        return
    gx, errors, given = out[0].reshape(shape), g.reshape(shape), x.reshape(shape)
    by_scale, by_shift = scratch
    fill(by_scale, 0)
    fill(by_shift, 0)
    before, size, after = shape
    pieces = -(-after // COLUMNS)

    def columns(part: int, lo: int, hi: int) -> None:
        normalise_columns_gradient(
            gx, by_scale[part], by_shift[part], errors, given, scale, epsilon, lo, hi, pieces
        )

    def pixels(part: int, lo: int, hi: int) -> None:
        layer_norm_pixels.backward(
            gx, by_scale[part], by_shift[part], errors, given, scale, epsilon, lo, hi
        )

    if layer_norm_pixels.suits(x, size):
        parts = _split_pixels(pixels, shape, 8)
    else:
        least = max(1, GRAIN // (8 * size * COLUMNS))
        parts = split_numbered(columns, before * pieces, least)
    add_parts(out[1], by_scale, parts)
    add_parts(out[2], by_shift, parts)


def _rows_gradient(
    out: tuple[Array, Array, Array], g: Array, x: Array, scale: Array, epsilon: float,
    statistics: Array,
) -> None:  # fmt: skip
    """The gradients where the axis is the last: of the rows, then of scale and shift."""
    gx, errors, given = (a.reshape(-1, scale.size) for a in (out[0], g, x))
    by_scale, by_shift = out[1:]
    split(
        lambda lo, hi: layer_norm_rows.backward(
            gx[lo:hi], statistics[lo:hi], errors[lo:hi], given[lo:hi], scale, epsilon
        ),
        len(gx),
        max(1, GRAIN // (4 * scale.size)),
    )
    split(
        lambda lo, hi: layer_norm_rows.column_sums(
            by_scale, by_shift, statistics, errors, given, lo, hi
        ),
        scale.size,
        max(16, GRAIN // max(1, 2 * len(gx))),
    )
