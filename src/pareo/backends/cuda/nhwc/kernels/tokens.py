"""Layer normalisation, and biases of rows with what follows them (tokens.cu)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.nhwc.kernels.bias import shared_bytes
from pareo.backends.cuda.nhwc.kernels.launch import ROW_PIECES, WIDEST, c_type, kernel, pixels
from pareo.backends.cuda.nhwc.kernels.table import instruction
from pareo.backends.cuda.runtime.launch import NULL
from pareo.spec import Spec

WARPS = 8  # as in tokens.cu
BLOCKS = 264  # whose sums are added up
LANES = 32


def pieces(rows: Array | Spec) -> int | None:
    """The pieces of 16 bytes of a row that a lane holds, at least; None for too long rows.

    >>> pieces(Spec((2, 768))), pieces(Spec((2, 512)))
    (6, 6)
    """
    least = -(-rows.shape[-1] * rows.dtype.itemsize // (WIDEST * LANES))
    return next((count for count in ROW_PIECES if count >= least), None)


def fits(rows: Spec) -> bool:
    """Whether the kernels support rows of this length.

    >>> fits(Spec((2, 197, 768))), fits(Spec((2, 6))), fits(Spec((2, 8192)))
    (True, False, False)
    """
    whole = rows.shape[-1] * rows.dtype.itemsize % WIDEST == 0
    return whole and rows.size > 0 and pieces(rows) is not None and pixels(rows) < 1 << 31


def _instance(name: str, rows: Array, what: object) -> str:
    return f"{name}<{c_type(rows)}, {WIDEST // rows.dtype.itemsize}, {what}>"


def _sizes(rows: Array) -> tuple[Any, Any]:
    return np.uint32(pixels(rows)), np.int32(rows.shape[-1])


def _blocks(rows: Array | Spec) -> int:
    return min(BLOCKS, -(-pixels(rows) // WARPS))


@instruction(in_place=(0,))
def layer_norm_forward(out: Array, x: Array, scale: Array, shift: Array, epsilon: float) -> None:
    function = kernel("tokens", _instance("layer_norm", x, pieces(x)))
    blocks = (min(-(-pixels(x) // WARPS), 2 * BLOCKS),)
    arguments = (out, x, scale, shift, np.float32(epsilon), *_sizes(x))
    function(blocks, (WARPS * LANES,), arguments)


def _partial(out: Any, g: Spec, *_: Spec, **__: Any) -> list[Spec]:
    return [Spec((_blocks(g), 2 * g.shape[-1]))]


@instruction(scratch=_partial)
def layer_norm_back(
    out: tuple[Array, Array], g: Array, x: Array, scale: Array, *other: Array, epsilon: float,
    scratch: Sequence[Array],
) -> None:  # fmt: skip
    """The gradient of x, plus another one if given; and those of scale and shift, in one array."""
    d, both = out
    shared = 4 * WARPS * x.shape[-1]
    function = kernel("tokens", _instance("layer_norm_back", x, pieces(x)), shared)
    more = (*other, NULL)[:1]
    arguments = (d, scratch[0], g, x, scale, *more, np.float32(epsilon), *_sizes(x))
    function((_blocks(x),), (WARPS * LANES,), arguments, shared_mem=shared)
    sizes = np.int32(_blocks(x)), np.int32(both.size)
    blocks = (-(-both.size // 32),)
    kernel("tokens", "total_rows")(blocks, (32, 32), (both, scratch[0], *sizes))


@instruction(in_place=(0,))
def bias_activation_forward(
    out: Array, x: Array, bias: Array, *residual: Array, activation: str
) -> None:
    """activation(x + bias), plus a residual if given."""
    grid, block = launch.pixel_grid(pixels(x), x.shape[-1], WIDEST // x.dtype.itemsize)
    function = kernel("tokens", _instance("bias_activation", x, activation))
    function(grid, block, (out, x, bias, *(*residual, NULL)[:1], *_sizes(x)))


@instruction()
def bias_activation_back(
    out: tuple[Array, Array], g: Array, x: Array, bias: Array, activation: str
) -> None:
    """The gradient of x + bias, and its partial sums for the gradient of the bias."""
    vector = WIDEST // x.dtype.itemsize
    grid, block = launch.pixel_grid(pixels(x), x.shape[-1], vector)
    function = kernel("tokens", _instance("bias_activation_back", x, activation))
    arguments = (*out, g, x, bias, *_sizes(x))
    function(grid, block, arguments, shared_mem=shared_bytes(block, vector))
