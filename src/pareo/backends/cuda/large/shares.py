"""How kernels on warpgroup products share out their work (`Shares` of warpgroup.cuh)."""

from dataclasses import dataclass


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
