"""Local response normalisation and dropout."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import split, split_numbered, workers
from pareo.operators.normalisation import FIRST_MIX, GOLDEN, SECOND_MIX, dropout_threshold
from pareo.spec import Spec

kernel = backend.kernel
U = np.uint64


@jit
def _window_sum(total: Array, x: Array, c: int, before: int, after: int) -> None:
    """total[i] = the sum of x[other, i] ** 2 over the channels around c."""
    total[:] = 0
    for other in range(max(0, c - before), min(x.shape[0], c + after + 1)):
        for i in range(x.shape[1]):
            total[i] += x[other, i] * x[other, i]


@jit
def _powers(base: Array, beta: float) -> None:
    """base = base ** -beta; by square roots for the usual 0.75, which is ten times as fast."""
    if beta == 0.75:
        for i in range(base.size):
            root = 1 / np.sqrt(base[i])
            base[i] = root * np.sqrt(root)
    else:
        for i in range(base.size):
            base[i] = base[i] ** -beta


@jit
def lrn_planes(
    out: Array,
    buffer: Array,
    x: Array,
    lo: int,
    hi: int,
    size: int,
    slope: float,
    beta: float,
    k: float,
) -> None:
    """Channels lo to hi of x (N, C, pixels); slope is alpha / size, buffer has one plane."""
    factor = buffer[0]
    for n in range(x.shape[0]):
        for c in range(lo, hi):
            _window_sum(factor, x[n], c, size // 2, (size - 1) // 2)
            for i in range(factor.size):
                factor[i] = k + slope * factor[i]
            _powers(factor, beta)
            for i in range(factor.size):
                out[n, c, i] = x[n, c, i] * factor[i]


@jit
def lrn_planes_gradient(
    out: Array,
    buffer: Array,
    g: Array,
    x: Array,
    lo: int,
    hi: int,
    size: int,
    slope: float,
    beta: float,
    k: float,
) -> None:
    """buffer has two planes, and for every channel what it contributes to its neighbours."""
    before, after = size // 2, (size - 1) // 2
    base, factor, spread = buffer[0], buffer[1], buffer[2:]
    twice = slope * beta + slope * beta
    for n in range(x.shape[0]):
        for c in range(max(0, lo - after), min(x.shape[1], hi + before)):
            _window_sum(base, x[n], c, before, after)
            for i in range(base.size):
                base[i] = k + slope * base[i]
                factor[i] = base[i]
            _powers(factor, beta)
            for i in range(base.size):
                direct = g[n, c, i] * factor[i]
                factor[i] = direct
                spread[c, i] = direct * x[n, c, i] / base[i]
            if lo <= c < hi:
                out[n, c] = factor
        for c in range(lo, hi):
            base[:] = 0
            # Channel c is in the windows of these others.
            for other in range(max(0, c - after), min(x.shape[1], c + before + 1)):
                for i in range(base.size):
                    base[i] += spread[other, i]
            for i in range(base.size):
                out[n, c, i] -= twice * x[n, c, i] * base[i]


def _planes(a: Array) -> Array:
    return a.reshape(*a.shape[:2], a.shape[2] * a.shape[3])


def _constants(
    dtype: np.dtype, size: int, alpha: float, beta: float, k: float
) -> tuple[float, ...]:
    return (size, dtype.type(alpha / size), dtype.type(beta), dtype.type(k))


def _scratch(planes: int, each_channel: bool = False) -> Callable[..., list[Spec]]:
    """Work arrays for every worker: so many planes, and with `each_channel` one for each."""

    def specs(out: Spec, *operands: Spec, **_: Any) -> list[Spec]:
        number = planes + out.shape[1] if each_channel else planes
        return [out.like((workers(), number, out.shape[2] * out.shape[3]))]

    return specs


def _split(
    loop: Callable[..., None],
    out: Array,
    buffer: Array,
    operands: list[Array],
    numbers: tuple[float, ...],
) -> None:
    """Run a loop split by images, or by channels if there are few images."""
    images, channels = out.shape[:2]
    planes = [_planes(a) for a in operands]

    def some_images(part: int, lo: int, hi: int) -> None:
        given = [a[lo:hi] for a in planes]
        loop(_planes(out)[lo:hi], buffer[part], *given, 0, channels, *numbers)

    def some_channels(part: int, lo: int, hi: int) -> None:
        loop(_planes(out), buffer[part], *planes, lo, hi, *numbers)

    if images < workers():
        split_numbered(some_channels, channels)
    else:
        split_numbered(some_images, images)


@kernel(strided=False, scratch=_scratch(1), replayable=True)
def lrn(out: Array, x: Array, scratch: tuple[Array, ...], **how: Any) -> None:
    _split(lrn_planes, out, scratch[0], [x], _constants(x.dtype, **how))


@kernel(strided=False, scratch=_scratch(2, each_channel=True), replayable=True)
def lrn_gradient(out: Array, g: Array, x: Array, scratch: tuple[Array, ...], **how: Any) -> None:
    _split(lrn_planes_gradient, out, scratch[0], [g, x], _constants(x.dtype, **how))


@jit
def _dropout(
    out: Array, x: Array, seed: Array, first: int, threshold: np.uint64, factor: float
) -> None:
    """`first` is the position of the first element."""
    start = U(U(seed[0]) * U(GOLDEN) + U(first))
    for i in range(x.size):
        z = U(start + U(i))
        z = U((z ^ (z >> U(30))) * U(FIRST_MIX))
        z = U((z ^ (z >> U(27))) * U(SECOND_MIX))
        z = U(z ^ (z >> U(31)))
        out[i] = x[i] * factor if (z >> U(40)) >= threshold else x.dtype.type(0)


@kernel(in_place=True, strided=False, replayable=True)
def dropout(out: Array, x: Array, seed: Array, rate: float) -> None:
    flat, target, start = x.reshape(-1), out.reshape(-1), seed.reshape(-1)
    limit, factor = U(dropout_threshold(rate)), x.dtype.type(1 / (1 - rate))

    def work(lo: int, hi: int) -> None:
        _dropout(target[lo:hi], flat[lo:hi], start, lo, limit, factor)

    split(work, x.size, GRAIN)
