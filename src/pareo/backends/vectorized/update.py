"""The step of stochastic gradient descent, in place on parameter and velocity."""

import numpy as np

from pareo.backends.vectorized.table import BLOCK, Array, backend
from pareo.spec import Spec


def _rows_at_once(shape: tuple[int, ...]) -> int:
    """How many rows of an array make about one block."""
    row = int(np.prod(shape[1:], dtype=np.int64))
    return max(1, min(BLOCK // max(row, 1), shape[0]))


def _step(out: tuple[Spec, Spec], parameter: Spec, *others: Spec) -> list[Spec]:
    shape = parameter.shape or (1,)
    if all(number.size == 1 for number in others[2:]):
        return [parameter.like((min(parameter.size, BLOCK),))]
    return [parameter.like((_rows_at_once(shape), *shape[1:]))]


@backend.kernel(in_place=(0, 2), strided=False, scratch=_step)
def sgd(
    out: tuple[Array, Array],
    parameter: Array,
    gradient: Array,
    velocity: Array,
    rate: Array,
    momentum: Array,
    decay: Array,
    scratch: tuple[Array],
) -> None:
    (work,) = scratch
    arrays = [*out, parameter, gradient, velocity]
    numbers = [rate, momentum, decay]
    if all(number.size == 1 for number in numbers):
        arrays = [array.reshape(-1) for array in arrays]
        numbers = [number.reshape(()) for number in numbers]
    shape = arrays[0].shape
    arrays += [np.broadcast_to(number, shape) for number in numbers]
    for start in range(0, shape[0], max(len(work), 1)):
        new, speed, p, g, v, rho, mu, lam = (a[start : start + len(work)] for a in arrays)
        piece = work[: len(p)]
        np.multiply(mu, v, out=speed)
        np.add(speed, g, out=speed)
        np.multiply(lam, p, out=piece)
        np.add(speed, piece, out=speed)
        np.multiply(rho, speed, out=piece)
        np.subtract(p, piece, out=new)
