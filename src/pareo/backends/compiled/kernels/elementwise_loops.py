"""Elementwise loops over flat arrays, each for two arrays apart and for one in place.

The compiler vectorises a loop behind a check that its arrays do not overlap; on one and the same
array that check fails and the slow loop runs. Hence the second of each pair. exp, sigmoid and tanh
go block by block, and need no check.
"""

from typing import Any

from pareo.backends.compiled.runtime.jit import jit, jit_as_written
from pareo.backends.compiled.runtime.vector_math import (
    BLOCK,
    exponential,
    exponential_block,
    hyperbolic,
    hyperbolic_block,
    logistic,
    logistic_block,
)


@jit_as_written
def add(out: Any, a: Any, b: Any) -> None:
    for i in range(a.size):
        out[i] = a[i] + b[i]


@jit_as_written
def add_here(a: Any, b: Any) -> None:
    for i in range(a.size):
        a[i] = a[i] + b[i]


@jit_as_written
def sub(out: Any, a: Any, b: Any) -> None:
    for i in range(a.size):
        out[i] = a[i] - b[i]


@jit_as_written
def sub_here(a: Any, b: Any) -> None:
    for i in range(a.size):
        a[i] = a[i] - b[i]


@jit_as_written
def hadamard(out: Any, a: Any, b: Any) -> None:
    for i in range(a.size):
        out[i] = a[i] * b[i]


@jit_as_written
def hadamard_here(a: Any, b: Any) -> None:
    for i in range(a.size):
        a[i] = a[i] * b[i]


@jit_as_written
def div(out: Any, a: Any, b: Any) -> None:
    for i in range(a.size):
        out[i] = a[i] / b[i]


@jit_as_written
def div_here(a: Any, b: Any) -> None:
    for i in range(a.size):
        a[i] = a[i] / b[i]


@jit_as_written
def scale(out: Any, a: Any, factor: Any) -> None:
    by = factor[0]
    for i in range(a.size):
        out[i] = a[i] * by


@jit_as_written
def scale_here(a: Any, factor: Any) -> None:
    by = factor[0]
    for i in range(a.size):
        a[i] = a[i] * by


@jit_as_written
def exp(out: Any, a: Any) -> None:
    lanes = BLOCK // a.itemsize
    whole = a.size - a.size % lanes
    for i in range(0, whole, lanes):
        exponential_block(out, a, i)
    for i in range(whole, a.size):
        out[i] = exponential(a[i])


@jit_as_written
def exp_here(a: Any) -> None:
    exp(a, a)


@jit_as_written
def sigmoid(out: Any, a: Any) -> None:
    lanes = BLOCK // a.itemsize
    whole = a.size - a.size % lanes
    for i in range(0, whole, lanes):
        logistic_block(out, a, i)
    for i in range(whole, a.size):
        out[i] = logistic(a[i])


@jit_as_written
def sigmoid_here(a: Any) -> None:
    sigmoid(a, a)


@jit_as_written
def tanh(out: Any, a: Any) -> None:
    lanes = BLOCK // a.itemsize
    whole = a.size - a.size % lanes
    for i in range(0, whole, lanes):
        hyperbolic_block(out, a, i)
    for i in range(whole, a.size):
        out[i] = hyperbolic(a[i])


@jit_as_written
def tanh_here(a: Any) -> None:
    tanh(a, a)


@jit
def relu(out: Any, a: Any) -> None:
    for i in range(a.size):
        out[i] = a.dtype.type(0) if a[i] <= 0 else a[i]


@jit
def relu_here(a: Any) -> None:
    for i in range(a.size):
        a[i] = a.dtype.type(0) if a[i] <= 0 else a[i]


@jit
def sigmoid_gradient(out: Any, g: Any, y: Any) -> None:
    for i in range(y.size):
        out[i] = g[i] * y[i] * (y.dtype.type(1) - y[i])


@jit
def sigmoid_gradient_here(g: Any, y: Any) -> None:
    for i in range(y.size):
        g[i] = g[i] * y[i] * (y.dtype.type(1) - y[i])


@jit
def tanh_gradient(out: Any, g: Any, y: Any) -> None:
    for i in range(y.size):
        out[i] = g[i] * (y.dtype.type(1) - y[i] * y[i])


@jit
def tanh_gradient_here(g: Any, y: Any) -> None:
    for i in range(y.size):
        g[i] = g[i] * (y.dtype.type(1) - y[i] * y[i])


@jit
def relu_gradient(out: Any, g: Any, y: Any) -> None:
    for i in range(y.size):
        given = g[i]  # read whether it is used or not: a read under a condition is not vectorised
        out[i] = g.dtype.type(0) if y[i] <= 0 else given


@jit
def relu_gradient_here(g: Any, y: Any) -> None:
    for i in range(y.size):
        given = g[i]
        g[i] = g.dtype.type(0) if y[i] <= 0 else given
