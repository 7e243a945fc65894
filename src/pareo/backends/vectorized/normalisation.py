"""Local response normalisation, some images at a time, and dropout, block by block."""

from typing import Any

import numpy as np

from pareo.backends.vectorized.table import (
    Array,
    backend,
    bits,
    blocks,
    count_up,
    flags,
    images_at_once,
    one_block,
    select,
)
from pareo.operators.normalisation import FIRST_MIX, GOLDEN, SECOND_MIX, dropout_threshold
from pareo.spec import Spec


def _images(x: Spec) -> Spec:
    return x.like((images_at_once(x), *x.shape[1:]))


def _sum_neighbours(out: Array, a: Array, before: int, after: int) -> None:
    """For each channel of (n, C, H, W), the sum over it, `before` before and `after` after it."""
    np.copyto(out, a)
    channels = a.shape[1]
    for step in range(1, min(before, channels - 1) + 1):
        np.add(out[:, step:], a[:, :-step], out=out[:, step:])
    for step in range(1, min(after, channels - 1) + 1):
        np.add(out[:, :-step], a[:, step:], out=out[:, :-step])


def _divisor(out: Array, x: Array, work: Array, size: int, alpha: float, k: float) -> None:
    np.square(x, out=work)
    _sum_neighbours(out, work, size // 2, (size - 1) // 2)
    np.multiply(out, alpha / size, out=out)
    np.add(out, k, out=out)


def _power(out: Array, a: Array, beta: float) -> None:
    """a ** beta, beside a."""
    if beta == 0.75:  # AlexNet's value: two square roots cost a fraction of a power
        np.sqrt(a, out=out)
        np.multiply(out, a, out=out)
        np.sqrt(out, out=out)
    else:
        np.power(a, beta, out=out)


@backend.kernel(in_place=True, scratch=lambda out, x, **_: [_images(x)] * 2)
def lrn(
    out: Array,
    x: Array,
    size: int,
    alpha: float,
    beta: float,
    k: float,
    scratch: tuple[Array, Array],
) -> None:
    for start in range(0, len(x), len(scratch[0])):
        images = x[start : start + len(scratch[0])]
        divisor, work = (array[: len(images)] for array in scratch)
        _divisor(divisor, images, work, size, alpha, k)
        _power(work, divisor, beta)
        np.divide(images, work, out=out[start : start + len(images)])


@backend.kernel(in_place=True, scratch=lambda out, g, x, **_: [_images(x)] * 3)
def lrn_gradient(
    out: Array,
    g: Array,
    x: Array,
    size: int,
    alpha: float,
    beta: float,
    k: float,
    scratch: tuple[Array, Array, Array],
) -> None:
    for start in range(0, len(x), len(scratch[0])):
        images, errors = (a[start : start + len(scratch[0])] for a in (x, g))
        divisor, direct, work = (array[: len(images)] for array in scratch)
        _divisor(divisor, images, work, size, alpha, k)
        _power(direct, divisor, beta)
        np.divide(errors, direct, out=direct)
        np.multiply(direct, images, out=work)
        np.divide(work, divisor, out=work)
        _sum_neighbours(divisor, work, (size - 1) // 2, size // 2)
        np.multiply(divisor, 2 * alpha * beta / size, out=divisor)
        np.multiply(divisor, images, out=divisor)
        np.subtract(direct, divisor, out=out[start : start + len(images)])


def _hashes(out: Spec, *_: Spec, **__: Any) -> list[Spec]:
    block = one_block(out)
    return [*[Spec(block.shape, np.uint64)] * 3, flags(block), bits(block)]


@backend.kernel(in_place=True, strided=False, scratch=_hashes)
def dropout(out: Array, x: Array, seed: Array, rate: float, scratch: tuple[Array, ...]) -> None:
    factor = x.dtype.type(1 / (1 - rate))
    threshold = np.uint64(dropout_threshold(rate))
    first = int(seed) * GOLDEN
    count_up(scratch[0], 1)
    for result, value in blocks(out, x):
        position, mixed, work, kept, mask = (array[: value.size] for array in scratch)
        np.add(position, np.uint64(first % 2**64), out=mixed)
        _mix(mixed, work)
        np.greater_equal(mixed, threshold, out=kept)
        np.multiply(value, factor, out=result)
        select(result, result, kept, mask)
        first += value.size


def _mix(z: Array, work: Array) -> None:
    """Splitmix64's last steps, and of its result the upper 24 bits."""
    for shift, factor in ((30, FIRST_MIX), (27, SECOND_MIX), (31, None)):
        np.right_shift(z, np.uint64(shift), out=work)
        np.bitwise_xor(z, work, out=z)
        if factor is not None:
            np.multiply(z, np.uint64(factor), out=z)
    np.right_shift(z, np.uint64(40), out=z)
