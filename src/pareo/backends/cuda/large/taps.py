"""Gradients of filters by our own kernel (taps.cu), where it may be faster than cuDNN's plans."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo.backends.cuda.large import launch
from pareo.backends.cuda.large.cudnn import FILTERS, IMAGES, RESULT, Convolution

BLOCK_FILTERS, WARP_COLUMNS, UNIT, CHUNK, STAGES = 64, 48, 128, 32, 3  # as in taps.cu
MOST_SHARED = 112 << 10  # bytes: two blocks on a multiprocessor
MULTIPROCESSORS = 132  # of a full Hopper: a guess is enough to cut by
WARPS = (3, 4, 5)
NAME = "pareo taps"


@dataclass(frozen=True)
class Taps:
    """How one convolution's filters are cut into blocks."""

    convolution: Convolution
    slice: int  # channels of a block
    warps: int

    @property
    def name(self) -> str:
        return NAME

    @property
    def pitch(self) -> int:
        """Elements between positions in shared memory: 8 or 24 beyond a multiple of 32."""
        return next(p for p in range(self.slice, self.slice + 32) if p % 32 in (8, 24))

    @property
    def padded_width(self) -> int:
        return self.convolution.result[3] + self.convolution.filters[3] - 1

    @property
    def plane(self) -> int:
        """Positions in a padded image."""
        rows = self.convolution.result[2] + self.convolution.filters[2] - 1
        return rows * self.padded_width

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        kh, kw = self.convolution.filters[2:]
        window = UNIT + (kh - 1) * self.padded_width + kw - 1
        gradients, places = STAGES * CHUNK * (BLOCK_FILTERS + 8), 2 * (window + UNIT)
        return 4 * (gradients + 2 * window * self.pitch + places)

    @property
    def places(self) -> tuple[int, int]:
        """Blocks along the filters and along the channels."""
        filters, channels = self.convolution.filters[:2]
        return -(-filters // BLOCK_FILTERS), -(-channels // self.slice)

    @property
    def units(self) -> int:
        """Units of positions that a block sums up."""
        total = -(-self.convolution.images[0] * self.plane // UNIT)
        across, along = self.places
        together = min(3 if self.warps <= 3 else 2, (227 << 10) // (self.shared + 1024))
        parts = MULTIPROCESSORS * together // (across * along)
        return -(-total // max(1, min(total, parts)))

    @property
    def parts(self) -> int:
        """Blocks that share a place, each with positions of its own."""
        total = -(-self.convolution.images[0] * self.plane // UNIT)
        return -(-total // self.units)

    @property
    def waste(self) -> float:
        """Columns computed over columns needed."""
        kh, kw = self.convolution.filters[2:]
        channels = self.convolution.filters[1]
        return self.places[1] * self.warps * WARP_COLUMNS / (kh * kw * channels)

    @property
    def workspace(self) -> int:
        """Bytes of partial sums."""
        return self.parts * self.convolution.size(FILTERS) * 4

    def run(self, arrays: dict[int, Any], workspace: Any) -> None:
        """Compute it, on the stream in use."""
        one = self.convolution
        images, channels, height, width = one.images
        numbers = (
            images, height, width, channels, *one.result[2:], one.filters[0],
            *one.filters[2:], *one.padding[:2],
        )  # fmt: skip
        quick = ((1 << 40) // self.plane + 1, (1 << 40) // self.padded_width + 1)
        sizes = self.slice, self.pitch, self.units
        function = launch.kernel("taps", f"filters_back<{self.warps}>", MOST_SHARED)
        function(
            (*self.places, self.parts),
            (32 * self.warps,),
            (workspace, arrays[IMAGES], arrays[RESULT], *map(np.int32, numbers),
             *map(np.uint64, quick), *map(np.int32, sizes)),
            shared_mem=self.shared,
        )  # fmt: skip
        count = one.size(FILTERS) // 4
        launch.kernel("taps", "add_parts")(
            *launch.flat(count), (arrays[FILTERS], workspace, np.int32(count), np.int32(self.parts))
        )


def taps(one: Convolution) -> Taps | None:
    """The best cut of a convolution's filters, or None where the kernel is not for it."""
    plain = one.stride == one.dilation == (1, 1) and one.images[1] == one.filters[1]
    whole = one.filters[0] % 4 == 0 and one.filters[1] % 4 == 0
    several = one.filters[2] * one.filters[3] > 1
    inside = all(
        2 * pad <= side for pad, side in zip(one.padding, one.filters[2:] * 2, strict=True)
    )
    if (one.way, one.precision) != ("filters", "tf32") or not (
        plain and whole and several and inside
    ):
        return None
    if max(one.size(IMAGES), one.size(RESULT)) >= 1 << 31:
        return None  # places are counted in 32 bits
    found = []
    for warps in WARPS:
        for channels in (16, 12, 8):
            cut = Taps(one, channels, warps)
            columns = one.filters[2] * one.filters[3] * channels
            even = 32 * warps % (channels // 4) == 0
            exact = one.images[0] * cut.plane**2 < 1 << 40  # division by multiplication
            fits = columns <= warps * WARP_COLUMNS and cut.shared <= MOST_SHARED
            if fits and even and exact:
                found.append(cut)
    return min(found, key=lambda cut: (cut.waste, -cut.slice), default=None)
