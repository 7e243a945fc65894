"""Convolutions with a 3 x 3 filter for each channel (depthwise.cu): forward and both gradients.

They read and write each pixel about once. cuDNN's kernels treat them as convolutions in groups.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.conv.problem import FILTERS, IMAGES, RESULT, Convolution
from pareo.backends.cuda.runtime import source
from pareo.backends.cuda.runtime.launch import struct

NAME = "pareo depthwise"  # on disk: see plans.py
TAPS, MOST_CHANNELS, THREADS = 9, 64, 256  # as in depthwise.cu
RESULTS = {1: 4, 2: 2}  # of a thread at a time, by stride
LONG = 16  # results of a segment
BLOCKS = 1056  # that run at the same time, or more
SUM_BLOCKS = 528  # fewer, as what each of them leaves is added up
STRIDES = (1, 2)


@dataclass(frozen=True)
class Depthwise:
    """One such convolution, or one of its gradients."""

    convolution: Convolution

    @property
    def name(self) -> str:
        return NAME

    @property
    def _type(self) -> str:
        return "bfloat16" if self.convolution.precision == "bfloat16" else "float"

    @property
    def _vector(self) -> int:
        """The channels of a thread."""
        sums = self.convolution.computes == "filters"
        return 8 if self._type == "bfloat16" and not sums else 4

    @property
    def _block(self) -> tuple[int, int]:
        groups = self.convolution.images[1] // self._vector
        wide = min(groups, MOST_CHANNELS // self._vector)
        return wide, THREADS // wide

    def _grid(self, count: int, most: int) -> tuple[int, int]:
        """Blocks for `count` pieces of work and for all channels."""
        wide, high = self._block
        columns = -(-self.convolution.images[1] // (wide * self._vector))
        return min(-(-count // high), max(1, most // columns)), columns

    @property
    def _sum_grid(self) -> tuple[int, int]:
        images, _, height, width = self.convolution.result
        return self._grid(images * height * -(-width // LONG), SUM_BLOCKS)

    @property
    def workspace(self) -> int:
        """Bytes: the blocks' sums, for the gradient of the filters."""
        if self.convolution.computes != "filters":
            return 0
        return 4 * TAPS * self._sum_grid[0] * self.convolution.images[1]

    def run(self, arrays: dict[int, Array], workspace: Array) -> None:
        """Compute it, on the current stream."""
        one = self.convolution
        stride, vector = one.stride[0], self._vector
        x, w, y = (arrays[name] for name in (IMAGES, FILTERS, RESULT))
        sizes = (one.images[0], *one.images[2:], one.images[1], *one.result[2:])
        layer = struct(*sizes, *one.padding[:2], of=np.int32)
        if one.computes == "filters":
            self._filters(x, y, w, workspace, layer)
        elif one.computes == "images" and stride > 1:
            name = f"depthwise_images<{self._type}, {vector}, {stride}>"
            count = one.images[0] * one.images[2] * one.images[3]
            kernel(name)(self._grid(count, BLOCKS), self._block, (x, y, w, layer))
        else:
            source_array, target, shape = x, y, one.result
            back = one.computes == "images"
            if back:  # the forward pass of the gradient, with flipped filters
                source_array, target, shape = y, x, one.images
                sizes = (one.images[0], *one.result[2:], one.images[1], *one.images[2:])
                layer = struct(*sizes, *(2 - pad for pad in one.padding[:2]), of=np.int32)
            outs = RESULTS[stride]
            count = shape[0] * shape[2] * -(-shape[3] // outs)
            name = f"depthwise<{self._type}, {vector}, {stride}, {outs}>"
            arguments = (target, source_array, w, layer, np.int32(back))
            kernel(name)(self._grid(count, BLOCKS), self._block, arguments)

    def _filters(self, x: Array, g: Array, w: Array, workspace: Array, layer: Any) -> None:
        one, grid, (wide, high) = self.convolution, self._sum_grid, self._block
        partial = workspace[: self.workspace].view(np.float32)
        name = f"depthwise_filters<{self._type}, {self._vector}, {one.stride[0]}, {LONG}>"
        shared = 4 * wide * high * self._vector
        kernel(name)(grid, (wide, high), (partial, x, g, layer), shared_mem=shared)
        sizes = np.int32(grid[0]), np.int32(one.images[1])
        blocks = (-(-TAPS * one.images[1] // 32),)
        kernel(f"add_rows<{self._type}>")(blocks, (32, 8), (w, partial, *sizes))


def instances() -> list[str]:
    """The template instances of depthwise.cu."""
    found = []
    for kind, vector in (("float", 4), ("bfloat16", 8)):
        for stride in STRIDES:
            found.append(f"depthwise<{kind}, {vector}, {stride}, {RESULTS[stride]}>")
            found.append(f"depthwise_filters<{kind}, 4, {stride}, {LONG}>")
        found += [f"depthwise_images<{kind}, {vector}, 2>", f"add_rows<{kind}>"]
    return found


@cache
def kernel(name: str) -> Any:
    """A kernel of depthwise.cu, compiled on first use."""
    return source.module(source.read("nhwc/conv/depthwise.cu"), [name]).function(name)


def plan(one: Convolution) -> Depthwise | None:
    """The plan of a convolution, or None where it is of another kind."""
    filters, each, *window = one.filters
    stride = one.stride[0]
    single = each == 1 and filters == one.images[1] and window == [3, 3] and not one.epilogue
    even = one.stride == (stride, stride) and stride in STRIDES and one.dilation == (1, 1)
    wide = one.images[1] % (8 if one.precision == "bfloat16" else 4) == 0
    padded = max(one.padding) <= 2
    small = max(one.size(IMAGES), one.size(RESULT)) < 1 << 31
    return Depthwise(one) if single and even and wide and padded and small else None
