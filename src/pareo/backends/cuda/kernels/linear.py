"""Matrix products by cuBLAS, biases, and operators that copy elements to another layout."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.kernels import strides
from pareo.backends.cuda.kernels.elementwise import WIDEST, apply
from pareo.backends.cuda.runtime import cublas, launch, memory
from pareo.backends.cuda.runtime.cupy_module import cupy
from pareo.backends.cuda.table import backend
from pareo.device import current
from pareo.spec import Spec

TILE, LINES = 64, 4  # as in transpose.cu
SUMMING_BLOCKS = 2048  # of `take_gradient`; each reads the whole index
MOST_TILES = 1 << 16  # the limit of a grid's second and third dimension


def rounding_scratch(out: Spec, a: Spec, b: Spec, *_: Spec) -> list[Spec]:
    if current().precision != "bfloat16" or a.dtype != np.float32:
        return []
    return [Spec(factor.shape, "uint16") for factor in (a, b)]


@backend.kernel(scratch=rounding_scratch)
def dot(out: Array, a: Array, b: Array, scratch: Sequence[Array] = (), add: bool = False) -> None:
    a, b = (x if cublas.readable(x) else backend.contiguous(x) for x in (a, b))
    if scratch:
        a, b = (_rounded(room, x) for room, x in zip(scratch, (a, b), strict=True))
    if out.ndim == 2:
        cublas.multiply(out, a, b, add)
        return
    # Loop over all leading axes but the last, which cuBLAS takes as a stack (stride 0: broadcast).
    leading = out.shape[:-2]
    a, b = (cupy.broadcast_to(x, (*leading, *x.shape[-2:])) for x in (a, b))
    for index in np.ndindex(leading[:-1]):
        cublas.multiply(out[index], a[index], b[index], add)


def _rounded(room: Array, a: Array) -> Array:
    """A factor rounded to bfloat16, its matrices transposed or not as before."""
    if not a.flags.c_contiguous and a.swapaxes(-1, -2).flags.c_contiguous:
        return _rounded(room, a.swapaxes(-1, -2)).swapaxes(-1, -2)
    a = backend.contiguous(a)
    launch.over(-(-a.size // 4), "rounded", "rounded", a.dtype.char, room, a, a.size)
    return room.reshape(a.shape)


def squared(a: Array) -> Callable[[], Array]:
    """A function that multiplies a matrix by itself, rounded once to the device's precision.

    It shows the speed of products whose factors are bfloat16 already; `dot` rounds them each time.
    """
    spec = Spec(a.shape, a.dtype)
    if rounding_scratch(spec, spec, spec):
        a = _rounded(memory.empty(a.shape, np.uint16), a)
    out = memory.empty(a.shape, a.dtype)

    def call() -> Array:
        cublas.multiply(out, a, a)
        return out

    return call


def add_biased(name: str, out: Array, a: Array, b: Array) -> None:
    """out = NAME(a + b) of bias.cu: b is added along axis 1 of a, then an activation is applied."""
    pixels, width = math.prod(a.shape[2:]), WIDEST // a.itemsize
    arguments = (out, a, b, a.size, a.shape[1], pixels)
    if pixels % width or a.data.ptr % WIDEST or out.data.ptr % WIDEST:
        launch.over(a.size, "bias", name, a.dtype.char, *arguments)
    else:
        launch.over(a.size // width, "bias", f"{name}_packed", a.dtype.char, *arguments)


@backend.kernel(in_place=(0,), strided=False)
def add_bias(out: Array, a: Array, b: Array) -> None:
    add_biased("bias", out, a, b)


@backend.kernel()
def transpose(out: Array, a: Array, axes: tuple[int, ...]) -> None:
    if out.size == 0:
        return
    seen = a.transpose(axes)
    sizes, (steps,) = strides.collapsed(out.shape, [strides.element_strides(seen, out.shape)])
    (rows, columns), stacks = (1, *sizes)[-2:], math.prod(sizes[:-2])
    if len(sizes) not in (2, 3) or steps[-2] != 1 or max(rows // TILE, stacks) >= MOST_TILES:
        apply("copied", out, seen)
        return
    grid = (-(-columns // TILE), -(-rows // TILE), stacks)
    stack = steps[0] if len(sizes) == 3 else 0
    arguments = (out, seen, rows, columns, steps[-1], stack)
    launch.kernel("transpose", "transpose", out.dtype.char)(grid, (TILE, LINES), arguments)


@backend.kernel(strided=False)
def reshape(out: Array, a: Array, shape: tuple[int, ...]) -> None:
    apply("copied", out, a.reshape(shape))


@backend.kernel()
def part(out: Array, a: Array, axis: int, between: tuple[int, int]) -> None:
    apply("copied", out, _within(a, axis, between))


def _within(a: Array, axis: int, between: tuple[int, int]) -> Array:
    return a[(slice(None),) * axis + (slice(*between),)]


@backend.kernel()
def part_gradient(out: Array, g: Array, axis: int, between: tuple[int, int], size: int) -> None:
    out.fill(0)
    lay(_within(out, axis, between), g)


@backend.kernel()
def concat(out: Array, *arrays: Array, axis: int) -> None:
    start = 0
    for array in arrays:
        stop = start + array.shape[axis]
        lay(_within(out, axis, (start, stop)), array)
        start = stop


def lay(target: Array, source: Array) -> None:
    """Copy into a target that may be strided."""
    if target.flags.c_contiguous:
        apply("copied", target, source)
    else:
        target[...] = source


@backend.kernel()
def split(out: Array, a: Array, sizes: tuple[int, ...], axis: int) -> None:
    start = 0
    for target, size in zip(out if isinstance(out, tuple) else (out,), sizes, strict=True):
        apply("copied", target, _within(a, axis, (start, start + size)))
        start += size


@backend.kernel()
def pad(out: Array, a: Array, widths: tuple[tuple[int, int], ...], value: float) -> None:
    number = out.dtype.type(value)
    if out.ndim > launch.MOST_AXES:
        out.fill(number)
        inside = zip(widths, a.shape, strict=True)
        lay(out[tuple(slice(before, before + size) for (before, _), size in inside)], a)
        return
    rest = [0] * (launch.MOST_AXES - out.ndim)
    steps = strides.element_strides(a, a.shape)
    padding = launch.struct(
        out.ndim, (*out.shape, *rest), (*steps, *rest), ([w[0] for w in widths], rest),
        (*a.shape, *rest),
    )  # fmt: skip
    launch.over(out.size, "pad", "pad", out.dtype.char, out, a, out.size, padding, number)


@backend.kernel(strided=False)
def take(out: Array, a: Array, index: Array) -> None:
    index = index.astype(np.int64, copy=False)
    columns, width = math.prod(a.shape[1:]), WIDEST // a.itemsize
    name = "take"
    if columns % width == 0 and not (a.data.ptr % WIDEST or out.data.ptr % WIDEST):
        name, columns = "take_packed", columns // width
    arguments = (out, a, index, index.size, columns, len(a))
    launch.over(index.size * columns, "rows", name, a.dtype.char, *arguments)


@backend.kernel(strided=False)
def take_gradient(out: Array, g: Array, index: Array, size: int) -> None:
    if out.size == 0:
        return
    index = index.astype(np.int64, copy=False)
    columns = math.prod(out.shape[1:])
    threads = launch.THREADS  # all of them search, even where there are fewer columns
    groups = -(-columns // threads)
    share = max(1, size * groups // SUMMING_BLOCKS)
    grid = (-(-size // share), groups)
    arguments = (out, g, index, index.size, columns, size, share)
    launch.kernel("rows", "take_gradient", g.dtype.char)(grid, (threads,), arguments)


def _matrices(out: Spec, x: Spec, w: Spec, b: Spec) -> bool:
    return x.ndim == w.ndim == 2


def _fused(pattern: str, gives: str, activation: str) -> None:
    def kernel(out: Array, x: Array, w: Array, b: Array, *, scratch: Sequence[Array]) -> None:
        dot(out, x, w, scratch)
        add_biased(f"bias{activation}", out, out, b)

    kernel.__name__ = f"dot_bias{activation}"
    backend.fusion(pattern, gives, when=_matrices, scratch=rounding_scratch)(kernel)


for _name in ("sigmoid", "tanh", "relu"):
    _fused(f"t = dot(x, w)\nu = add_bias(t, b)\ny = {_name}(u)", "y", f"_{_name}")
_fused("t = dot(x, w)\nu = add_bias(t, b)", "u", "")
