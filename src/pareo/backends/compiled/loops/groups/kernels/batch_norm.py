"""Batch normalisation of a group of images that lie side by side.

A channel of a group is one row: all pixels, each with all images. Numbers of a channel are in
double precision. Images beyond the first `valid` of `lanes` only fill up a group.
"""

from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.kernels import batch_norm_loops as loops
from pareo.backends.compiled.loops.groups.kernels import moves
from pareo.backends.compiled.runtime.jit import jit, jit_strict


@jit_strict
def _offset(mean: float, exact: float) -> float:
    return np.float64(mean) - exact


@jit
def add_statistics(moments: Array, x: Array, lanes: int, valid: int, rest: Array) -> None:
    """Add a group to the count, mean and squared distances of each channel (channels, 3).

    x has an axis before the channels; `rest` has room for one of them.
    """
    for c in range(x.shape[1]):
        size = x.shape[2] // lanes * valid
        if valid == lanes:
            mean, variance = loops.statistics(x, c)
        else:
            at = 0
            for start in range(0, x.shape[2], lanes):
                for n in range(valid):
                    rest[at] = x[0, c, start + n]
                    at += 1
            mean, variance = loops.statistics(moves.block(rest.ctypes.data, 1, 1, size), 0)
        _merge(moments[c], size, mean, variance * size)


@jit
def _merge(moments: Array, size: float, mean: float, squares: float) -> None:
    """Add elements, given by their number, mean and squared distances from it."""
    if size > 0:
        count, middle, total = loops.merged(
            moments[0], moments[1], moments[2], size, mean, 0.0, squares
        )
        moments[0], moments[1], moments[2] = count, middle, total


@jit
def finish_statistics(out: Array, moments: Array, epsilon: float) -> None:
    """out (3, channels) = mean, variance and 1 / deviation, from what all workers have added.

    The numbers of a worker are a row of `moments`.
    """
    found = np.zeros(3)
    for c in range(out.shape[1]):
        found[:] = 0
        for worker in range(moments.shape[0]):
            at = 3 * c
            _merge(found, moments[worker, at], moments[worker, at + 1], moments[worker, at + 2])
        variance = found[2] / found[0]
        out[0, c] = found[1]
        out[1, c] = variance
        out[2, c] = 1 / np.sqrt(variance + epsilon)


@jit
def move(state: Array, now: Array, kept: float, share: float) -> None:
    """state = kept * state + share * now."""
    for c in range(state.size):
        state[c] = kept * state[c] + share * now[c]


@jit
def normalise(out: Array, x: Array, statistics: Array, scale: Array, shift: Array) -> None:
    """out = (x - mean) / deviation * scale + shift."""
    for c in range(x.shape[0]):
        mean, factor = np.float32(statistics[0, c]), np.float64(scale[c]) * statistics[2, c]
        offset = np.float32(shift[c] + _offset(mean, statistics[0, c]) * factor)
        loops.normalise(out[c], x[c], mean, np.float32(factor), offset)


@jit
def add_sums(sums: Array, g: Array, x: Array, statistics: Array) -> None:
    """Add a group to the sums of g, and of g times x's distance from the mean (channels, 2)."""
    for c in range(g.shape[0]):
        mean = np.float32(statistics[0, c])
        total, inner = 0.0, 0.0
        for start in range(0, g.shape[1], loops.BLOCK):
            stop = min(start + loops.BLOCK, g.shape[1])
            one, two = loops.sums(g[c, start:stop], x[c, start:stop], mean)
            total += one
            inner += two
        sums[c, 0] += total
        # The distances were those from the mean in single precision.
        sums[c, 1] += inner + _offset(mean, statistics[0, c]) * total


@jit
def finish_sums(out: Array, moments: Array) -> None:
    """out (2, channels) = both sums of all workers."""
    for c in range(out.shape[1]):
        for row in range(2):
            total = 0.0
            for worker in range(moments.shape[0]):
                total += moments[worker, 2 * c + row]
            out[row, c] = total


@jit
def add_gradient(out: Array, sums: Array, row: int, statistics: Array) -> None:
    """Add a worker's share of the gradient of shift (row 0) or scale (row 1)."""
    for c in range(out.size):
        factor = statistics[2, c] if row else 1.0
        out[c] += np.float32(sums[c, row] * factor)


@jit
def _line(statistics: Array, scale: Array, sums: Array, count: int, c: int) -> tuple[Any, ...]:
    """What the gradient of a channel's elements follows from: see `batch_norm_loops.slope`."""
    mean, inverse = np.float32(statistics[0, c]), statistics[2, c]
    tilt = sums[1, c] * inverse * inverse / count
    level = sums[0, c] / count + _offset(mean, statistics[0, c]) * tilt
    return mean, np.float32(scale[c] * inverse), np.float32(level), np.float32(tilt)


@jit
def _clear_rest(row: Array, lanes: int, valid: int) -> None:
    """Set what belongs to no image of the batch to 0."""
    for start in range(0, row.size, lanes):
        for n in range(valid, lanes):
            row[start + n] = 0


@jit
def gradient(
    out: Array, g: Array, x: Array, statistics: Array, scale: Array, sums: Array, count: int,
    lanes: int, valid: int,
) -> None:  # fmt: skip
    """The gradient of x from that of the normalised values, of which a channel has `count`."""
    for c in range(x.shape[0]):
        mean, factor, level, tilt = _line(statistics, scale, sums, count, c)
        loops.slope(out[c], g[c], x[c], mean, factor, level, tilt)
        if valid < lanes:
            _clear_rest(out[c], lanes, valid)


@jit
def gradient_in_place(
    g: Array, x: Array, statistics: Array, scale: Array, sums: Array, count: int, lanes: int,
    valid: int,
) -> None:  # fmt: skip
    """The same, written over g."""
    for c in range(x.shape[0]):
        mean, factor, level, tilt = _line(statistics, scale, sums, count, c)
        loops.slope_in_place(g[c], x[c], mean, factor, level, tilt)
        if valid < lanes:
            _clear_rest(g[c], lanes, valid)
