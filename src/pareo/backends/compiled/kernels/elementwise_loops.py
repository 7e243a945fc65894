"""Elementwise loops over flat arrays, each for a result in other memory and for one in place.

The compiler vectorises a loop behind a check that its arrays do not overlap. If the result is in
place, the check fails and the slow loop runs; so there is a second loop for that case. exp, sigmoid
and tanh go block by block, and need no check.
"""

from pareo.array import Array
from pareo.backends.compiled.runtime.jit import jit, jit_strict
from pareo.backends.compiled.runtime.vector_math import (
    BLOCK,
    exp_block,
    exponential,
    hyperbolic_tangent,
    logistic,
    sigmoid_block,
    tanh_block,
)


@jit_strict
def add(out: Array, a: Array, b: Array) -> None:
    for i in range(a.size):
        out[i] = a[i] + b[i]


@jit_strict
def add_in_place(a: Array, b: Array) -> None:
    for i in range(a.size):
        a[i] = a[i] + b[i]


@jit_strict
def add_rows(out: Array, a: Array, b: Array) -> None:
    """Row i meets number i; this and the like may be in the place of a."""
    for i in range(out.shape[0]):
        number, into, given = b[i], out[i], a[i]
        for j in range(into.size):
            into[j] = given[j] + number


@jit_strict
def sub_rows(out: Array, a: Array, b: Array) -> None:
    for i in range(out.shape[0]):
        number, into, given = b[i], out[i], a[i]
        for j in range(into.size):
            into[j] = given[j] - number


@jit_strict
def hadamard_rows(out: Array, a: Array, b: Array) -> None:
    for i in range(out.shape[0]):
        number, into, given = b[i], out[i], a[i]
        for j in range(into.size):
            into[j] = given[j] * number


@jit_strict
def div_rows(out: Array, a: Array, b: Array) -> None:
    for i in range(out.shape[0]):
        number, into, given = b[i], out[i], a[i]
        for j in range(into.size):
            into[j] = given[j] / number


@jit_strict
def sub(out: Array, a: Array, b: Array) -> None:
    for i in range(a.size):
        out[i] = a[i] - b[i]


@jit_strict
def sub_in_place(a: Array, b: Array) -> None:
    for i in range(a.size):
        a[i] = a[i] - b[i]


@jit_strict
def hadamard(out: Array, a: Array, b: Array) -> None:
    for i in range(a.size):
        out[i] = a[i] * b[i]


@jit_strict
def hadamard_in_place(a: Array, b: Array) -> None:
    for i in range(a.size):
        a[i] = a[i] * b[i]


@jit_strict
def div(out: Array, a: Array, b: Array) -> None:
    for i in range(a.size):
        out[i] = a[i] / b[i]


@jit_strict
def div_in_place(a: Array, b: Array) -> None:
    for i in range(a.size):
        a[i] = a[i] / b[i]


@jit_strict
def scale(out: Array, a: Array, factor: Array) -> None:
    by = factor[0]
    for i in range(a.size):
        out[i] = a[i] * by


@jit_strict
def scale_in_place(a: Array, factor: Array) -> None:
    by = factor[0]
    for i in range(a.size):
        a[i] = a[i] * by


@jit_strict
def exp(out: Array, a: Array) -> None:
    lanes = BLOCK // a.itemsize
    whole = a.size - a.size % lanes
    for i in range(0, whole, lanes):
        exp_block(out, a, i)
    for i in range(whole, a.size):
        out[i] = exponential(a[i])


@jit_strict
def exp_in_place(a: Array) -> None:
    exp(a, a)


@jit_strict
def sigmoid(out: Array, a: Array) -> None:
    lanes = BLOCK // a.itemsize
    whole = a.size - a.size % lanes
    for i in range(0, whole, lanes):
        sigmoid_block(out, a, i)
    for i in range(whole, a.size):
        out[i] = logistic(a[i])


@jit_strict
def sigmoid_in_place(a: Array) -> None:
    sigmoid(a, a)


@jit_strict
def tanh(out: Array, a: Array) -> None:
    lanes = BLOCK // a.itemsize
    whole = a.size - a.size % lanes
    for i in range(0, whole, lanes):
        tanh_block(out, a, i)
    for i in range(whole, a.size):
        out[i] = hyperbolic_tangent(a[i])


@jit_strict
def tanh_in_place(a: Array) -> None:
    tanh(a, a)


@jit
def relu(out: Array, a: Array) -> None:
    for i in range(a.size):
        out[i] = a.dtype.type(0) if a[i] <= 0 else a[i]


@jit
def relu_in_place(a: Array) -> None:
    for i in range(a.size):
        a[i] = a.dtype.type(0) if a[i] <= 0 else a[i]


@jit
def sigmoid_gradient(out: Array, g: Array, y: Array) -> None:
    for i in range(y.size):
        out[i] = g[i] * y[i] * (y.dtype.type(1) - y[i])


@jit
def sigmoid_gradient_in_place(g: Array, y: Array) -> None:
    for i in range(y.size):
        g[i] = g[i] * y[i] * (y.dtype.type(1) - y[i])


@jit
def tanh_gradient(out: Array, g: Array, y: Array) -> None:
    for i in range(y.size):
        out[i] = g[i] * (y.dtype.type(1) - y[i] * y[i])


@jit
def tanh_gradient_in_place(g: Array, y: Array) -> None:
    for i in range(y.size):
        g[i] = g[i] * (y.dtype.type(1) - y[i] * y[i])


@jit
def relu_gradient(out: Array, g: Array, y: Array) -> None:
    for i in range(y.size):
        given = g[i]  # read unconditionally: a read under a condition is not vectorised
        out[i] = g.dtype.type(0) if y[i] <= 0 else given


@jit
def relu_gradient_in_place(g: Array, y: Array) -> None:
    for i in range(y.size):
        given = g[i]
        g[i] = g.dtype.type(0) if y[i] <= 0 else given
