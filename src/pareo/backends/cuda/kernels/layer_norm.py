"""Layer normalisation."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.kernels.channels import Channels
from pareo.backends.cuda.runtime import launch
from pareo.backends.cuda.table import backend
from pareo.spec import Spec

LONG = 2048  # elements of a row


def _rows(name: str, x: Array, axis: int, epsilon: float, *arguments: Any) -> None:
    """Launch NAME of layer_norm.cu.

    A contiguous row has a warp, or a block if it is long; any other row has a thread.
    """
    outer, length, inner, _ = Channels.of(x, axis)
    more = (launch.struct(outer, length, inner), np.float64(epsilon))
    if inner == 1 and length <= LONG:
        blocks, form = -(-outer * 32 // launch.THREADS), f"{name}_warps"
        launch.blocks(blocks, launch.THREADS, "layer_norm", form, x.dtype.char, *arguments, *more)
    elif inner == 1:
        threads = launch.threads_for(length // 4, launch.THREADS)
        form = f"{name}_rows"
        launch.blocks(outer, threads, "layer_norm", form, x.dtype.char, *arguments, *more)
    elif outer * inner:
        threads, form = 64, f"{name}_lines"
        blocks = -(-outer * inner // threads)
        launch.blocks(blocks, threads, "layer_norm", form, x.dtype.char, *arguments, *more)


@backend.kernel(in_place=(0,), strided=False)
def layer_norm(out: Array, x: Array, scale: Array, shift: Array, axis: int, epsilon: float) -> None:
    _rows("layer_norm", x, axis, epsilon, out, x, scale, shift)


def _scratch(out: Any, g: Spec, x: Spec, scale: Spec, axis: int, epsilon: float) -> list[Spec]:
    """For two numbers for each row, and the sums of the parts."""
    channels = Channels.of(x, axis)
    return [Spec((2 * channels.images * channels.pixels,), "float64"), channels.partial]


@backend.kernel(strided=False, scratch=_scratch)
def layer_norm_gradient(
    out: Array,
    g: Array,
    x: Array,
    scale: Array,
    axis: int,
    epsilon: float,
    scratch: Sequence[Array],
) -> None:
    to_x, to_scale, to_shift = out
    normals, partial = scratch
    channels, kind = Channels.of(x, axis), x.dtype.char
    _rows("layer_norm_gradient", x, axis, epsilon, to_x, normals, g, x, scale)
    channels.sum("layer_norm", "errors", kind, partial, g, x, normals)
    arguments = (to_scale, to_shift, partial, channels.layout)
    channels.finish("layer_norm", "totals", kind, *arguments)
