"""The steps of SGD, Adam and Lion, in place on parameter and state, block by block."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pareo.backends.vectorized.table import BLOCK, Array, backend
from pareo.spec import Spec


def _rows_at_once(shape: tuple[int, ...]) -> int:
    """How many rows of an array make about one block."""
    row = int(np.prod(shape[1:], dtype=np.int64))
    return max(1, min(BLOCK // max(row, 1), shape[0]))


def _piece(parameter: Spec, numbers: Sequence[Spec]) -> Spec:
    """A work array for one block."""
    shape = parameter.shape or (1,)
    if all(number.size == 1 for number in numbers):
        return parameter.like((min(parameter.size, BLOCK),))
    return parameter.like((_rows_at_once(shape), *shape[1:]))


def _blocks(
    work: Array, arrays: Sequence[Array], numbers: Sequence[Array]
) -> Iterator[list[Array]]:
    """The blocks of arrays of one shape, and of the numbers that broadcast to them."""
    if all(number.size == 1 for number in numbers):
        arrays = [array.reshape(-1) for array in arrays]
        numbers = [number.reshape(()) for number in numbers]
    shape = arrays[0].shape
    every = [*arrays, *(np.broadcast_to(number, shape) for number in numbers)]
    for start in range(0, shape[0], max(len(work), 1)):
        yield [array[start : start + len(work)] for array in every]


@backend.kernel(
    in_place=(0, 2),
    strided=False,
    scratch=lambda out, p, g, v, *n, nesterov: [_piece(p, n)] * (1 + nesterov),
)
def sgd(
    out: tuple[Array, Array],
    parameter: Array,
    gradient: Array,
    velocity: Array,
    rate: Array,
    momentum: Array,
    decay: Array,
    nesterov: bool,
    scratch: tuple[Array, ...],
) -> None:
    work = scratch[0]
    arrays = [*out, parameter, gradient, velocity]
    for new, speed, p, g, v, rho, mu, lam in _blocks(work, arrays, [rate, momentum, decay]):
        piece = work[: len(p)]
        np.multiply(mu, v, out=speed)
        np.add(speed, g, out=speed)
        np.multiply(lam, p, out=piece)
        np.add(speed, piece, out=speed)
        step = speed
        if nesterov:
            step = scratch[1][: len(p)]
            np.add(piece, g, out=piece)
            np.multiply(mu, speed, out=step)
            np.add(step, piece, out=step)
        np.multiply(rho, step, out=piece)
        np.subtract(p, piece, out=new)


def _shape(*numbers: Any) -> tuple[int, ...]:
    return np.broadcast_shapes(*(number.shape for number in numbers))


def _adam_room(
    out: Any, p: Spec, g: Spec, first: Spec, second: Spec, *numbers: Spec, decoupled: bool
) -> list[Spec]:
    rate, c1, c2, beta1, beta2, _, decay = numbers
    own = [_shape(beta1), _shape(beta2), _shape(rate, c1), _shape(c2), _shape(rate, decay)]
    piece = _piece(p, numbers)
    return [piece, piece, *(p.like(shape) for shape in own)]


@backend.kernel(in_place=(0, 2, 3), strided=False, scratch=_adam_room)
def adam(
    out: tuple[Array, Array, Array],
    parameter: Array,
    gradient: Array,
    first: Array,
    second: Array,
    rate: Array,
    first_correction: Array,
    second_correction: Array,
    beta1: Array,
    beta2: Array,
    epsilon: Array,
    decay: Array,
    decoupled: bool,
    scratch: tuple[Array, ...],
) -> None:
    work, slope, rest1, rest2, ratio, root, kept = scratch
    np.subtract(1, beta1, out=rest1)
    np.subtract(1, beta2, out=rest2)
    np.divide(rate, first_correction, out=ratio)
    np.sqrt(second_correction, out=root)
    np.multiply(rate, decay, out=kept)
    np.subtract(1, kept, out=kept)
    numbers = [beta1, rest1, beta2, rest2, ratio, root, epsilon, kept if decoupled else decay]
    arrays = [*out, parameter, gradient, first, second]
    for block in _blocks(work, arrays, numbers):
        new, m, s, p, g, old_m, old_s, b1, r1, b2, r2, rho, over, eps, lam = block
        d, piece = slope[: len(p)], work[: len(p)]
        np.multiply(lam, p, out=piece)
        if decoupled:
            np.copyto(d, g)
            np.copyto(new, piece)
        else:
            np.add(piece, g, out=d)
            np.copyto(new, p)
        np.multiply(r1, d, out=piece)
        np.multiply(b1, old_m, out=m)
        np.add(m, piece, out=m)
        np.multiply(d, d, out=d)
        np.multiply(r2, d, out=d)
        np.multiply(b2, old_s, out=s)
        np.add(s, d, out=s)
        np.sqrt(s, out=d)
        np.divide(d, over, out=d)
        np.add(d, eps, out=d)
        np.multiply(rho, m, out=piece)
        np.divide(piece, d, out=piece)
        np.subtract(new, piece, out=new)


def _lion_room(out: Any, p: Spec, g: Spec, velocity: Spec, *numbers: Spec) -> list[Spec]:
    rate, beta1, beta2, decay = numbers
    own = [_shape(beta1), _shape(beta2), _shape(rate, decay)]
    return [_piece(p, numbers)] * 2 + [p.like(shape) for shape in own]


@backend.kernel(in_place=(0, 2), strided=False, scratch=_lion_room)
def lion(
    out: tuple[Array, Array],
    parameter: Array,
    gradient: Array,
    velocity: Array,
    rate: Array,
    beta1: Array,
    beta2: Array,
    decay: Array,
    scratch: tuple[Array, ...],
) -> None:
    work, way, rest1, rest2, kept = scratch
    np.subtract(1, beta1, out=rest1)
    np.subtract(1, beta2, out=rest2)
    np.multiply(rate, decay, out=kept)
    np.subtract(1, kept, out=kept)
    arrays = [*out, parameter, gradient, velocity]
    numbers = [rate, beta1, rest1, beta2, rest2, kept]
    for new, speed, p, g, v, rho, b1, r1, b2, r2, lam in _blocks(work, arrays, numbers):
        d, piece = way[: len(p)], work[: len(p)]
        np.multiply(r1, g, out=piece)
        np.multiply(b1, v, out=d)
        np.add(d, piece, out=d)
        np.sign(d, out=d)
        np.multiply(rho, d, out=d)
        np.multiply(r2, g, out=piece)
        np.multiply(b2, v, out=speed)
        np.add(speed, piece, out=speed)
        np.multiply(lam, p, out=piece)
        np.subtract(piece, d, out=new)
