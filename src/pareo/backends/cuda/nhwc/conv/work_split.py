"""How kernels on warpgroup products share out their work (warpgroup.cuh), and where they do it."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Shares:
    """Pairs of tile and chunk, shared out among blocks: evenly, in order.

    >>> Shares(tiles=3, chunks=4, blocks=2).each
    6
    """

    tiles: int
    chunks: int
    blocks: int

    @property
    def each(self) -> int:
        """Pairs that a block takes."""
        return -(-self.tiles * self.chunks // self.blocks)

    @property
    def parts(self) -> int:
        """Blocks that share a tile, at most."""
        ends = range(self.chunks, self.tiles * self.chunks + 1, self.chunks)
        return max((end - 1) // self.each - (end - self.chunks) // self.each + 1 for end in ends)


@dataclass(frozen=True)
class Room:
    """A workspace for two arrays: the gradients laid out anew, and the parts of the sums.

    >>> [len(array) for array in Room(turned=3, parts=2).split(np.zeros(30, np.uint8))]
    [3, 2]
    """

    turned: int
    parts: int

    @property
    def nbytes(self) -> int:
        return 4 * (self.turned + self.parts)

    def split(self, workspace: Any) -> tuple[Any, Any]:
        """The two arrays, in a workspace of bytes that may be larger."""
        numbers = workspace[: self.nbytes].view(np.float32)
        return numbers[: self.turned], numbers[self.turned :]
