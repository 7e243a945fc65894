"""Elementwise kernels: pareo's loops, and NumPy's for small arrays and for broadcasting."""

from collections.abc import Callable

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.kernels import parallel_elementwise
from pareo.backends.compiled.runtime.thread_pool import split, workers

kernel = backend.kernel


def _threaded(name: str, ufunc: np.ufunc) -> Callable[..., None]:
    """A kernel that runs one of pareo's loops, or NumPy's by rows where operands broadcast."""

    def run(out: Array, a: Array, b: Array) -> None:
        rows = out.shape[0] if out.ndim else 1
        if out.size < 2 * GRAIN or rows < 2 or workers() == 1:
            ufunc(a, b, out=out)
        elif name == "scale" and _is_flat(out, b) and a.size == 1:
            parallel_elementwise.run(name, out, b, a)
        elif (
            _is_flat(out, a)
            and _is_flat(out, b)
            and not parallel_elementwise.same_address(out.reshape(-1), b.reshape(-1))
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


def _is_flat(out: Array, operand: Array) -> bool:
    """Whether an operand is contiguous and has the shape of the result."""
    return bool(operand.shape == out.shape and operand.flags.c_contiguous)


def _rows(a: Array, ndim: int, lo: int, hi: int) -> Array:
    """The part of an operand that rows lo to hi of the result need, with broadcasting."""
    return a[lo:hi] if a.ndim == ndim and a.shape[0] != 1 else a


def _register(name: str, ufunc: np.ufunc) -> None:
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
    _register(_name, _ufunc)


@kernel(in_place=True)
def log(out: Array, a: Array) -> None:
    np.log(a, out=out)


@kernel(in_place=True, strided=False)
def exp(out: Array, a: Array) -> None:
    parallel_elementwise.run("exp", out, a, min_elements=GRAIN // 2)


@kernel(in_place=True, strided=False)
def sigmoid(out: Array, a: Array) -> None:
    parallel_elementwise.run("sigmoid", out, a, min_elements=GRAIN // 2)


@kernel(in_place=True, strided=False)
def tanh(out: Array, a: Array) -> None:
    parallel_elementwise.run("tanh", out, a, min_elements=GRAIN // 2)


@kernel(in_place=True, strided=False)
def relu(out: Array, a: Array) -> None:
    parallel_elementwise.run("relu", out, a)


@kernel(in_place=True, strided=False)
def sigmoid_gradient(out: Array, g: Array, y: Array) -> None:
    parallel_elementwise.run("sigmoid_gradient", out, g, y)


@kernel(in_place=True, strided=False)
def tanh_gradient(out: Array, g: Array, y: Array) -> None:
    parallel_elementwise.run("tanh_gradient", out, g, y)


@kernel(in_place=True, strided=False)
def relu_gradient(out: Array, g: Array, y: Array) -> None:
    parallel_elementwise.run("relu_gradient", out, g, y)


@kernel()
def broadcast(out: Array, a: Array, shape: tuple[int, ...]) -> None:
    out[...] = a
