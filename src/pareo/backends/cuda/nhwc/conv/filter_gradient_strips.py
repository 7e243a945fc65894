"""Gradients of filters by warpgroup products on strips of pixels, on Hopper in tf32.

The kernel is filter_gradient_strips.cu.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.conv.filter_gradient import (
    ARCH,
    CHUNK,
    struct_with_divisors,
    transpose_gradients,
)
from pareo.backends.cuda.nhwc.conv.positions import origin, position_grid
from pareo.backends.cuda.nhwc.conv.problem import FILTERS, IMAGES, RESULT, Convolution
from pareo.backends.cuda.nhwc.conv.work_split import Workspace, WorkSplit
from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.runtime import source

NAME = "pareo strips"  # on disk: see plans.py
WIDTH, PITCH, STAGES = 64, 72, 6  # as in filter_gradient_strips.cu
WARPGROUPS = ((3, 3, True), (2, 4, False), (3, 2, False), (3, 1, False))  # GROUPS, T, WHOLE there
INSTANCES = [f"strips<{groups}, {t}, {str(whole).lower()}>" for groups, t, whole in WARPGROUPS]
RINGS = (8, 16)  # possible sizes of the ring buffer, in chunks of pixels
AHEAD = 3  # chunks of pixels that are loaded ahead
MOST_SHARED = 220 << 10


@dataclass(frozen=True)
class StripFilterGradient:
    """How one convolution's filters are cut into tiles, and the tiles split among blocks."""

    convolution: Convolution
    groups: int
    times: int
    whole: bool
    slice: int  # channels of a tile
    taps: int  # of a tile
    blocks: int

    @property
    def name(self) -> str:
        return NAME

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of an image's positions."""
        return position_grid(self.convolution)

    @property
    def positions(self) -> int:
        return self.convolution.images[0] * self.grid[0] * self.grid[1]

    @property
    def chunks(self) -> int:
        return -(-self.positions // CHUNK)

    @property
    def filter_tiles(self) -> int:
        """Tiles along the filters."""
        return -(-self.convolution.filters[0] // WIDTH)

    @property
    def tiles(self) -> int:
        _, channels, kh, kw = self.convolution.filters
        return -(-kh * kw // self.taps) * -(-channels // self.slice) * self.filter_tiles

    @property
    def split(self) -> WorkSplit:
        return WorkSplit(self.tiles, self.chunks, self.blocks)

    @property
    def depth(self) -> int:
        """Chunks of pixels between those that the first and the last tap of a tile read."""
        _, _, kh, kw = self.convolution.filters
        firsts = range(0, kh * kw, self.taps)
        spans = (self._ahead(min(t + self.taps, kh * kw) - 1) - self._ahead(t) for t in firsts)
        return (CHUNK - 1 + max(spans)) // CHUNK

    def _ahead(self, tap: int) -> int:
        """Positions between the pixel of the first tap and that of another."""
        down, along = divmod(tap, self.convolution.filters[3])
        return down * self.grid[1] + along

    @property
    def ring(self) -> int | None:
        """Size of the ring buffer in chunks of pixels; None where no size suffices."""
        return next((ring for ring in RINGS if ring >= self.depth + AHEAD), None)

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        return 4 * CHUNK * (STAGES * WIDTH + ((self.ring or 0) + 1) * PITCH)

    @property
    def cost(self) -> float:
        """Estimated cycles: of the products, or of loads to shared memory at 24 bytes a cycle."""
        products = self.groups * self.times * 64 * WIDTH * CHUNK / 1024
        loads = CHUNK * 4 * (self.slice + WIDTH) / 24
        return self.tiles * self.chunks * max(products, loads)

    @property
    def _workspace(self) -> Workspace:
        transposed = self.chunks * self.filter_tiles * WIDTH * CHUNK
        return Workspace(transposed, self.split.parts * self.convolution.size(FILTERS))

    @property
    def workspace(self) -> int:
        return self._workspace.nbytes

    def run(self, arrays: dict[int, Array], workspace: Array) -> None:
        """Compute it, on the current stream."""
        one = self.convolution
        transposed, partial = self._workspace.split(workspace)
        transpose_gradients(transposed, arrays[RESULT], one, self.grid, self.filter_tiles * WIDTH)
        strip = self._strip()
        threads = 128 * (self.groups + 1)
        instance = f"strips<{self.groups}, {self.times}, {str(self.whole).lower()}>"
        kernel(instance, MOST_SHARED)(
            (self.blocks,), (threads,), (partial, arrays[IMAGES], transposed, strip),
            shared_mem=self.shared,
        )  # fmt: skip
        kernel("add_strips")(
            *launch.element_grid(one.size(FILTERS) // 4),
            (arrays[FILTERS], partial, strip, np.int32(self.blocks)),
        )

    def _strip(self) -> np.ndarray:
        """The struct Strip of filter_gradient_strips.cu."""
        one = self.convolution
        _, channels, height, width = one.images
        filters, _, kh, kw = one.filters
        rows, columns = self.grid
        numbers = (
            height, width, channels, filters, kh * kw, kw,
            columns, rows * columns, self.positions, origin(one),
            self.slice, self.taps, self.depth, (self.ring or 1).bit_length() - 1,
        )  # fmt: skip
        return struct_with_divisors(numbers, self.grid)


@cache
def kernel(name: str, shared: int = 0) -> Any:
    """A kernel of filter_gradient_strips.cu, for the architecture with warpgroup products."""
    names = [name] if "<" in name else []
    return source.module(
        source.read("nhwc/conv/filter_gradient_strips.cu"), names, arch=ARCH
    ).function(name, shared)


def plan(one: Convolution, capability: str, blocks: int) -> StripFilterGradient | None:
    """The plan of a gradient of filters on this many blocks, or None where it does not apply."""
    plain = (
        one.computes == "filters" and one.precision == "tf32" and one.images[1] == one.filters[1]
    )
    dense = one.stride == one.dilation == (1, 1) and one.filters[2] * one.filters[3] > 1
    small = max(one.size(IMAGES), one.size(RESULT)) < 1 << 31  # offsets are 32-bit
    if not (capability == "90" and plain and dense and small and one.filters[1] % 4 == 0):
        return None
    return min(_cuts(one, blocks), key=lambda cut: cut.cost, default=None)


def _cuts(one: Convolution, blocks: int) -> Iterator[StripFilterGradient]:
    """The ways to cut it into tiles that the kernel supports."""
    _, channels, kh, kw = one.filters
    for groups, times, whole in WARPGROUPS:
        rows = 64 * groups * times
        for taps in sorted({-(-kh * kw // parts) for parts in range(1, kh * kw + 1)}):
            most = min(rows // taps // 4 * 4, 64)
            if most == 0 or (whole and most < 64):
                continue
            slices = -(-channels // most)
            even = 64 if whole else -(-channels // slices // 4) * 4
            cut = StripFilterGradient(one, groups, times, whole, even, taps, blocks)
            exact = cut.positions * cut.grid[0] * cut.grid[1] < 1 << 40  # division by multiplying
            if exact and cut.grid[1] >= kw and cut.ring and cut.shared <= MOST_SHARED:
                yield cut
