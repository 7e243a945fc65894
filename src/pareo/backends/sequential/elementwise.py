"""Element by element: every kernel reads its operands at i, then writes out at i."""

import math
from typing import Any

import numpy as np

from pareo.backends.sequential.numbers import at, backend, divide
from pareo.backends.sequential.numbers import exp as e_to_the
from pareo.backends.sequential.numbers import log as logarithm


@backend.kernel(in_place=True)
def add(out: Any, a: Any, b: Any) -> None:
    for i in np.ndindex(out.shape):
        out[i] = at(a, i) + at(b, i)


@backend.kernel(in_place=True)
def sub(out: Any, a: Any, b: Any) -> None:
    for i in np.ndindex(out.shape):
        out[i] = at(a, i) - at(b, i)


@backend.kernel(in_place=True)
def hadamard(out: Any, a: Any, b: Any) -> None:
    for i in np.ndindex(out.shape):
        out[i] = at(a, i) * at(b, i)


@backend.kernel(in_place=True)
def div(out: Any, a: Any, b: Any) -> None:
    for i in np.ndindex(out.shape):
        out[i] = divide(at(a, i), at(b, i))


@backend.kernel(in_place=True)
def scale(out: Any, alpha: Any, a: Any) -> None:
    for i in np.ndindex(out.shape):
        out[i] = at(alpha, i) * at(a, i)


@backend.kernel(in_place=True)
def exp(out: Any, a: Any) -> None:
    for i in np.ndindex(out.shape):
        out[i] = e_to_the(at(a, i))


@backend.kernel(in_place=True)
def log(out: Any, a: Any) -> None:
    for i in np.ndindex(out.shape):
        out[i] = logarithm(at(a, i))


@backend.kernel(in_place=True)
def sigmoid(out: Any, a: Any) -> None:
    for i in np.ndindex(out.shape):
        out[i] = 1 / (1 + e_to_the(-at(a, i)))


@backend.kernel(in_place=True)
def sigmoid_gradient(out: Any, g: Any, y: Any) -> None:
    for i in np.ndindex(out.shape):
        out[i] = at(g, i) * at(y, i) * (1 - at(y, i))


@backend.kernel(in_place=True)
def tanh(out: Any, a: Any) -> None:
    for i in np.ndindex(out.shape):
        out[i] = math.tanh(at(a, i))


@backend.kernel(in_place=True)
def tanh_gradient(out: Any, g: Any, y: Any) -> None:
    for i in np.ndindex(out.shape):
        out[i] = at(g, i) * (1 - at(y, i) * at(y, i))


@backend.kernel(in_place=True)
def relu(out: Any, a: Any) -> None:
    for i in np.ndindex(out.shape):
        out[i] = 0.0 if at(a, i) <= 0 else at(a, i)  # in this order, so that NaN stays NaN


@backend.kernel(in_place=True)
def relu_gradient(out: Any, g: Any, y: Any) -> None:
    for i in np.ndindex(out.shape):
        error = at(g, i)
        out[i] = 0.0 if at(y, i) <= 0 else error


@backend.kernel()
def broadcast(out: Any, a: Any, *, shape: tuple[int, ...]) -> None:
    for i in np.ndindex(shape):
        out[i] = at(a, i)
