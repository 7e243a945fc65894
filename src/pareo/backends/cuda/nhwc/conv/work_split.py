"""How kernels on warpgroup products split their work (warpgroup.cuh), and their workspace."""

from dataclasses import dataclass

import numpy as np

from pareo.array import Array


@dataclass(frozen=True)
class WorkSplit:
    """(tile, chunk) pairs, split among blocks: evenly, in order.

    >>> WorkSplit(tiles=3, chunks=4, blocks=2).per_block
    6
    """

    tiles: int
    chunks: int
    blocks: int

    @property
    def per_block(self) -> int:
        """Pairs of a block."""
        return -(-self.tiles * self.chunks // self.blocks)

    @property
    def parts(self) -> int:
        """The most blocks that share a tile."""
        ends = range(self.chunks, self.tiles * self.chunks + 1, self.chunks)
        return max(
            (end - 1) // self.per_block - (end - self.chunks) // self.per_block + 1 for end in ends
        )


@dataclass(frozen=True)
class Workspace:
    """A workspace for two arrays: the transposed gradients, and the partial sums.

    >>> [len(array) for array in Workspace(transposed=3, parts=2).split(np.zeros(30, np.uint8))]
    [3, 2]
    """

    transposed: int
    parts: int

    @property
    def nbytes(self) -> int:
        return 4 * (self.transposed + self.parts)

    def split(self, workspace: Array) -> tuple[Array, Array]:
        """The two arrays in a workspace of at least `nbytes` bytes."""
        numbers = workspace[: self.nbytes].view(np.float32)
        return numbers[: self.transposed], numbers[self.transposed :]
