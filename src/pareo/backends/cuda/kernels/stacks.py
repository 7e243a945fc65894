"""Stacks of matrices, such as a population's layers: products with bias, gradients and updates."""

from collections.abc import Sequence

from pareo.array import Array
from pareo.backends.cuda.kernels.elementwise import WIDEST
from pareo.backends.cuda.kernels.linear import dot, rounding_scratch
from pareo.backends.cuda.runtime import launch
from pareo.backends.cuda.table import backend
from pareo.spec import Spec

COLUMNS, LINES = 32, 8  # as in stacks.cu


def _grid(count: int, stacks: int) -> tuple[tuple[int, int], tuple[int]]:
    """Grid and block of a grid-stride loop over `count` elements of each stack."""
    return (min(-(-count // launch.THREADS), launch.MOST_BLOCKS), stacks), (launch.THREADS,)


def _packs(*arrays: Array, size: int) -> int:
    """Elements that a thread loads at once: 1 unless rows of `size` are a multiple of 16 bytes."""
    width = WIDEST // arrays[0].itemsize
    fits = size % width == 0 and not any(array.data.ptr % WIDEST for array in arrays)
    return width if fits else 1


def _biased(out: Spec, x: Spec, w: Spec, b: Spec) -> bool:
    stacked = x.ndim == w.ndim == 3 and x.shape[0] == w.shape[0]
    return stacked and b.shape == (w.shape[0], 1, w.shape[2]) and 0 < out.size < 1 << 31


def _product(pattern: str, gives: str, activation: str) -> None:
    def kernel(out: Array, x: Array, w: Array, b: Array, *, scratch: Sequence[Array]) -> None:
        dot(out, x, w, scratch)
        stacks, rows, columns = out.shape
        width = _packs(out, b, size=columns)
        name = f"biased{activation}" + ("_packed" if width > 1 else "")
        grid, block = _grid(rows * columns // width, stacks)
        arguments = (out, b, rows * columns // width, columns // width)
        launch.kernel("stacks", name, out.dtype.char)(grid, block, arguments)

    kernel.__name__ = f"stacked_dot_bias{activation}"
    backend.fusion(pattern, gives, when=_biased, scratch=rounding_scratch, broadcasts=True)(kernel)


for _name in ("relu", "sigmoid", "tanh"):
    _product(f"t = dot(x, w)\nu = add(t, b)\ny = {_name}(u)", "y", f"_{_name}")
_product("t = dot(x, w)\nu = add(t, b)", "u", "")


def _slope(activation: str) -> None:
    def kernel(out: Array, g: Array, y: Array) -> None:
        d, sums = out
        stacks, rows, columns = g.shape
        grid = (-(-columns // COLUMNS), stacks)
        arguments = (d, sums, g, y, rows, columns)
        name = f"{activation}_back"
        launch.kernel("stacks", name, g.dtype.char)(grid, (COLUMNS, LINES), arguments)

    kernel.__name__ = f"stacked_{activation}_bias_gradient"
    backend.fusion(
        f"d = {activation}_gradient(g, y)\ns = sum(d, axis=(1,), keepdims=False)",
        "d s",
        when=lambda out, g, y: g.ndim == 3 and 0 < g.size < 1 << 31,
    )(kernel)


for _name in ("relu", "sigmoid", "tanh"):
    _slope(_name)


@backend.fusion(
    "t = dot(a, b)\nq = add(p, t)",
    "q",
    when=lambda out, p, a, b: out.ndim == a.ndim == b.ndim == 3,
    scratch=lambda out, p, a, b: rounding_scratch(out, a, b),
    in_place=(0,),
    strided=True,
)
def stacked_descend(out: Array, p: Array, a: Array, b: Array, *, scratch: Sequence[Array]) -> None:
    """Gradient descent on weights whose gradients are never written to memory."""
    if out.data.ptr != p.data.ptr:
        out[...] = p
    dot(out, a, b, scratch, add=True)


def sgd(
    out: Array, parameter: Array, gradient: Array, velocity: Array, numbers: Sequence[Array]
) -> None:
    """The step of `update.sgd`, with its own rate, momentum and decay for each stack."""
    stacks, size = parameter.shape[0], parameter.size // parameter.shape[0]
    width = _packs(*out, parameter, gradient, velocity, size=size)
    grid, block = _grid(size // width, stacks)
    name = "sgd" if width == 1 else "sgd_packed"
    arguments = (*out, parameter, gradient, velocity, *numbers, size // width)
    launch.kernel("stacks", name, parameter.dtype.char)(grid, block, arguments)
