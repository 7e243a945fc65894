"""Forward convolutions from few channels by warpgroup products, on Hopper in tf32.

The kernel is few_channels.cu.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.conv.filter_gradient import ARCH, CHUNK, struct_with_divisors
from pareo.backends.cuda.nhwc.conv.positions import origin, position_grid
from pareo.backends.cuda.nhwc.conv.problem import BIAS, FILTERS, IMAGES, RESULT, Convolution
from pareo.backends.cuda.runtime import source

NAME = "pareo narrow"  # on disk: see plans.py
WIDTH, TILE, THREADS = 64, 192, 512  # most filters; positions of a tile: as in few_channels.cu
RINGS = (16, 32)  # possible sizes of the ring buffer, in chunks of pixels
MOST_SHARED = 224 << 10


@dataclass(frozen=True)
class FewChannels:
    """One convolution, its positions split among blocks."""

    convolution: Convolution
    blocks: int

    @property
    def name(self) -> str:
        return NAME

    @property
    def pitch(self) -> int:
        """Distance of pixels in shared memory, in numbers: without bank conflicts."""
        channels = self.convolution.images[1]
        return next(p for p in range(channels, channels + 8, 4) if p % 8 == 4)

    @property
    def chunks(self) -> int:
        """Chunks of the sum: eight groups of four channels each."""
        _, channels, kh, kw = self.convolution.filters
        return -(-kh * kw * channels // CHUNK)

    @property
    def ring(self) -> int | None:
        """Size of the ring buffer in chunks of pixels; None where no size suffices."""
        _, _, kh, kw = self.convolution.filters
        span = (kh - 1) * position_grid(self.convolution)[1] + kw - 1
        return next((ring for ring in RINGS if CHUNK * ring >= 1.5 * TILE + span), None)

    @property
    def shared(self) -> int:
        """Bytes of shared memory: all filters, and the ring."""
        return 4 * CHUNK * (self.chunks * WIDTH + (self.ring or 0) * self.pitch)

    @property
    def workspace(self) -> int:
        """Bytes: for the filters in the order of the products."""
        return 4 * CHUNK * self.chunks * WIDTH

    @property
    def positions(self) -> int:
        rows, columns = position_grid(self.convolution)
        return self.convolution.images[0] * rows * columns

    def run(self, arrays: dict[int, Array], workspace: Array) -> None:
        """Compute it, on the current stream."""
        one = self.convolution
        filters, channels, kh, kw = one.filters
        bits = (self.ring or 1).bit_length() - 1
        values = {"KH": kh, "KW": kw, "C": channels, "PITCH": self.pitch, "RING_BITS": bits}
        arranged = workspace[: self.workspace].view(np.float32)
        macros = tuple((name, str(value)) for name, value in values.items())
        kernel("arrange_filters", macros)(
            (WIDTH,), (CHUNK * self.chunks,), (arranged, arrays[FILTERS], np.int32(filters))
        )
        kernel("narrow", macros, MOST_SHARED)(
            (self.blocks,), (THREADS,),
            (arrays[RESULT], arrays[IMAGES], arranged, arrays[BIAS], self._layer()),
            shared_mem=self.shared,
        )  # fmt: skip

    def _layer(self) -> np.ndarray:
        """The struct Layer of few_channels.cu."""
        one = self.convolution
        rows, columns = position_grid(one)
        numbers = (
            *one.images[2:], one.filters[0], *one.result[2:],
            columns, rows * columns, self.positions, origin(one), one.epilogue == "bias_relu",
        )  # fmt: skip
        return struct_with_divisors(numbers, (rows, columns))


@cache
def kernel(name: str, macros: tuple[tuple[str, str], ...], shared: int = 0) -> Any:
    """A kernel of few_channels.cu, compiled for one shape of filters."""
    options = source.defines(**dict(macros))
    text = source.read("nhwc/conv/few_channels.cu")
    return source.module(text, arch=ARCH, options=options).function(name, shared)


def plan(one: Convolution, capability: str, blocks: int) -> FewChannels | None:
    """The plan of a convolution on this many blocks, or None where it does not apply."""
    filters, channels, _, kw = one.filters
    plain = one.computes == "result" and one.precision == "tf32" and one.images[1] == channels
    dense = one.stride == one.dilation == (1, 1) and one.epilogue in ("bias", "bias_relu")
    fits = channels % 4 == 0 and filters % 8 == 0 and filters <= WIDTH
    small = max(one.size(IMAGES), one.size(RESULT)) < 1 << 31  # offsets are 32-bit
    found = FewChannels(one, blocks)
    if not (capability == "90" and plain and dense and fits and small and found.chunks <= CHUNK):
        return None
    rows, columns = position_grid(one)
    exact = found.positions * rows * columns < 1 << 40 and columns >= kw  # division by multiplying
    return found if exact and found.ring and found.shared <= MOST_SHARED else None
