"""Loops of batch normalisation over some channels of float32 images (N, C, pixels).

They compute what those of `batch_norm_loops` do, for activations that need no power of e, with the
vectors of `batch_norm_pieces`. A channel is read several times, but stays in the cache between.
"""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.kernels.activations import CLIP, NONE, RELU
from pareo.backends.compiled.kernels.batch_norm_loops import BLOCK, merged
from pareo.backends.compiled.kernels.batch_norm_pieces import (
    gradient_sums_of_pieces,
    normalise_pieces,
    piece_moments,
    slope_of_pieces,
)
from pareo.backends.compiled.runtime.jit import jit

ACTIVATIONS = NONE, RELU, CLIP


@jit
def _at(a: Array, n: int, c: int, pixel: int) -> int:
    """The address of a pixel; 0 if the array has no images."""
    _, channels, pixels = a.shape
    return a.ctypes.data + 4 * ((n * channels + c) * pixels + pixel) if a.shape[0] else 0


@jit
def _statistics(x: Array, c: int, sums: Array) -> tuple[float, float]:
    """Mean and variance of a channel, in double precision, accurate where the mean is large."""
    images, channels, pixels = x.shape
    gap = 4 * channels * pixels
    count, mean, squares = 0.0, 0.0, 0.0
    together = max(1, BLOCK // max(1, pixels))  # small planes that make one block
    for n in range(0, images, together):
        rows = min(together, images - n)
        for low in range(0, pixels, BLOCK):
            each = min(BLOCK, pixels - low)
            given, size = _at(x, n, c, low), rows * each
            piece_moments(sums.ctypes.data, given, gap, rows, each, np.float32(0))
            near = np.float32(sums[0] / size)
            piece_moments(sums.ctypes.data, given, gap, rows, each, near)
            count, mean, squares = merged(count, mean, squares, size, near, sums[0], sums[1])
    return mean, squares / count


@jit
def _bounds(activation: int, low: float, high: float) -> tuple[float, float]:
    """The least and the greatest result of an activation."""
    if activation == CLIP:
        return low, high
    return 0.0 if activation == RELU else -np.inf, np.inf


@jit
def _normalise(
    out: Array, x: Array, rest: Array, c: int, mean: float, factor: float, shift: float,
    activation: int, low: float, high: float,
) -> None:  # fmt: skip
    """out = activation((x - mean) * factor + shift + rest) for one channel.

    Without anything to add, `rest` has no images. The mean is in double precision.
    """
    images, channels, pixels = x.shape
    near = np.float32(mean)
    offset = np.float32(shift - (mean - np.float64(near)) * factor)
    low, high = _bounds(activation, low, high)
    normalise_pieces(
        _at(out, 0, c, 0), _at(x, 0, c, 0), _at(rest, 0, c, 0), 4 * channels * pixels, images,
        pixels, near, np.float32(factor), offset, np.float32(low), np.float32(high),
    )  # fmt: skip


@jit
def forward(
    out: Array, means: Array, variances: Array, x: Array, scale: Array, shift: Array, rest: Array,
    epsilon: float, activation: int, low: float, high: float, lo: int, hi: int,
) -> None:  # fmt: skip
    """Channels lo to hi, normalised by their own statistics, which are stored."""
    sums = np.zeros(2, np.float32)
    for c in range(lo, hi):
        mean, variance = _statistics(x, c, sums)
        means[c] = mean
        variances[c] = variance
        factor = np.float64(scale[c]) / np.sqrt(variance + epsilon)
        _normalise(out, x, rest, c, mean, factor, np.float64(shift[c]), activation, low, high)


@jit
def forward_inference(
    out: Array, x: Array, scale: Array, shift: Array, means: Array, variances: Array, rest: Array,
    epsilon: float, activation: int, low: float, high: float, lo: int, hi: int,
) -> None:  # fmt: skip
    """Channels lo to hi, normalised by given statistics."""
    for c in range(lo, hi):
        factor = np.float64(scale[c]) / np.sqrt(np.float64(variances[c]) + epsilon)
        mean = np.float64(means[c])
        _normalise(out, x, rest, c, mean, factor, np.float64(shift[c]), activation, low, high)


@jit
def backward(
    gx: Array, d: Array, by_scale: Array, by_shift: Array, g: Array, more: Array, y: Array,
    x: Array, scale: Array, shift: Array, means: Array, variances: Array, epsilon: float,
    activation: int, low: float, high: float, lo: int, hi: int,
) -> None:  # fmt: skip
    """Channels lo to hi of the gradients; the arguments are those of `batch_norm_loops`."""
    images, channels, pixels = x.shape
    gap, count = 4 * channels * pixels, images * pixels
    is_written = (
        d.ctypes.data != g.ctypes.data or activation != NONE or more.shape[0] > 0 or y.shape[0] > 0
    )
    together = max(1, BLOCK // max(1, pixels))
    sums = np.zeros(2, np.float32)
    for c in range(lo, hi):
        mean = means[c]
        inverse = 1 / np.sqrt(np.float64(variances[c]) + epsilon)
        factor = np.float32(scale[c] * inverse)
        total, inner = 0.0, 0.0
        for n in range(0, images, together):
            rows = min(together, images - n)
            for start in range(0, pixels, BLOCK):
                gradient_sums_of_pieces(
                    sums.ctypes.data, _at(d, n, c, start) if is_written else 0,
                    _at(g, n, c, start), _at(more, n, c, start), _at(y, n, c, start),
                    _at(x, n, c, start), gap, rows, min(BLOCK, pixels - start), activation, mean,
                    factor, shift[c], low, high,
                )  # fmt: skip
                total += sums[0]
                inner += sums[1]
        by_scale[c] = inner * inverse
        by_shift[c] = total
        level = np.float32(total / count)
        tilt = np.float32(inner * inverse * inverse / count)
        slope_of_pieces(
            _at(gx, 0, c, 0), _at(d, 0, c, 0), _at(x, 0, c, 0), gap, images, pixels, mean, factor,
            level, tilt,
        )  # fmt: skip
