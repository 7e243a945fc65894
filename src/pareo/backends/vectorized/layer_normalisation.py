"""Layer normalisation, some lines at a time; an array is (lines, axis, inner)."""

from math import prod
from typing import Any

import numpy as np

from pareo.backends import sums
from pareo.backends.vectorized.table import BLOCK, Array, backend
from pareo.spec import Spec


def _lines(x: Array, axis: int) -> Array:
    return x.reshape(prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :]))


def _at_once(x: Spec, axis: int) -> int:
    return max(1, min(prod(x.shape[:axis]), 4 * BLOCK // max(prod(x.shape[axis:]), 1)))


def _room(x: Spec, axis: int, pieces: int, numbers: int) -> list[Spec]:
    """So many pieces of the array, so many numbers for each line of a piece, and room for sums."""
    shape = (_at_once(x, axis), x.shape[axis], prod(x.shape[axis + 1 :]))
    line = x.like((shape[0], 1, shape[2]))
    return [*[x.like(shape)] * pieces, *[line] * numbers, *sums.room(x.like(shape), (1,))]


def _mean(out: Array, a: Array, room: Any) -> None:
    sums.add_up(out, a, (1,), room)
    np.divide(out, a.shape[1], out=out)


def _normal(
    normal: Array, x: Array, inverse: Array, mean: Array, work: Array, epsilon: float, room: Any
) -> None:
    """x brought to mean 0 and variance 1, and 1 / its deviation."""
    _mean(mean, x, room)
    np.subtract(x, mean, out=normal)
    _mean(mean, normal, room)  # what the rounding of a large mean left
    np.subtract(normal, mean, out=normal)
    np.square(normal, out=work)
    _mean(inverse, work, room)
    np.add(inverse, epsilon, out=inverse)
    np.sqrt(inverse, out=inverse)
    np.reciprocal(inverse, out=inverse)
    np.multiply(normal, inverse, out=normal)


def _cut(scratch: tuple[Array, ...], count: int, own: int) -> tuple[list[Array], list[Array]]:
    """The work arrays for a piece of `count` lines: those of the kernel, and those of sums."""
    room = scratch[own:]
    return [a[:count] for a in scratch[:own]], [room[0], room[1][:count]] if room else []


@backend.kernel(
    in_place=(0,), strided=False, scratch=lambda out, x, *_, axis, **__: _room(x, axis, 2, 2)
)
def layer_norm(
    out: Array,
    x: Array,
    scale: Array,
    shift: Array,
    axis: int,
    epsilon: float,
    scratch: tuple[Array, ...],
) -> None:
    lines, results = _lines(x, axis), _lines(out, axis)
    for start in range(0, len(lines), len(scratch[0])):
        some = slice(start, start + len(scratch[0]))
        (normal, work, mean, inverse), room = _cut(scratch, len(lines[some]), 4)
        _normal(normal, lines[some], inverse, mean, work, epsilon, room)
        np.multiply(normal, scale[:, None], out=normal)
        np.add(normal, shift[:, None], out=results[some])


def _gradient_room(
    out: Any, g: Spec, x: Spec, scale: Spec, axis: int, epsilon: float
) -> list[Spec]:
    vector, rows = Spec(scale.shape, np.float64), x.like((_at_once(x, axis), x.shape[axis]))
    return [vector, vector, vector, rows, *_room(x, axis, 3, 3)]


def _down(total: Array, piece: Array, rows: Array, work: Array) -> None:
    """Add the sums of a piece over all but its middle axis to a vector of double precision."""
    if piece.shape[2] == 1:
        rows = piece[:, :, 0]
    else:
        np.add.reduce(piece, axis=2, out=rows)
    np.add.reduce(rows, axis=0, dtype=np.float64, out=work)
    np.add(total, work, out=total)


@backend.kernel(in_place=(0, -1, -1), strided=False, scratch=_gradient_room)
def layer_norm_gradient(
    out: tuple[Array, Array, Array],
    g: Array,
    x: Array,
    scale: Array,
    axis: int,
    epsilon: float,
    scratch: tuple[Array, ...],
) -> None:
    by_scale, by_shift, vector, *others = scratch
    by_scale[...] = 0
    by_shift[...] = 0
    lines, errors, results = (_lines(a, axis) for a in (x, g, out[0]))
    for start in range(0, len(lines), len(others[0])):
        some = slice(start, start + len(others[0]))
        own, room = _cut(tuple(others), len(lines[some]), 7)
        rows, normal, weighted, work, level, inverse, slope = own
        _normal(normal, lines[some], inverse, level, work, epsilon, room)
        np.multiply(errors[some], normal, out=work)
        _down(by_scale, work, rows, vector)
        _down(by_shift, errors[some], rows, vector)
        np.multiply(errors[some], scale[:, None], out=weighted)
        _mean(level, weighted, room)
        np.multiply(weighted, normal, out=work)
        _mean(slope, work, room)
        np.subtract(weighted, level, out=weighted)
        np.multiply(normal, slope, out=normal)
        np.subtract(weighted, normal, out=weighted)
        np.multiply(weighted, inverse, out=results[some])
    np.copyto(out[1], by_scale, casting="same_kind")
    np.copyto(out[2], by_shift, casting="same_kind")
