"""Elementwise operators: NumPy's own functions, which write to the result."""

from typing import Any

import numpy as np

from pareo.backends.vectorized.table import (
    Array,
    backend,
    bits,
    blocks,
    flags,
    one_block,
    select,
)
from pareo.spec import Spec


@backend.kernel(in_place=True)
def add(out: Array, a: Array, b: Array) -> None:
    np.add(a, b, out=out)


@backend.kernel(in_place=True)
def sub(out: Array, a: Array, b: Array) -> None:
    np.subtract(a, b, out=out)


@backend.kernel(in_place=True)
def hadamard(out: Array, a: Array, b: Array) -> None:
    np.multiply(a, b, out=out)


@backend.kernel(in_place=True)
def div(out: Array, a: Array, b: Array) -> None:
    np.divide(a, b, out=out)


@backend.kernel(in_place=True)
def scale(out: Array, alpha: Array, a: Array) -> None:
    np.multiply(alpha, a, out=out)


@backend.kernel(in_place=True)
def exp(out: Array, a: Array) -> None:
    np.exp(a, out=out)


@backend.kernel(in_place=True)
def log(out: Array, a: Array) -> None:
    np.log(a, out=out)


@backend.kernel(in_place=True)
def tanh(out: Array, a: Array) -> None:
    np.tanh(a, out=out)


@backend.kernel(in_place=True)
def relu(out: Array, a: Array) -> None:
    np.maximum(a, 0, out=out)


@backend.kernel(in_place=True)
def broadcast(out: Array, a: Array, shape: Any) -> None:
    np.copyto(out, a)


@backend.kernel(in_place=True, strided=False)
def sigmoid(out: Array, a: Array) -> None:
    for y, x in blocks(out, a):
        np.negative(x, out=y)
        np.exp(y, out=y)
        np.add(y, 1, out=y)
        np.reciprocal(y, out=y)


def _block(out: Spec, *_: Spec) -> list[Spec]:
    return [one_block(out)]


@backend.kernel(in_place=True, strided=False, scratch=_block)
def sigmoid_gradient(out: Array, g: Array, y: Array, scratch: tuple[Array]) -> None:
    for result, error, value in blocks(out, g, y):
        slope = scratch[0][: value.size]
        np.subtract(1, value, out=slope)
        np.multiply(slope, value, out=slope)
        np.multiply(slope, error, out=result)


@backend.kernel(in_place=True, strided=False, scratch=_block)
def tanh_gradient(out: Array, g: Array, y: Array, scratch: tuple[Array]) -> None:
    for result, error, value in blocks(out, g, y):
        slope = scratch[0][: value.size]
        np.multiply(value, value, out=slope)
        np.subtract(1, slope, out=slope)
        np.multiply(slope, error, out=result)


def _mask(out: Spec, *_: Spec) -> list[Spec]:
    return [flags(one_block(out)), bits(one_block(out))]


@backend.kernel(in_place=True, strided=False, scratch=_mask)
def relu_gradient(out: Array, g: Array, y: Array, scratch: tuple[Array, Array]) -> None:
    for result, error, value in blocks(out, g, y):
        passes, work = (array[: value.size] for array in scratch)
        np.less_equal(value, 0, out=passes)
        np.logical_not(passes, out=passes)  # not `value > 0`: where y is NaN, g passes
        select(result, error, passes, work)
