"""Batch normalisation."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.kernels.channels import Channels
from pareo.backends.cuda.kernels.elementwise import WIDEST
from pareo.backends.cuda.runtime import launch
from pareo.backends.cuda.table import backend
from pareo.spec import Spec

NONE = -1  # no operand is overwritten


def _scratch(out: Any, first: Spec, *_: Spec, **__: Any) -> list[Spec]:
    """For the sums of the parts, and four numbers for each channel."""
    channels = Channels.of(first)
    return [channels.partial, first.like((4 * channels.channels,))]


def _elements(name: str, out: Array, arrays: Sequence[Array], numbers: Array) -> None:
    """Launch NAME of batch_norm.cu over all elements; `numbers` are four for each channel."""
    channels, count, pixels = out.shape[1], out.size, Channels.of(out).pixels
    width = WIDEST // out.itemsize
    if pixels % width == 0 and not any(a.data.ptr % WIDEST for a in (out, *arrays)):
        name, count, pixels = f"{name}_packed", count // width, pixels // width
    arguments = (out, *arrays, numbers, count, channels, pixels)
    launch.over(count, "batch_norm", name, out.dtype.char, *arguments)


@backend.kernel(in_place=(0, NONE, NONE), strided=False, scratch=_scratch)
def batch_norm(
    out: Array, x: Array, scale: Array, shift: Array, epsilon: float, scratch: Sequence[Array]
) -> None:
    y, mean, variance = out
    partial, numbers = scratch
    channels, kind = Channels.of(x), x.dtype.char
    channels.sum("batch_norm", "statistics", kind, partial, x)
    channels.finish(
        "batch_norm", "statistics", kind, mean, variance, numbers, partial, x, scale, shift,
        channels.layout, np.float64(epsilon),
    )  # fmt: skip
    _elements("normalised", y, [x], numbers)


@backend.kernel(in_place=(0, NONE, NONE), strided=False, scratch=_scratch)
def batch_norm_gradient(
    out: Array,
    g: Array,
    x: Array,
    scale: Array,
    mean: Array,
    variance: Array,
    epsilon: float,
    scratch: Sequence[Array],
) -> None:
    to_x, to_scale, to_shift = out
    partial, numbers = scratch
    channels, kind = Channels.of(x), x.dtype.char
    channels.sum("batch_norm", "errors", kind, partial, g, x, mean)
    channels.finish(
        "batch_norm", "slopes", kind, to_scale, to_shift, numbers, partial, scale, mean, variance,
        channels.layout, np.float64(epsilon),
    )  # fmt: skip
    _elements("gradients", to_x, [g, x], numbers)


@backend.kernel(
    in_place=(0,), strided=False, scratch=lambda out, x, *_, **__: [x.like((4 * x.shape[1],))]
)
def batch_norm_inference(
    out: Array,
    x: Array,
    scale: Array,
    shift: Array,
    mean: Array,
    variance: Array,
    epsilon: float,
    scratch: Sequence[Array],
) -> None:
    count, (numbers,) = x.shape[1], scratch
    arguments = (numbers, scale, shift, mean, variance, count, np.float64(epsilon))
    launch.over(count, "batch_norm", "inference", x.dtype.char, *arguments)
    _elements("normalised", out, [x], numbers)
