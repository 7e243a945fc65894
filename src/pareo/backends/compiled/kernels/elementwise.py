"""Elementwise kernels: pareo's loops, and NumPy's for small arrays and for broadcasting."""

from collections.abc import Callable

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.kernels import elementwise_loops, parallel_elementwise
from pareo.backends.compiled.runtime import recording
from pareo.backends.compiled.runtime.arrays import copy
from pareo.backends.compiled.runtime.thread_pool import split, workers

kernel = backend.kernel
COMMUTE = "add", "hadamard"


def _threaded(name: str, ufunc: np.ufunc) -> Callable[..., None]:
    """A kernel that runs one of pareo's loops, or NumPy's by rows where operands broadcast."""

    def run(out: Array, a: Array, b: Array) -> None:
        if not out.size:
            return
        rows = out.shape[0] if out.ndim else 1
        is_few = out.size < 2 * GRAIN or rows < 2 or workers() == 1
        if is_few and recording.active() is None:
            ufunc(a, b, out=out)
        elif name == "scale" and _is_flat(out, b) and a.size == 1:
            parallel_elementwise.run(name, out, b, a)
        elif _is_flat(out, a) and _is_flat(out, b):
            if not parallel_elementwise.same_address(out.reshape(-1), b.reshape(-1)):
                parallel_elementwise.run(name, out, a, b)
            elif name in COMMUTE:
                parallel_elementwise.run(name, out, b, a)
            else:
                recording.refuse("a difference or quotient in the place of its second operand")
                ufunc(a, b, out=out)
        elif _is_flat(out, a) and _are_rows(out, b):
            _run_rows(name, out, a, b)
        elif name in COMMUTE and _is_flat(out, b) and _are_rows(out, a):
            _run_rows(name, out, b, a)
        elif is_few:
            recording.refuse("an elementwise function of few numbers, which is left to NumPy")
            ufunc(a, b, out=out)
        else:
            recording.refuse("an elementwise function with broadcasting, which is left to NumPy")
            split(
                lambda lo, hi: ufunc(
                    _rows(a, out.ndim, lo, hi), _rows(b, out.ndim, lo, hi), out=out[lo:hi]
                ),
                rows,
                max(1, GRAIN * rows // out.size),
            )

    return run


def _are_rows(out: Array, b: Array) -> bool:
    """Whether an operand has one number for each row, and repeats it along all last axes."""
    if b.ndim != out.ndim or not b.flags.c_contiguous or not out.flags.c_contiguous:
        return False
    same = 0
    while same < out.ndim and b.shape[same] == out.shape[same]:
        same += 1
    return all(size == 1 for size in b.shape[same:])


def _run_rows(name: str, out: Array, a: Array, b: Array) -> None:
    """A loop over rows, each of which meets one number of b."""
    numbers = b.reshape(-1)
    target, given = (array.reshape(numbers.size, -1) for array in (out, a))
    loop = getattr(elementwise_loops, f"{name}_rows")
    in_place = parallel_elementwise.same_address(target.reshape(-1), given.reshape(-1))

    def work(lo: int, hi: int) -> None:
        if in_place:
            loop(target[lo:hi], target[lo:hi], numbers[lo:hi])
        else:
            loop(target[lo:hi], given[lo:hi], numbers[lo:hi])

    split(work, numbers.size, max(1, GRAIN * numbers.size // max(1, out.size)))


def _is_flat(out: Array, operand: Array) -> bool:
    """Whether an operand is contiguous and has the shape of the result."""
    return bool(operand.shape == out.shape and operand.flags.c_contiguous)


def _rows(a: Array, ndim: int, lo: int, hi: int) -> Array:
    """The part of an operand that rows lo to hi of the result need, with broadcasting."""
    return a[lo:hi] if a.ndim == ndim and a.shape[0] != 1 else a


def _register(name: str, ufunc: np.ufunc) -> None:
    run = _threaded(name, ufunc)
    run.__name__ = name
    kernel(in_place=True, replayable=True)(run)


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


@kernel(in_place=True, strided=False, replayable=True)
def exp(out: Array, a: Array) -> None:
    parallel_elementwise.run("exp", out, a, min_elements=GRAIN // 2)


@kernel(in_place=True, strided=False, replayable=True)
def sigmoid(out: Array, a: Array) -> None:
    parallel_elementwise.run("sigmoid", out, a, min_elements=GRAIN // 2)


@kernel(in_place=True, strided=False, replayable=True)
def tanh(out: Array, a: Array) -> None:
    parallel_elementwise.run("tanh", out, a, min_elements=GRAIN // 2)


@kernel(in_place=True, strided=False, replayable=True)
def relu(out: Array, a: Array) -> None:
    parallel_elementwise.run("relu", out, a)


@kernel(in_place=True, strided=False, replayable=True)
def sigmoid_gradient(out: Array, g: Array, y: Array) -> None:
    parallel_elementwise.run("sigmoid_gradient", out, g, y)


@kernel(in_place=True, strided=False, replayable=True)
def tanh_gradient(out: Array, g: Array, y: Array) -> None:
    parallel_elementwise.run("tanh_gradient", out, g, y)


@kernel(in_place=True, strided=False, replayable=True)
def relu_gradient(out: Array, g: Array, y: Array) -> None:
    parallel_elementwise.run("relu_gradient", out, g, y)


@kernel(replayable=True)
def broadcast(out: Array, a: Array, shape: tuple[int, ...]) -> None:
    copy(out, a)
