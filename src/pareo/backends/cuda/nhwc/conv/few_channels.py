"""Convolutions from few channels by warpgroup products (narrow.cu), on Hopper in tf32."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from pareo.backends.cuda.nhwc.conv.cudnn import BIAS, FILTERS, IMAGES, RESULT, Convolution
from pareo.backends.cuda.nhwc.conv.filter_gradient import ARCH, CHUNK, record
from pareo.backends.cuda.nhwc.conv.positions import grid, origin
from pareo.backends.cuda.runtime import source

NAME = "pareo narrow"
WIDTH, TILE, THREADS = 64, 192, 512  # filters at most; positions of a tile: as in narrow.cu
RINGS = (16, 32)  # chunks of pixels
MOST_SHARED = 224 << 10


@dataclass(frozen=True)
class Narrow:
    """One convolution, its positions shared among blocks."""

    convolution: Convolution
    blocks: int

    @property
    def name(self) -> str:
        return NAME

    @property
    def pitch(self) -> int:
        """Numbers between pixels in shared memory: no two threads meet in a bank."""
        channels = self.convolution.images[1]
        return next(p for p in range(channels, channels + 8, 4) if p % 8 == 4)

    @property
    def chunks(self) -> int:
        """Of eight groups of four channels."""
        _, channels, kh, kw = self.convolution.filters
        return -(-kh * kw * channels // CHUNK)

    @property
    def ring(self) -> int | None:
        """Chunks of pixels in shared memory, some of them on their way; None where none will do."""
        _, _, kh, kw = self.convolution.filters
        span = (kh - 1) * grid(self.convolution)[1] + kw - 1
        return next((ring for ring in RINGS if CHUNK * ring >= 1.5 * TILE + span), None)

    @property
    def shared(self) -> int:
        """Bytes of shared memory: all filters, and the ring."""
        return 4 * CHUNK * (self.chunks * WIDTH + (self.ring or 0) * self.pitch)

    @property
    def workspace(self) -> int:
        """Bytes: the filters in the order of the products."""
        return 4 * CHUNK * self.chunks * WIDTH

    @property
    def positions(self) -> int:
        rows, columns = grid(self.convolution)
        return self.convolution.images[0] * rows * columns

    def run(self, arrays: dict[int, Any], workspace: Any) -> None:
        """Compute it, on the stream in use."""
        one = self.convolution
        filters, channels, kh, kw = one.filters
        bits = (self.ring or 1).bit_length() - 1
        told = {"KH": kh, "KW": kw, "C": channels, "PITCH": self.pitch, "RING_BITS": bits}
        laid = workspace[: self.workspace].view(np.float32)
        macros = tuple((name, str(value)) for name, value in told.items())
        kernel("lay_filters", macros)(
            (WIDTH,), (CHUNK * self.chunks,), (laid, arrays[FILTERS], np.int32(filters))
        )
        kernel("narrow", macros, MOST_SHARED)(
            (self.blocks,), (THREADS,),
            (arrays[RESULT], arrays[IMAGES], laid, arrays[BIAS], self._layer()),
            shared_mem=self.shared,
        )  # fmt: skip

    def _layer(self) -> Any:
        """The struct Layer of narrow.cu."""
        one = self.convolution
        rows, columns = grid(one)
        numbers = (
            *one.images[2:], one.filters[0], *one.result[2:],
            columns, rows * columns, self.positions, origin(one), one.ending == "bias_relu",
        )  # fmt: skip
        return record(numbers, (rows, columns))


@cache
def kernel(name: str, macros: tuple[tuple[str, str], ...], shared: int = 0) -> Any:
    """A kernel of narrow.cu for one kind of filters."""
    options = source.defines(**dict(macros))
    text = source.read("nhwc/conv/few_channels.cu")
    return source.module(text, arch=ARCH, options=options).function(name, shared)


def narrow(one: Convolution, capability: str, blocks: int) -> Narrow | None:
    """The way of a convolution, or None where it is not for it."""
    filters, channels, _, kw = one.filters
    plain = one.way == "result" and one.precision == "tf32" and one.images[1] == channels
    dense = one.stride == one.dilation == (1, 1) and one.ending in ("bias", "bias_relu")
    fits = channels % 4 == 0 and filters % 8 == 0 and filters <= WIDTH
    small = max(one.size(IMAGES), one.size(RESULT)) < 1 << 31  # places are counted in 32 bits
    found = Narrow(one, blocks)
    if not (capability == "90" and plain and dense and fits and small and found.chunks <= CHUNK):
        return None
    rows, columns = grid(one)
    exact = found.positions * rows * columns < 1 << 40 and columns >= kw  # division by multiplying
    return found if exact and found.ring and found.shared <= MOST_SHARED else None
