"""Batch, layer and local response normalisation, and dropout."""

from collections import defaultdict
from typing import Any

import numpy as np

from pareo.backends.sequential.numbers import Index, backend, divide, power, sqrt, store
from pareo.backends.sequential.reduction import folds
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


def centred(x: Any, indices: list[Index]) -> tuple[float, list[float], float]:
    """The mean of some elements, their distances from it, and the mean square of those."""
    total = 0.0
    for i in indices:
        total += float(x[i])
    mean = total / len(indices)
    distances = [float(x[i]) - mean for i in indices]
    squares = 0.0
    for distance in distances:
        squares += distance * distance
    return mean, distances, squares / len(indices)


def channels(x: Any) -> list[list[Index]]:
    """For each channel, the indices of its elements."""
    return list(folds(x.shape, (0, *range(2, x.ndim))))


@backend.kernel()
def batch_norm(out: Any, x: Any, scale: Any, shift: Any, *, epsilon: float) -> None:
    result, means, variances = out
    for c, indices in enumerate(channels(x)):
        means[c], distances, variance = centred(x, indices)
        variances[c] = variance
        factor = float(scale[c]) * divide(1, sqrt(variance + epsilon))
        for i, distance in zip(indices, distances, strict=True):
            result[i] = distance * factor + float(shift[c])


@backend.kernel()
def batch_norm_gradient(
    out: Any, g: Any, x: Any, scale: Any, mean: Any, variance: Any, *, epsilon: float
) -> None:
    to_x, to_scale, to_shift = out
    for c, indices in enumerate(channels(x)):
        if not indices:
            to_scale[c] = to_shift[c] = 0.0
            continue
        inverse = divide(1, sqrt(float(variance[c]) + epsilon))
        distances = [float(x[i]) - float(mean[c]) for i in indices]
        total, inner = 0.0, 0.0
        for i, distance in zip(indices, distances, strict=True):
            total += float(g[i])
            inner += float(g[i]) * distance
        to_scale[c], to_shift[c] = inner * inverse, total
        factor = float(scale[c]) * inverse
        level = divide(total, len(indices))
        slope = divide(inner * inverse * inverse, len(indices))
        for i, distance in zip(indices, distances, strict=True):
            to_x[i] = factor * (float(g[i]) - level - distance * slope)


@backend.kernel()
def batch_norm_inference(
    out: Any, x: Any, scale: Any, shift: Any, mean: Any, variance: Any, *, epsilon: float
) -> None:
    for c, indices in enumerate(channels(x)):
        if not indices:
            continue
        factor = divide(float(scale[c]), sqrt(float(variance[c]) + epsilon))
        for i in indices:
            out[i] = (float(x[i]) - float(mean[c])) * factor + float(shift[c])


@backend.kernel()
def layer_norm(out: Any, x: Any, scale: Any, shift: Any, *, axis: int, epsilon: float) -> None:
    for indices in folds(x.shape, [axis]):
        _, distances, variance = centred(x, indices)
        inverse = divide(1, sqrt(variance + epsilon))
        for i, distance in zip(indices, distances, strict=True):
            out[i] = distance * inverse * float(scale[i[axis]]) + float(shift[i[axis]])


@backend.kernel()
def layer_norm_gradient(out: Any, g: Any, x: Any, scale: Any, *, axis: int, epsilon: float) -> None:
    to_x, to_scale, to_shift = out
    by_scale, by_shift = (defaultdict[Index, float](float) for _ in range(2))
    for indices in folds(x.shape, [axis]):
        _, distances, variance = centred(x, indices)
        inverse = divide(1, sqrt(variance + epsilon))
        level, slope = 0.0, 0.0
        scaled, normal = [], []
        for i, distance in zip(indices, distances, strict=True):
            error, value = float(g[i]), distance * inverse
            by_scale[(i[axis],)] += error * value
            by_shift[(i[axis],)] += error
            weighted = error * float(scale[i[axis]])
            level += weighted
            slope += weighted * value
            scaled.append(weighted)
            normal.append(value)
        level, slope = level / len(indices), slope / len(indices)
        for i, weighted, value in zip(indices, scaled, normal, strict=True):
            to_x[i] = inverse * (weighted - level - value * slope)
    store(to_scale, by_scale)
    store(to_shift, by_shift)


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
