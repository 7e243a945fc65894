"""Local response normalisation and dropout."""

from collections import defaultdict
from typing import Any

import numpy as np

from pareo.backends.sequential.numbers import Index, backend, divide, power
from pareo.operators.normalisation import FIRST_MIX, GOLDEN, SECOND_MIX, dropout_threshold


def neighbours(c: int, size: int, channels: int) -> range:
    """The channels that normalise channel c: size // 2 before it, the others from it on."""
    start = c - size // 2
    return range(max(start, 0), min(start + size, channels))


def base(x: Any, index: Index, size: int, share: float, k: float) -> float:
    """k + share * (sum of squares), the number whose power divides x at this index."""
    n, c, i, j = index
    total = 0.0
    for channel in neighbours(c, size, x.shape[1]):
        total += float(x[n, channel, i, j]) * float(x[n, channel, i, j])
    return k + share * total


@backend.kernel()
def lrn(out: Any, x: Any, *, size: int, alpha: float, beta: float, k: float) -> None:
    share = alpha / size
    for index in np.ndindex(x.shape):
        out[index] = divide(float(x[index]), power(base(x, index, size, share, k), beta))


@backend.kernel()
def lrn_gradient(
    out: Any, g: Any, x: Any, *, size: int, alpha: float, beta: float, k: float
) -> None:
    """Each output's error goes to its own x, and through `base` to all of its neighbours."""
    share = alpha / size
    direct: dict[Index, float] = {}
    around: dict[Index, float] = defaultdict(float)
    for index in np.ndindex(x.shape):
        n, c, i, j = index
        divisor = base(x, index, size, share, k)
        direct[index] = divide(float(g[index]), power(divisor, beta))
        pull = divide(direct[index] * float(x[index]), divisor)
        for channel in neighbours(c, size, x.shape[1]):
            around[n, channel, i, j] += pull
    slope = 2 * beta * share
    for index in np.ndindex(x.shape):
        out[index] = direct[index] - slope * float(x[index]) * around[index]


def drawn(position: int, seed: int) -> int:
    """24 random bits for the element at a position: always the same for the same seed."""
    z = (position + seed * GOLDEN) % 2**64
    z = (z ^ (z >> 30)) * FIRST_MIX % 2**64
    z = (z ^ (z >> 27)) * SECOND_MIX % 2**64
    return (z ^ (z >> 31)) >> 40


@backend.kernel(in_place=True)
def dropout(out: Any, x: Any, seed: Any, *, rate: float) -> None:
    factor = float(out.dtype.type(1 / (1 - rate)))  # rounded first, as on every device
    threshold = dropout_threshold(rate)
    for position, i in enumerate(np.ndindex(x.shape)):
        scaled = float(x[i]) * factor
        out[i] = scaled if drawn(position, int(seed[()])) >= threshold else 0.0
