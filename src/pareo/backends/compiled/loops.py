"""Elementwise loops over flat arrays, each for two arrays apart and for one in place.

The compiler vectorises a loop behind a check that its arrays do not overlap; on one and the same
array that check fails and the slow loop runs. Hence the second of each pair.
"""

from typing import Any

from pareo.backends.compiled.functions import exponential, hyperbolic, logistic
from pareo.backends.compiled.jit import jit


@jit
def exp(out: Any, a: Any) -> None:
    for i in range(a.size):
        out[i] = exponential(a[i])


@jit
def exp_here(a: Any) -> None:
    for i in range(a.size):
        a[i] = exponential(a[i])


@jit
def sigmoid(out: Any, a: Any) -> None:
    for i in range(a.size):
        out[i] = logistic(a[i])


@jit
def sigmoid_here(a: Any) -> None:
    for i in range(a.size):
        a[i] = logistic(a[i])


@jit
def tanh(out: Any, a: Any) -> None:
    for i in range(a.size):
        out[i] = hyperbolic(a[i])


@jit
def tanh_here(a: Any) -> None:
    for i in range(a.size):
        a[i] = hyperbolic(a[i])


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
