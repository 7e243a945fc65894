"""Batch normalisation, some images at a time.

The mean is subtracted before anything is squared, and the sums are kept in double precision, so
that a large mean costs no accuracy.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from pareo.backends.vectorized.table import Array, backend, images_at_once
from pareo.spec import Spec


def _planes(x: Array) -> Array:
    """(N, C, ...) as (N, C, pixels)."""
    return x.reshape(*x.shape[:2], -1) if x.size else x.reshape(*x.shape[:2], 0)


def _pieces(x: Array) -> Iterator[slice]:
    at_once = images_at_once(Spec.of(x))
    for start in range(0, len(x), at_once):
        yield slice(start, min(start + at_once, len(x)))


def _add_up(total: Array, piece: Array, lines: Array, work: Array) -> None:
    """Add to `total`, in double precision, the sums of the channels of (n, C, pixels)."""
    if piece.shape[2] == 1:
        sums = piece[:, :, 0]
    else:
        sums = lines[: len(piece)]
        np.add.reduce(piece, axis=2, out=sums)
    np.add.reduce(sums, axis=0, dtype=np.float64, out=work)
    np.add(total, work, out=total)


def _room(out: Any, x: Spec, *others: Spec, epsilon: float) -> list[Spec]:
    """One piece of the images, the sums of its lines, and some vectors."""
    at_once, channels = images_at_once(x), x.shape[1]
    image = x.size // max(x.shape[0], 1)
    return [
        x.like((at_once * image,)),
        x.like((at_once, channels)),
        *[Spec((channels,), np.float64)] * 4,
        *[x.like((channels,))] * 3,
    ]


def _inverse(out: Array, variance: Array, epsilon: float) -> None:
    """1 / sqrt(variance + epsilon)."""
    np.add(variance, epsilon, out=out)
    np.sqrt(out, out=out)
    np.reciprocal(out, out=out)


def _moments(
    planes: Array,
    mean: Array,
    means: Array,
    squares: Array,
    work: Array,
    space: Array,
    lines: Array,
) -> None:
    """The means, rounded in `mean`; what rounding left of them in `means`; and the variances."""
    count = planes.shape[0] * planes.shape[2]
    means[...] = 0
    for some in _pieces(planes):
        _add_up(means, planes[some], lines, work)
    np.divide(means, count, out=means)
    np.copyto(mean, means, casting="same_kind")
    means[...] = 0
    squares[...] = 0
    for some in _pieces(planes):
        piece = planes[some]
        distances = space[: piece.size].reshape(piece.shape)
        np.subtract(piece, mean[:, None], out=distances)
        _add_up(means, distances, lines, work)
        np.square(distances, out=distances)
        _add_up(squares, distances, lines, work)
    np.divide(means, count, out=means)
    np.divide(squares, count, out=squares)
    np.square(means, out=work)
    np.subtract(squares, work, out=squares)


@backend.kernel(in_place=(0, -1, -1), strided=False, scratch=_room)
def batch_norm(
    out: tuple[Array, Array, Array],
    x: Array,
    scale: Array,
    shift: Array,
    epsilon: float,
    scratch: tuple[Array, ...],
) -> None:
    space, lines, rest, squares, work, factors, factor, level, _ = scratch
    result, mean, variance = out
    _moments(_planes(x), mean, rest, squares, work, space, lines)
    np.copyto(variance, squares, casting="same_kind")
    _inverse(factors, squares, epsilon)
    np.multiply(factors, scale, out=factors)
    np.copyto(factor, factors, casting="same_kind")
    np.multiply(rest, factors, out=rest)
    np.subtract(shift, rest, out=rest)
    np.copyto(level, rest, casting="same_kind")
    _apply(result, x, mean, factor, level)


def _apply(out: Array, x: Array, mean: Array, factor: Array, shift: Array) -> None:
    """(x - mean) * factor + shift."""
    planes, results = _planes(x), _planes(out)
    for some in _pieces(planes):
        np.subtract(planes[some], mean[:, None], out=results[some])
        np.multiply(results[some], factor[:, None], out=results[some])
        np.add(results[some], shift[:, None], out=results[some])


def _vectors(out: Spec, x: Spec, scale: Spec, *_: Spec, epsilon: float) -> list[Spec]:
    return [scale]


@backend.kernel(in_place=(0,), strided=False, scratch=_vectors)
def batch_norm_inference(
    out: Array,
    x: Array,
    scale: Array,
    shift: Array,
    mean: Array,
    variance: Array,
    epsilon: float,
    scratch: tuple[Array],
) -> None:
    (factor,) = scratch
    np.add(variance, epsilon, out=factor)
    np.sqrt(factor, out=factor)
    np.divide(scale, factor, out=factor)
    _apply(out, x, mean, factor, shift)


def _gradient_room(out: Any, g: Spec, x: Spec, *others: Spec, epsilon: float) -> list[Spec]:
    return _room(out, x, *others, epsilon=epsilon)


@backend.kernel(in_place=(0, -1, -1), strided=False, scratch=_gradient_room)
def batch_norm_gradient(
    out: tuple[Array, Array, Array],
    g: Array,
    x: Array,
    scale: Array,
    mean: Array,
    variance: Array,
    epsilon: float,
    scratch: tuple[Array, ...],
) -> None:
    space, lines, total, inner, work, inverse, factor, level, slope = scratch
    planes, errors = _planes(x), _planes(g)
    total[...] = 0
    inner[...] = 0
    for some in _pieces(planes):
        product = space[: planes[some].size].reshape(planes[some].shape)
        np.subtract(planes[some], mean[:, None], out=product)
        np.multiply(product, errors[some], out=product)
        _add_up(inner, product, lines, work)
        _add_up(total, errors[some], lines, work)
    np.copyto(work, variance)
    _inverse(inverse, work, epsilon)
    np.multiply(inner, inverse, out=inner)
    count = max(planes.shape[0] * planes.shape[2], 1)
    np.multiply(inner, inverse, out=work)
    np.divide(work, count, out=work)
    np.copyto(slope, work, casting="same_kind")
    np.divide(total, count, out=work)
    np.copyto(level, work, casting="same_kind")
    np.multiply(inverse, scale, out=work)
    np.copyto(factor, work, casting="same_kind")
    results = _planes(out[0])
    for some in _pieces(planes):
        distances = space[: planes[some].size].reshape(planes[some].shape)
        np.subtract(planes[some], mean[:, None], out=distances)
        np.multiply(distances, slope[:, None], out=distances)
        np.subtract(errors[some], level[:, None], out=results[some])
        np.subtract(results[some], distances, out=results[some])
        np.multiply(results[some], factor[:, None], out=results[some])
    np.copyto(out[1], inner, casting="same_kind")
    np.copyto(out[2], total, casting="same_kind")
