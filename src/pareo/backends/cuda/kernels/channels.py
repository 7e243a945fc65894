"""Sums over the channels of (N, C, pixels), as channels.cuh divides them among blocks."""

import math
from typing import Any, NamedTuple

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.kernels.elementwise import WIDEST
from pareo.backends.cuda.runtime import launch
from pareo.spec import Spec

BLOCKS = 1024  # enough to keep any GPU of today busy
LEAST, LEAST_IMAGES = 2048, 64  # elements, and images of one pixel, that are worth a block
COLUMNS, LINES = 32, 8  # as in channels.cuh


class Channels(NamedTuple):
    """Images (N, C, pixels), and into how many parts the elements of a channel are divided."""

    images: int
    channels: int
    pixels: int
    parts: int

    @classmethod
    def of(cls, x: Array | Spec, axis: int = 1) -> "Channels":
        """The channels of x along an axis."""
        images, pixels = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
        count = x.shape[axis]
        groups = -(-count // COLUMNS) if pixels == 1 else count
        units = -(-images // LEAST_IMAGES) if pixels == 1 else -(-images * pixels // LEAST)
        return cls(images, count, pixels, max(1, min(-(-BLOCKS // max(groups, 1)), units)))

    @property
    def layout(self) -> np.ndarray:
        """The struct Layout."""
        return launch.struct(self)

    @property
    def partial(self) -> Spec:
        """The work array for the sums of the parts."""
        return Spec((2 * self.channels * self.parts,), "float64")

    def sum(self, file: str, name: str, kind: str, *arguments: Any) -> None:
        """Launch the kernel of a file that sums over parts.

        That is NAME_columns where pixels are 1, and NAME_packs where they are whole packs.
        """
        if self.pixels == 1:
            groups, threads = -(-self.channels // COLUMNS), (COLUMNS, LINES)
            name = f"{name}_columns"
        else:
            share = -(-self.images * self.pixels // self.parts)
            groups, threads = self.channels, (launch.threads_for(share // 4, launch.THREADS), 1)
            width = WIDEST // np.dtype(kind).itemsize
            arrays = [a for a in arguments if hasattr(a, "data") and hasattr(a.data, "ptr")]
            whole = self.pixels % width == 0 and not any(a.data.ptr % WIDEST for a in arrays)
            name = f"{name}_packs" if whole else f"{name}_rows"
        if groups:
            grid = (groups, self.parts)
            launch.kernel(file, name, kind)(grid, threads, (*arguments, self.layout))

    def finish(self, file: str, name: str, kind: str, *arguments: Any) -> None:
        """Launch a kernel with a warp for each channel."""
        blocks = -(-32 * self.channels // launch.THREADS)
        launch.blocks(blocks, launch.THREADS, file, name, kind, *arguments)
