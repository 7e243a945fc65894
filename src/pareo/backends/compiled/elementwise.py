"""Elementwise kernels: NumPy's own loops where memory is the limit, ours for the rest."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pareo.backends.compiled import loops
from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.pool import split, stretches

kernel = backend.kernel


def _threaded(ufunc: Any) -> Callable[..., None]:
    """A NumPy ufunc on stretches of the leading axis, in parallel where there is enough to do."""

    def run(out: Any, a: Any, b: Any) -> None:
        rows = out.shape[0] if out.ndim else 1
        if rows < 2 or len(stretches(out.size, GRAIN)) == 1:
            ufunc(a, b, out=out)
            return
        least = max(1, GRAIN * rows // out.size)
        split(
            lambda lo, hi: ufunc(
                _rows(a, out.ndim, lo, hi), _rows(b, out.ndim, lo, hi), out=out[lo:hi]
            ),
            rows,
            least,
        )

    return run


def _rows(a: Any, ndim: int, lo: int, hi: int) -> Any:
    """The part of an operand that rows lo to hi of the result need, broadcasting included."""
    return a[lo:hi] if a.ndim == ndim and a.shape[0] != 1 else a


def _enter(name: str, ufunc: Any) -> None:
    run = _threaded(ufunc)
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


def _flat(name: str, out: Any, first: Any, *rest: Any) -> None:
    """A loop over flat arrays of one size, split over the threads."""
    here = out.ctypes.data == first.ctypes.data
    loop = getattr(loops, f"{name}_here" if here else name)
    given = (first, *rest) if here else (out, first, *rest)
    arrays = [a.reshape(-1) for a in given]
    split(lambda lo, hi: loop(*[a[lo:hi] for a in arrays]), out.size, GRAIN // 2)


@kernel(in_place=True)
def log(out: Any, a: Any) -> None:
    np.log(a, out=out)


@kernel(in_place=True, strided=False)
def exp(out: Any, a: Any) -> None:
    _flat("exp", out, a)


@kernel(in_place=True, strided=False)
def sigmoid(out: Any, a: Any) -> None:
    _flat("sigmoid", out, a)


@kernel(in_place=True, strided=False)
def tanh(out: Any, a: Any) -> None:
    _flat("tanh", out, a)


@kernel(in_place=True, strided=False)
def relu(out: Any, a: Any) -> None:
    _flat("relu", out, a)


@kernel(in_place=True, strided=False)
def sigmoid_gradient(out: Any, g: Any, y: Any) -> None:
    _flat("sigmoid_gradient", out, g, y)


@kernel(in_place=True, strided=False)
def tanh_gradient(out: Any, g: Any, y: Any) -> None:
    _flat("tanh_gradient", out, g, y)


@kernel(in_place=True, strided=False)
def relu_gradient(out: Any, g: Any, y: Any) -> None:
    _flat("relu_gradient", out, g, y)


@kernel()
def broadcast(out: Any, a: Any, shape: tuple[int, ...]) -> None:
    out[...] = a
