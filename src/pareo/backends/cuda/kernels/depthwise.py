"""Depthwise convolution: each filter reads one channel, so there is no matrix product."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.runtime import launch
from pareo.spec import Spec

BLOCKS = 2048  # of the gradient of the filters
LEAST = 1024  # pixels of the output that are worth a block
GROUP = 8  # as in depthwise.cu


def is_depthwise(images: Array | Spec, how: Mapping[str, Any]) -> bool:
    """Whether each group of a convolution of these images is one channel."""
    return how["groups"] == images.shape[1] > 1


def parts(images: Array | Spec, output: Array | Spec, window: Sequence[int]) -> int:
    """Into how many parts the images are divided for the gradient of the filters."""
    blocks = output.shape[1] * window[0] * -(-window[1] // GROUP)
    units = images.shape[0] * math.prod(output.shape[2:]) // LEAST
    return max(1, min(-(-BLOCKS // max(1, blocks)), units, images.shape[0]))


def _struct(
    images: Array, output: Array, window: Sequence[int], how: Mapping[str, Any]
) -> np.ndarray:
    n, channels, height, width = images.shape
    return launch.struct(
        n, channels, output.shape[1] // channels, height, width, output.shape[2:], window,
        how["stride"], how["padding"][:2], how["dilation"], parts(images, output, window),
        of=np.int32,
    )  # fmt: skip


def forward(out: Array, x: Array, w: Array, how: Mapping[str, Any]) -> None:
    """The convolution itself."""
    arguments = (out, x, w, _struct(x, out, w.shape[2:], how))
    _planes(out, "depthwise", arguments)


def input_gradient(out: Array, g: Array, w: Array, how: Mapping[str, Any]) -> None:
    """The gradient of the images."""
    window = w.shape[2:]
    if how["stride"] == (1, 1) and g.shape[1] == out.shape[1]:
        # The convolution of g with turned filters, padded so that the sizes are those of out.
        reach = [step * (size - 1) for step, size in zip(how["dilation"], window, strict=True)]
        before = [far - side for far, side in zip(reach, how["padding"], strict=False)]
        turned = _struct(g, out, window, {**how, "padding": before})
        _planes(out, "depthwise_turned", (out, g, w, turned))
        return
    _planes(out, "depthwise_input", (out, g, w, _struct(out, g, window, how)))


def _planes(out: Array, name: str, arguments: Sequence[Any]) -> None:
    planes, pixels = math.prod(out.shape[:2]), math.prod(out.shape[2:])
    launch.planes(planes, pixels, "depthwise", name, out.dtype.char, *arguments)


def weight_gradient(out: Array, x: Array, g: Array, sums: Array, how: Mapping[str, Any]) -> None:
    """The gradient of the filters; `sums` is the work array for those of the parts."""
    window, shared, kind = out.shape[2:], parts(x, g, out.shape[2:]), out.dtype.char
    grid = (len(out) * shared, window[0], -(-window[1] // GROUP))
    threads = launch.threads_for(math.prod(g.shape[2:]), launch.THREADS)
    arguments = (sums, x, g, _struct(x, g, window, how))
    launch.kernel("depthwise", "depthwise_weight", kind)(grid, (threads,), arguments)
    size = out.size
    launch.over(size, "depthwise", "depthwise_totals", kind, out, sums, size, shared)
