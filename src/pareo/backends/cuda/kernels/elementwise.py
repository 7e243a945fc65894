"""Elementwise operators: one kernel for each function, at memory speed where layouts allow it."""

from collections.abc import Sequence

from pareo.array import Array
from pareo.backends.cuda.kernels import strides
from pareo.backends.cuda.runtime import launch
from pareo.backends.cuda.table import backend

WIDEST = 16  # bytes that a thread loads at once


def apply(
    name: str,
    out: Array,
    a: Array,
    b: Array = None,
    *,
    file: str = "elementwise",
    numbers: Sequence[float] = (),
) -> None:
    """out = NAME(a, b) of a file, with broadcasting; out is contiguous.

    `numbers` are passed to the kernel as its last arguments.
    """
    b = a if b is None else b
    if out.size == 0:
        return
    kind = out.dtype.char
    form = _form(out, a, b)
    more = [out.dtype.type(number) for number in numbers]
    if form is None or (form and file != "elementwise"):
        walk = strides.walk(
            out.shape,
            [strides.element_strides(a, out.shape), strides.element_strides(b, out.shape)],
        )
        form = "_walk" if out.size < 1 << 31 else "_far"
        strided = (out, a, b, out.size, launch.struct(walk), *more)
        launch.over(out.size, file, name + form, kind, *strided)
        return
    blocks = -(-out.nbytes // (WIDEST * launch.THREADS))
    launch.blocks(blocks, launch.THREADS, file, name + form, kind, out, a, b, out.size, *more)


def _form(out: Array, a: Array, b: Array) -> str | None:
    """The suffix of the fast kernel for these layouts; None where there is none."""
    if out.data.ptr % WIDEST:
        return None
    plain = [x.shape == out.shape and x.flags.c_contiguous and not x.data.ptr % WIDEST
             for x in (a, b)]  # fmt: skip
    if all(plain):
        return ""
    if plain[1] and a.size == 1:
        return "_left"
    if plain[0] and b.size == 1:
        return "_right"
    return None


@backend.kernel(in_place=True)
def add(out: Array, a: Array, b: Array) -> None:
    apply("add", out, a, b)


@backend.kernel(in_place=True)
def sub(out: Array, a: Array, b: Array) -> None:
    apply("sub", out, a, b)


@backend.kernel(in_place=True)
def hadamard(out: Array, a: Array, b: Array) -> None:
    apply("hadamard", out, a, b)


@backend.kernel(in_place=True)
def div(out: Array, a: Array, b: Array) -> None:
    apply("divide", out, a, b)


@backend.kernel(in_place=True)
def scale(out: Array, alpha: Array, a: Array) -> None:
    apply("hadamard", out, alpha, a)


@backend.kernel(in_place=True)
def exp(out: Array, a: Array) -> None:
    apply("exponential", out, a)


@backend.kernel(in_place=True)
def log(out: Array, a: Array) -> None:
    apply("logarithm", out, a)


@backend.kernel(in_place=True)
def sigmoid(out: Array, a: Array) -> None:
    apply("sigmoid", out, a)


@backend.kernel(in_place=True)
def tanh(out: Array, a: Array) -> None:
    apply("hyperbolic", out, a)


@backend.kernel(in_place=True)
def relu(out: Array, a: Array) -> None:
    apply("relu", out, a)


@backend.kernel(in_place=True)
def sigmoid_gradient(out: Array, g: Array, y: Array) -> None:
    apply("sigmoid_gradient", out, g, y)


@backend.kernel(in_place=True)
def tanh_gradient(out: Array, g: Array, y: Array) -> None:
    apply("tanh_gradient", out, g, y)


@backend.kernel(in_place=True)
def relu_gradient(out: Array, g: Array, y: Array) -> None:
    apply("relu_gradient", out, g, y)


@backend.kernel(in_place=True)
def broadcast(out: Array, a: Array, shape: tuple[int, ...]) -> None:
    apply("copied", out, a)
