"""Gradients of filters by warpgroup products (filters.cu), on Hopper in tf32."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from pareo.backends.cuda.nhwc.conv.cudnn import FILTERS, IMAGES, RESULT, Convolution
from pareo.backends.cuda.nhwc.conv.work_split import Room, Shares
from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.runtime import source
from pareo.backends.cuda.runtime.launch import struct

NAME = "pareo filters"
ARCH = "sm_90a"
CHUNK, ROWS, PITCH, STAGES, THREADS = 32, 128, 72, 4, 384  # as in filters.cu
WIDTHS = {64: (64, 1), 96: (96, 1), 128: (128, 1), 192: (96, 2), 256: (128, 2)}  # N and T there
INSTANCES = [f"filters_back<{n}, {t}>" for n, t in WIDTHS.values()]


@dataclass(frozen=True)
class Filters:
    """How one convolution's filters are cut into tiles, and those shared among blocks."""

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
        """Of the product: a channel at a tap each."""
        _, channels, kh, kw = self.convolution.filters
        return channels * kh * kw

    @property
    def chunks(self) -> int:
        return -(-self.positions // CHUNK)

    @property
    def across(self) -> int:
        """Tiles along the filters."""
        return -(-self.convolution.filters[0] // self.width)

    @property
    def tiles(self) -> int:
        return -(-self.rows // ROWS) * self.across

    @property
    def shares(self) -> Shares:
        return Shares(self.tiles, self.chunks, self.blocks)

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        stage = 4 * (self.width * CHUNK + 2 * CHUNK * PITCH)
        return STAGES * -(-stage // 1024) * 1024

    @property
    def _room(self) -> Room:
        turned = self.chunks * self.across * self.width * CHUNK
        return Room(turned, self.shares.parts * self.convolution.size(FILTERS))

    @property
    def workspace(self) -> int:
        return self._room.nbytes

    def run(self, arrays: dict[int, Any], workspace: Any) -> None:
        """Compute it, on the stream in use."""
        one = self.convolution
        turned, partial = self._room.split(workspace)
        turn(turned, arrays[RESULT], one, one.result[2:], self.across * self.width)
        many, times = WIDTHS[self.width]
        kernel(f"filters_back<{many}, {times}>", self.shared)(
            (self.blocks,), (THREADS,), (partial, arrays[IMAGES], turned, self._shape()),
            shared_mem=self.shared,
        )  # fmt: skip
        sizes = map(np.int32, (self.rows, one.filters[0], self.width, self.positions, self.blocks))
        kernel("add_parts")(
            *launch.flat(one.size(FILTERS) // 4), (arrays[FILTERS], partial, *sizes)
        )

    def _shape(self) -> Any:
        """The struct Shape of filters.cu."""
        one = self.convolution
        _, channels, height, width = one.images
        numbers = (
            height, width, channels, *one.result[2:], one.filters[0], *one.filters[2:],
            *one.stride, *one.padding[:2], *one.dilation, self.positions,
        )  # fmt: skip
        return record(numbers, one.result[2:])


def record(numbers: tuple[int, ...], grid: tuple[int, ...]) -> Any:
    """A struct of ints that ends with what divides by the positions of an image and of a row."""
    rows, columns = grid
    quick = ((1 << 40) // (rows * columns) + 1, (1 << 40) // columns + 1)
    even = (*numbers, 0) if len(numbers) % 2 else numbers
    return struct(*(a | b << 32 for a, b in zip(even[::2], even[1::2], strict=True)), *quick)


def turn(out: Any, gradients: Any, one: Convolution, grid: tuple[int, ...], padded: int) -> None:
    """Lay the result's gradients out anew, positions side by side on a grid of rows and columns."""
    images, filters, *result = one.result
    rows, columns = grid
    numbers = (images * rows * columns, rows * columns, columns, *result, filters, padded)
    chunks = -(-numbers[0] // CHUNK)
    kernel("turn")((chunks, padded // 32), (256,), (out, gradients, record(numbers, grid)))


@cache
def kernel(name: str, shared: int = 0) -> Any:
    """A kernel of filters.cu, for this architecture and its own products alone."""
    names = [name] if "<" in name else []
    return source.module(source.read("nhwc/conv/filter_gradient.cu"), names, arch=ARCH).function(
        name, shared
    )


def filters(one: Convolution, capability: str, blocks: int) -> Filters | None:
    """The way of a convolution's filters with so many blocks, or None where it is not for it."""
    plain = one.way == "filters" and one.precision == "tf32" and one.images[1] == one.filters[1]
    whole = one.filters[1] % 4 == 0
    exact = one.size(RESULT) // one.filters[0] * one.result[2] * one.result[3] < 1 << 40
    small = max(one.size(IMAGES), one.size(RESULT)) < 1 << 31  # places are counted in 32 bits
    if not (capability == "90" and plain and whole and exact and small):
        return None
    return Filters(one, min(WIDTHS, key=lambda width: _brought(one.filters[0], width)), blocks)


def _brought(filters: int, width: int) -> float:
    """What tiles of a width bring to shared memory, in numbers for each product.

    >>> min(WIDTHS, key=lambda width: _brought(320, width))
    192
    """
    return -(-filters // width) * width * (1 / ROWS + 1 / width)
