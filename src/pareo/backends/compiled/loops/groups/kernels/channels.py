"""Normalisations across the channels of each image of a group.

The images of a group are more pixels to them: an array is (before, channels, after and images).
"""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.kernels.layer_norm import (
    COLUMNS,
    normalise_columns,
    normalise_columns_gradient,
)
from pareo.backends.compiled.kernels.normalisation import lrn_planes, lrn_planes_gradient
from pareo.backends.compiled.runtime.jit import jit


@jit
def lrn(out: Array, x: Array, work: Array, size: int, numbers: Array) -> None:
    """Local response normalisation; the numbers are alpha / size, beta and k."""
    lrn_planes(out, work, x, 0, x.shape[1], size, numbers[0], numbers[1], numbers[2])


@jit
def lrn_gradient(out: Array, g: Array, x: Array, work: Array, size: int, numbers: Array) -> None:
    """Its gradient."""
    slope, beta, k = numbers[0], numbers[1], numbers[2]
    lrn_planes_gradient(out, work, g, x, 0, x.shape[1], size, slope, beta, k)


@jit
def layer_norm(out: Array, x: Array, scale: Array, shift: Array, epsilon: float) -> None:
    """Layer normalisation."""
    pieces = (x.shape[2] + COLUMNS - 1) // COLUMNS
    normalise_columns(out, x, scale, shift, epsilon, 0, x.shape[0] * pieces, pieces)


@jit
def layer_norm_gradient(
    out: Array, by_scale: Array, by_shift: Array, g: Array, x: Array, scale: Array, sums: Array,
    epsilon: float,
) -> None:  # fmt: skip
    """Its gradient; those of scale and shift are added to what is there.

    `sums` are two numbers in double precision for each channel, to work in.
    """
    sums[:] = 0
    pieces = (x.shape[2] + COLUMNS - 1) // COLUMNS
    count = x.shape[0] * pieces
    normalise_columns_gradient(out, sums[0], sums[1], g, x, scale, epsilon, 0, count, pieces)
    for j in range(scale.size):
        by_scale[j] += np.float32(sums[0, j])
        by_shift[j] += np.float32(sums[1, j])
