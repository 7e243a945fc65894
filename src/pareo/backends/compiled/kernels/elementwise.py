"""Elementwise kernels: our loops, and NumPy's for arithmetic that is small or broadcasts."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.kernels import parallel_elementwise
from pareo.backends.compiled.runtime.thread_pool import split, workers

kernel = backend.kernel


def _threaded(name: str, ufunc: Any) -> Callable[..., None]:
    """One of our loops, or NumPy's on stretches of the leading axis where operands broadcast."""

    def run(out: Any, a: Any, b: Any) -> None:
        rows = out.shape[0] if out.ndim else 1
        if out.size < 2 * GRAIN or rows < 2 or workers() == 1:
            ufunc(a, b, out=out)
        elif name == "scale" and _flat(out, b) and a.size == 1:
            parallel_elementwise.run(name, out, b, a)
        elif (
            _flat(out, a)
            and _flat(out, b)
            and not parallel_elementwise.same_place(out.reshape(-1), b.reshape(-1))
        ):
            parallel_elementwise.run(name, out, a, b)
        else:
            split(
                lambda lo, hi: ufunc(
                    _rows(a, out.ndim, lo, hi), _rows(b, out.ndim, lo, hi), out=out[lo:hi]
                ),
                rows,
                max(1, GRAIN * rows // out.size),
            )

    return run


def _flat(out: Any, operand: Any) -> bool:
    """Whether an operand's elements lie in a row, each for one of the result's."""
    return bool(operand.shape == out.shape and operand.flags.c_contiguous)


def _rows(a: Any, ndim: int, lo: int, hi: int) -> Any:
    """The part of an operand that rows lo to hi of the result need, broadcasting included."""
    return a[lo:hi] if a.ndim == ndim and a.shape[0] != 1 else a


def _enter(name: str, ufunc: Any) -> None:
    run = _threaded(name, ufunc)
    run.__name__ = name
    kernel(in_place=True)(run)


for _name, _ufunc in (
    ("add", np.add),
    ("sub", np.subtract),
    ("hadamard", np.multiply),
    ("div", np.divide),
    ("scale", np.multiply),
):
    _enter(_name, _ufunc)


@kernel(in_place=True)
def log(out: Any, a: Any) -> None:
    np.log(a, out=out)


@kernel(in_place=True, strided=False)
def exp(out: Any, a: Any) -> None:
    parallel_elementwise.run("exp", out, a, least=GRAIN // 2)


@kernel(in_place=True, strided=False)
def sigmoid(out: Any, a: Any) -> None:
    parallel_elementwise.run("sigmoid", out, a, least=GRAIN // 2)


@kernel(in_place=True, strided=False)
def tanh(out: Any, a: Any) -> None:
    parallel_elementwise.run("tanh", out, a, least=GRAIN // 2)


@kernel(in_place=True, strided=False)
def relu(out: Any, a: Any) -> None:
    parallel_elementwise.run("relu", out, a)


@kernel(in_place=True, strided=False)
def sigmoid_gradient(out: Any, g: Any, y: Any) -> None:
    parallel_elementwise.run("sigmoid_gradient", out, g, y)


@kernel(in_place=True, strided=False)
def tanh_gradient(out: Any, g: Any, y: Any) -> None:
    parallel_elementwise.run("tanh_gradient", out, g, y)


@kernel(in_place=True, strided=False)
def relu_gradient(out: Any, g: Any, y: Any) -> None:
    parallel_elementwise.run("relu_gradient", out, g, y)


@kernel()
def broadcast(out: Any, a: Any, shape: tuple[int, ...]) -> None:
    out[...] = a
