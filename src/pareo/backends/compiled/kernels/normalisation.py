"""Local response normalisation and dropout."""

from typing import Any

import numpy as np

from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import split, split_numbered, workers
from pareo.operators.normalisation import FIRST_MIX, GOLDEN, SECOND_MIX, dropout_threshold
from pareo.spec import Spec

kernel = backend.kernel
U = np.uint64


@jit
def _window_sum(total: Any, x: Any, c: int, before: int, after: int) -> None:
    """total[i] = sum of x[other, i] squared over the channels around c."""
    total[:] = 0
    for other in range(max(0, c - before), min(x.shape[0], c + after + 1)):
        for i in range(x.shape[1]):
            total[i] += x[other, i] * x[other, i]


@jit
def _powers(base: Any, beta: Any) -> None:
    """base = base ** -beta, by square roots for the usual 0.75: a general power costs ten times."""
    if beta == 0.75:
        for i in range(base.size):
            root = 1 / np.sqrt(base[i])
            base[i] = root * np.sqrt(root)
    else:
        for i in range(base.size):
            base[i] = base[i] ** -beta


@jit
def _lrn(
    out: Any, room: Any, x: Any, lo: int, hi: int, size: int, slope: Any, beta: Any, k: Any
) -> None:
    """Channels lo to hi of x[n, c, i], (N, C, pixels); slope is alpha / size; room: one plane."""
    factor = room[0]
    for n in range(x.shape[0]):
        for c in range(lo, hi):
            _window_sum(factor, x[n], c, size // 2, (size - 1) // 2)
            for i in range(factor.size):
                factor[i] = k + slope * factor[i]
            _powers(factor, beta)
            for i in range(factor.size):
                out[n, c, i] = x[n, c, i] * factor[i]


@jit
def _lrn_gradient(
    out: Any, room: Any, g: Any, x: Any, lo: int, hi: int, size: int, slope: Any, beta: Any, k: Any
) -> None:
    """room holds two planes, and for every channel what it passes on to its neighbours."""
    before, after = size // 2, (size - 1) // 2
    base, factor, reach = room[0], room[1], room[2:]
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
                reach[c, i] = direct * x[n, c, i] / base[i]
            if lo <= c < hi:
                out[n, c] = factor
        for c in range(lo, hi):
            base[:] = 0
            # Channel c lies in the windows of these others.
            for other in range(max(0, c - after), min(x.shape[1], c + before + 1)):
                for i in range(base.size):
                    base[i] += reach[other, i]
            for i in range(base.size):
                out[n, c, i] -= twice * x[n, c, i] * base[i]


def _planes(a: Any) -> Any:
    return a.reshape(*a.shape[:2], a.shape[2] * a.shape[3])


def _constants(dtype: Any, size: int, alpha: float, beta: float, k: float) -> tuple[Any, ...]:
    return (size, dtype.type(alpha / size), dtype.type(beta), dtype.type(k))


def _room(planes: int) -> Any:
    """Work arrays of so many planes for every worker, and with -2 one more for each channel."""

    def specs(out: Spec, *operands: Spec, **_: Any) -> list[Spec]:
        number = -planes + out.shape[1] if planes < 0 else planes
        return [out.like((workers(), number, out.shape[2] * out.shape[3]))]

    return specs


def _split(loop: Any, out: Any, room: Any, operands: list[Any], numbers: Any) -> None:
    """Run a loop by images, or by channels where there are few images."""
    images, channels = out.shape[:2]
    planes = [_planes(a) for a in operands]

    def some_images(part: int, lo: int, hi: int) -> None:
        given = [a[lo:hi] for a in planes]
        loop(_planes(out)[lo:hi], room[part], *given, 0, channels, *numbers)

    def some_channels(part: int, lo: int, hi: int) -> None:
        loop(_planes(out), room[part], *planes, lo, hi, *numbers)

    if images < workers():
        split_numbered(some_channels, channels)
    else:
        split_numbered(some_images, images)


@kernel(strided=False, scratch=_room(1))
def lrn(out: Any, x: Any, scratch: tuple[Any, ...], **how: Any) -> None:
    _split(_lrn, out, scratch[0], [x], _constants(x.dtype, **how))


@kernel(strided=False, scratch=_room(-2))
def lrn_gradient(out: Any, g: Any, x: Any, scratch: tuple[Any, ...], **how: Any) -> None:
    _split(_lrn_gradient, out, scratch[0], [g, x], _constants(x.dtype, **how))


@jit
def _dropout(out: Any, x: Any, start: Any, threshold: Any, factor: Any) -> None:
    """`start` is the position of the first element plus the seed's golden steps."""
    for i in range(x.size):
        z = U(start + U(i))
        z = U((z ^ (z >> U(30))) * U(FIRST_MIX))
        z = U((z ^ (z >> U(27))) * U(SECOND_MIX))
        z = U(z ^ (z >> U(31)))
        out[i] = x[i] * factor if (z >> U(40)) >= threshold else x.dtype.type(0)


@kernel(in_place=True, strided=False)
def dropout(out: Any, x: Any, seed: Any, rate: float) -> None:
    first = int(seed) * GOLDEN
    flat, target = x.reshape(-1), out.reshape(-1)
    limit, factor = U(dropout_threshold(rate)), x.dtype.type(1 / (1 - rate))

    def work(lo: int, hi: int) -> None:
        start = U((first + lo) % (1 << 64))
        _dropout(target[lo:hi], flat[lo:hi], start, limit, factor)

    split(work, x.size, GRAIN)
