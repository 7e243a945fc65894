"""Gradients of activations and the sums for the bias before them, of images, in one pass.

A layer without normalisation needs both, and the sums would read the gradient again.
"""

from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.kernels.activations import RELU, SIGMOID, TANH
from pareo.backends.compiled.kernels.reduction import BLOCK
from pareo.backends.compiled.runtime.arrays import add_parts
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import split_numbered, workers
from pareo.spec import Spec

LEAST_PIXELS = 16  # of a plane: loops over fewer are slower than two passes


@jit
def _block(d: Array, g: Array, y: Array, activation: int) -> float:
    """d = g times the activation's derivative at y; the sum of d."""
    one, total = y.dtype.type(1), y.dtype.type(0)
    if activation == SIGMOID:
        for i in range(d.size):
            value = g[i] * y[i] * (one - y[i])
            d[i] = value
            total += value
    elif activation == TANH:
        for i in range(d.size):
            value = g[i] * (one - y[i] * y[i])
            d[i] = value
            total += value
    else:
        for i in range(d.size):
            given = g[i]  # read unconditionally, so that the loop is vectorised
            value = y.dtype.type(0) if y[i] <= 0 else given
            d[i] = value
            total += value
    return total


@jit
def _block_in_place(d: Array, y: Array, activation: int) -> float:
    """The same in the place of g: the compiler must know that they are one array."""
    one, total = y.dtype.type(1), y.dtype.type(0)
    if activation == SIGMOID:
        for i in range(d.size):
            d[i] = d[i] * y[i] * (one - y[i])
            total += d[i]
    elif activation == TANH:
        for i in range(d.size):
            d[i] = d[i] * (one - y[i] * y[i])
            total += d[i]
    else:
        for i in range(d.size):
            given = d[i]
            value = y.dtype.type(0) if y[i] <= 0 else given
            d[i] = value
            total += value
    return total


@jit
def _planes(
    sums: Array, d: Array, g: Array, y: Array, activation: int, low: int, high: int
) -> None:
    """Channels low to high of all images; sums, in double precision, are those of channels."""
    in_place = d.ctypes.data == g.ctypes.data
    for c in range(low, high):
        sums[c] = 0
    for n in range(d.shape[0]):
        for c in range(low, high):
            for start in range(0, d.shape[2], BLOCK):
                stop = min(start + BLOCK, d.shape[2])
                into, given = d[n, c, start:stop], y[n, c, start:stop]
                if in_place:
                    sums[c] += _block_in_place(into, given, activation)
                else:
                    sums[c] += _block(into, g[n, c, start:stop], given, activation)


def _scratch(out: tuple[Spec, Spec], g: Spec, y: Spec) -> list[Spec]:
    """The sums of every worker."""
    return [Spec((workers(), g.shape[1]), np.float64)]


def _run(
    out: tuple[Array, Array], g: Array, y: Array, activation: int, scratch: tuple[Array, ...]
) -> None:
    sums, (images, channels) = scratch[0], g.shape[:2]
    shape = images, channels, g.shape[2] * g.shape[3]
    d, errors, results = (a.reshape(shape) for a in (out[0], g, y))

    def by_images(part: int, lo: int, hi: int) -> None:
        _planes(sums[part], d[lo:hi], errors[lo:hi], results[lo:hi], activation, 0, channels)

    def by_channels(_: int, lo: int, hi: int) -> None:
        _planes(sums[0], d, errors, results, activation, lo, hi)

    # By images where there are enough, as convolutions are, so that a core has them at hand.
    if images >= workers():
        parts = split_numbered(by_images, images, max(1, GRAIN * images // (2 * g.size)))
    else:
        parts = 1
        split_numbered(by_channels, channels, max(1, GRAIN * channels // (2 * g.size)))
    add_parts(out[1], sums, parts)


def _suits(out: tuple[Spec, Spec], g: Spec, y: Spec) -> bool:
    pixels = g.shape[2] * g.shape[3] if g.ndim == 4 else 0
    return g.shape[0] > 0 and pixels >= LEAST_PIXELS


def _register(name: str, activation: int) -> None:
    def backward(
        out: tuple[Array, Array], g: Array, y: Array, *, scratch: tuple[Array, ...], **_: Any
    ) -> None:
        _run(out, g, y, activation, scratch)

    backward.__name__ = f"{name}_gradient_sums"
    pattern = f"d = {name}_gradient(g, y)\ns = sum(d, axis=(0, 2, 3), keepdims=False)"
    fusion = backend.fusion(
        pattern, "d s", when=_suits, scratch=_scratch, in_place=(0, -1), replayable=True
    )
    fusion(backward)


for _name, _activation in (("sigmoid", SIGMOID), ("tanh", TANH), ("relu", RELU)):
    _register(_name, _activation)
