"""Gradients of filters by warpgroup products (filter_gradient.cu), on Hopper in tf32."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.conv.problem import FILTERS, IMAGES, RESULT, Convolution
from pareo.backends.cuda.nhwc.conv.work_split import Workspace, WorkSplit
from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.runtime import source
from pareo.backends.cuda.runtime.launch import struct

NAME = "pareo filters"  # on disk: see plans.py
ARCH = "sm_90a"
CHUNK, ROWS, PITCH, STAGES, THREADS = 32, 128, 72, 4, 384  # as in filter_gradient.cu
WIDTHS = {64: (64, 1), 96: (96, 1), 128: (128, 1), 192: (96, 2), 256: (128, 2)}  # N and T there
INSTANCES = [f"filters_back<{n}, {t}>" for n, t in WIDTHS.values()]


@dataclass(frozen=True)
class FilterGradient:
    """How one convolution's filters are cut into tiles, and the tiles split among blocks."""

    convolution: Convolution
    width: int  # filters of a tile
    blocks: int

    @property
    def name(self) -> str:
        return NAME

    @property
    def positions(self) -> int:
        images, _, height, width = self.convolution.result
        return images * height * width

    @property
    def rows(self) -> int:
        """Rows of the product: one for each tap and channel."""
        _, channels, kh, kw = self.convolution.filters
        return channels * kh * kw

    @property
    def chunks(self) -> int:
        return -(-self.positions // CHUNK)

    @property
    def filter_tiles(self) -> int:
        """Tiles along the filters."""
        return -(-self.convolution.filters[0] // self.width)

    @property
    def tiles(self) -> int:
        return -(-self.rows // ROWS) * self.filter_tiles

    @property
    def split(self) -> WorkSplit:
        return WorkSplit(self.tiles, self.chunks, self.blocks)

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        stage = 4 * (self.width * CHUNK + 2 * CHUNK * PITCH)
        return STAGES * -(-stage // 1024) * 1024

    @property
    def _workspace(self) -> Workspace:
        transposed = self.chunks * self.filter_tiles * self.width * CHUNK
        return Workspace(transposed, self.split.parts * self.convolution.size(FILTERS))

    @property
    def workspace(self) -> int:
        return self._workspace.nbytes

    def run(self, arrays: dict[int, Array], workspace: Array) -> None:
        """Compute it, on the current stream."""
        one = self.convolution
        transposed, partial = self._workspace.split(workspace)
        transpose_gradients(
            transposed, arrays[RESULT], one, one.result[2:], self.filter_tiles * self.width
        )
        n, t = WIDTHS[self.width]
        kernel(f"filters_back<{n}, {t}>", self.shared)(
            (self.blocks,), (THREADS,), (partial, arrays[IMAGES], transposed, self._shape()),
            shared_mem=self.shared,
        )  # fmt: skip
        sizes = map(np.int32, (self.rows, one.filters[0], self.width, self.positions, self.blocks))
        kernel("add_parts")(
            *launch.element_grid(one.size(FILTERS) // 4), (arrays[FILTERS], partial, *sizes)
        )

    def _shape(self) -> np.ndarray:
        """The struct Shape of filter_gradient.cu."""
        one = self.convolution
        _, channels, height, width = one.images
        numbers = (
            height, width, channels, *one.result[2:], one.filters[0], *one.filters[2:],
            *one.stride, *one.padding[:2], *one.dilation, self.positions,
        )  # fmt: skip
        return struct_with_divisors(numbers, one.result[2:])


def struct_with_divisors(numbers: tuple[int, ...], grid: tuple[int, ...]) -> np.ndarray:
    """A struct of ints, followed by multipliers that replace divisions by `grid`.

    They divide by the positions of an image, and by those of a row.
    """
    rows, columns = grid
    quick = ((1 << 40) // (rows * columns) + 1, (1 << 40) // columns + 1)
    even = (*numbers, 0) if len(numbers) % 2 else numbers
    return struct(*(a | b << 32 for a, b in zip(even[::2], even[1::2], strict=True)), *quick)


def transpose_gradients(
    out: Array, gradients: Array, one: Convolution, grid: tuple[int, ...], padded: int
) -> None:
    """Transpose the result's gradients, so that positions on a grid are contiguous."""
    images, filters, *result = one.result
    rows, columns = grid
    numbers = (images * rows * columns, rows * columns, columns, *result, filters, padded)
    chunks = -(-numbers[0] // CHUNK)
    kernel("transpose_gradients")(
        (chunks, padded // 32), (256,), (out, gradients, struct_with_divisors(numbers, grid))
    )


@cache
def kernel(name: str, shared: int = 0) -> Any:
    """A kernel of filter_gradient.cu, compiled for the architecture with warpgroup products."""
    names = [name] if "<" in name else []
    return source.module(source.read("nhwc/conv/filter_gradient.cu"), names, arch=ARCH).function(
        name, shared
    )


def plan(one: Convolution, capability: str, blocks: int) -> FilterGradient | None:
    """The plan of a gradient of filters on this many blocks, or None where it does not apply."""
    plain = (
        one.computes == "filters" and one.precision == "tf32" and one.images[1] == one.filters[1]
    )
    whole = one.filters[1] % 4 == 0
    exact = one.size(RESULT) // one.filters[0] * one.result[2] * one.result[3] < 1 << 40
    small = max(one.size(IMAGES), one.size(RESULT)) < 1 << 31  # offsets are 32-bit
    if not (capability == "90" and plain and whole and exact and small):
        return None
    return FilterGradient(
        one, min(WIDTHS, key=lambda width: _loads_per_product(one.filters[0], width)), blocks
    )


def _loads_per_product(filters: int, width: int) -> float:
    """Numbers loaded to shared memory for each product, with tiles of a width.

    >>> min(WIDTHS, key=lambda width: _loads_per_product(320, width))
    192
    """
    return -(-filters // width) * width * (1 / ROWS + 1 / width)
