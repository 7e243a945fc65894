"""The activations of newer networks, block by block, so that every pass finds its data in cache."""

from typing import Any

import numpy as np

from pareo.backends.vectorized.normal import distribution
from pareo.backends.vectorized.table import (
    Array,
    backend,
    bits,
    blocks,
    flags,
    one_block,
    select,
)
from pareo.operators.activation import CUBE, DENSITY, TWICE
from pareo.spec import Spec


def _work(count: int) -> Any:
    def work(out: Spec, *_: Spec, **__: Any) -> list[Spec]:
        return [one_block(out)] * count

    return work


def _logistic(out: Array, a: Array, square: Array) -> None:
    """1 / (1 + exp(-u)) with the u of the approximate gelu."""
    np.multiply(square, -TWICE * CUBE, out=out)
    np.subtract(out, TWICE, out=out)
    np.multiply(out, a, out=out)
    np.exp(out, out=out)
    np.add(out, 1, out=out)
    np.reciprocal(out, out=out)


@backend.kernel(in_place=True, strided=False, scratch=_work(4))
def gelu(out: Array, a: Array, approximate: bool, scratch: tuple[Array, ...]) -> None:
    for result, value in blocks(out, a):
        share, *work = (array[: value.size] for array in scratch)
        if approximate:
            np.square(value, out=work[0])
            _logistic(share, value, work[0])
        else:
            distribution(share, value, *work)
        np.multiply(value, share, out=result)


@backend.kernel(in_place=True, strided=False, scratch=_work(4))
def gelu_gradient(
    out: Array, g: Array, a: Array, approximate: bool, scratch: tuple[Array, ...]
) -> None:
    for result, error, value in blocks(out, g, a):
        share, power, *work = (array[: value.size] for array in scratch)
        if approximate:
            square, rest = work
            np.square(value, out=square)
            _logistic(share, value, square)
            np.subtract(1, share, out=rest)
            np.multiply(rest, share, out=rest)
            np.multiply(square, 3 * TWICE * CUBE, out=power)
            np.add(power, TWICE, out=power)
            np.multiply(power, rest, out=power)
        else:
            distribution(share, value, power, *work)
            np.multiply(power, DENSITY, out=power)
        np.multiply(power, value, out=power)
        np.add(share, power, out=share)
        np.multiply(share, error, out=result)


@backend.kernel(in_place=True, strided=False, scratch=_work(1))
def silu(out: Array, a: Array, scratch: tuple[Array]) -> None:
    for result, value in blocks(out, a):
        divisor = scratch[0][: value.size]
        np.negative(value, out=divisor)
        np.exp(divisor, out=divisor)
        np.add(divisor, 1, out=divisor)
        np.divide(value, divisor, out=result)


@backend.kernel(in_place=True, strided=False, scratch=_work(2))
def silu_gradient(out: Array, g: Array, a: Array, scratch: tuple[Array, Array]) -> None:
    for result, error, value in blocks(out, g, a):
        share, slope = (array[: value.size] for array in scratch)
        np.negative(value, out=share)
        np.exp(share, out=share)
        np.add(share, 1, out=share)
        np.reciprocal(share, out=share)
        np.subtract(1, share, out=slope)
        np.multiply(slope, value, out=slope)
        np.add(slope, 1, out=slope)
        np.multiply(slope, share, out=slope)
        np.multiply(slope, error, out=result)


def _sixths(out: Array, a: Array) -> None:
    np.add(a, 3, out=out)
    np.maximum(out, 0, out=out)
    np.minimum(out, 6, out=out)
    np.divide(out, 6, out=out)


@backend.kernel(in_place=True, strided=False)
def hard_sigmoid(out: Array, a: Array) -> None:
    for result, value in blocks(out, a):
        _sixths(result, value)


@backend.kernel(in_place=True, strided=False, scratch=_work(1))
def hard_swish(out: Array, a: Array, scratch: tuple[Array]) -> None:
    for result, value in blocks(out, a):
        share = scratch[0][: value.size]
        _sixths(share, value)
        np.multiply(value, share, out=result)


def _masks(out: Spec, *_: Spec, **__: Any) -> list[Spec]:
    block = one_block(out)
    return [flags(block), flags(block), bits(block)]


def _inside(result: Array, error: Array, value: Array, low: Any, high: Any, scratch: Any) -> None:
    """The error where low < value < high, else 0."""
    passes, below, work = (array[: value.size] for array in scratch)
    np.greater(value, low, out=passes)
    np.less(value, high, out=below)
    np.logical_and(passes, below, out=passes)
    select(result, error, passes, work)


@backend.kernel(in_place=True, strided=False, scratch=_masks)
def hard_sigmoid_gradient(out: Array, g: Array, a: Array, scratch: tuple[Array, ...]) -> None:
    for result, error, value in blocks(out, g, a):
        _inside(result, error, value, -3, 3, scratch)
        np.divide(result, 6, out=result)


@backend.kernel(
    in_place=True, strided=False, scratch=lambda out, g, a: [one_block(a), *_masks(out, g, a)]
)
def hard_swish_gradient(out: Array, g: Array, a: Array, scratch: tuple[Array, ...]) -> None:
    for result, error, value in blocks(out, g, a):
        slope, high, passes, work = (array[: value.size] for array in scratch)
        np.greater_equal(value, 3, out=high)
        np.less_equal(value, -3, out=passes)
        np.logical_not(passes, out=passes)
        np.divide(value, 3, out=slope)
        np.add(slope, 0.5, out=slope)
        np.copyto(slope, 1, where=high)
        np.multiply(slope, error, out=result)
        select(result, result, passes, work)


def _sloped(out: Spec, *_: Spec, **__: Any) -> list[Spec]:
    return [one_block(out), flags(one_block(out))]


@backend.kernel(in_place=True, strided=False, scratch=_sloped)
def leaky_relu(out: Array, a: Array, slope: float, scratch: tuple[Array, Array]) -> None:
    for result, value in blocks(out, a):
        sloped, passes = (array[: value.size] for array in scratch)
        np.multiply(value, slope, out=sloped)
        if 0.001 <= slope <= 1:
            np.maximum(value, sloped, out=result)
        else:  # 0 times infinity is NaN, and may not be what passes
            np.greater(value, 0, out=passes)
            np.copyto(sloped, value, where=passes)
            np.copyto(result, sloped)


@backend.kernel(in_place=True, strided=False, scratch=_sloped)
def leaky_relu_gradient(
    out: Array, g: Array, a: Array, slope: float, scratch: tuple[Array, Array]
) -> None:
    for result, error, value in blocks(out, g, a):
        sloped, passes = (array[: value.size] for array in scratch)
        np.greater(value, 0, out=passes)
        np.multiply(error, slope, out=sloped)
        np.copyto(sloped, error, where=passes)
        np.copyto(result, sloped)


@backend.kernel(in_place=True, strided=False)
def clip(out: Array, a: Array, low: float, high: float) -> None:
    for result, value in blocks(out, a):
        np.maximum(value, low, out=result)
        np.minimum(result, high, out=result)


@backend.kernel(in_place=True, strided=False, scratch=_masks)
def clip_gradient(
    out: Array, g: Array, a: Array, low: float, high: float, scratch: tuple[Array, ...]
) -> None:
    for result, error, value in blocks(out, g, a):
        _inside(result, error, value, low, high, scratch)
