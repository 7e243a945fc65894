"""How the blocks of a kernel share a product or a sum, by counting what they execute."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pareo.backends.cuda.grid.shapes import Product

LOAD = 500  # cycles until what another multiprocessor wrote arrives
AHEAD = 4  # terms whose loads are under way at once
SHARE = 128  # threads of a multiprocessor that execute at the same time
BEHIND = 2.5  # times as long as all its instructions a tile takes, measured on an H200
MOST_SHARED = 16  # sums of a thread that are added up in shared memory
TERMS = 96  # of a part of a sum, for each lane


@dataclass(frozen=True)
class Machine:
    """The blocks of a launch, in one cluster or not, and the threads of each."""

    blocks: int
    threads: int = 512
    lanes: int = 32
    cluster: bool = False

    @property
    def warps(self) -> int:
        return self.threads // self.lanes

    @property
    def barrier(self) -> int:
        """Cycles until all blocks have met, and until they have read what comes next."""
        return 800 if self.cluster else 1900


class Tile(NamedTuple):
    """What a thread computes, how the threads of a block share it, and what that takes.

    A thread has `rows` x `columns` sums; `high` x `wide` threads have others; the rest of a block
    share their terms. Where terms lie side by side, a warp shares them: then `high` and `wide` are
    0.
    """

    rows: int
    columns: int
    high: int
    wide: int
    tiles: int
    cycles: float  # of one tile


def parts_of(shape: Product) -> int:
    """The parts that a gradient of filters is computed in, each by another warp.

    >>> parts_of(Product(1, 6, 75, 1024, "k")), parts_of(Product(1, 4, 3, 44944, "k"))
    (1, 14)
    """
    groups = shape.groups * -(-shape.m // 4) * -(-shape.n // 4)
    wanted = shape.k // (32 * TERMS)
    return max(1, min(wanted, 4096 // groups, 256)) if groups < 2048 else 1


def tile_of(shape: Product, machine: Machine, parts: int = 1) -> Tile:
    """The tile that takes the least time."""
    found = _by_lanes if shape.along == "k" else _by_threads
    return min(found(shape, machine, parts), key=lambda tile: _time(tile, machine))


def _time(tile: Tile, machine: Machine) -> float:
    return -(-tile.tiles // machine.blocks) * tile.cycles


def _by_threads(shape: Product, machine: Machine, parts: int) -> Iterator[Tile]:
    wides = [w for w in (machine.lanes, 2 * machine.lanes, 4 * machine.lanes, 8, 16)
             if w <= machine.threads]  # fmt: skip
    for rows, columns in ((1, 1), (2, 2), (4, 1), (4, 4)):
        if (rows > 1 and rows // 2 >= shape.m) or (columns > 1 and columns // 2 >= shape.n):
            continue
        for wide in wides or [1]:
            high = 1
            while wide * high <= machine.threads:
                if rows * columns <= MOST_SHARED or wide * high == machine.threads:
                    yield _shared(shape, machine, rows, columns, high, wide)
                if rows * high >= shape.m:
                    break
                high *= 2


def _shared(
    shape: Product, machine: Machine, rows: int, columns: int, high: int, wide: int
) -> Tile:
    split = machine.threads // (high * wide)
    count = shape.groups * -(-shape.m // (rows * high)) * -(-shape.n // (columns * wide))
    terms = -(-shape.k // split)
    each = BEHIND * max(rows * columns + 8, 4 * (rows + columns)) * machine.threads / SHARE
    cycles = 100 + max(terms * each, -(-terms // AHEAD) * LOAD)
    if split > 1:
        outputs = rows * columns * high * wide
        cycles += 100 + -(-outputs // machine.threads) * (40 + 8 * split) + 4 * rows * columns
    return Tile(rows, columns, high, wide, count, cycles)


def _by_lanes(shape: Product, machine: Machine, parts: int) -> Iterator[Tile]:
    for rows, columns in ((1, 1), (2, 2), (4, 1), (4, 4)):
        if (rows > 1 and rows // 2 >= shape.m) or (columns > 1 and columns // 2 >= shape.n):
            continue
        if rows * columns > 32:
            continue
        groups = -(-shape.m // rows) * -(-shape.n // columns) * parts
        terms = -(-shape.k // (parts * machine.lanes))
        each = BEHIND * max(rows * columns + 12, 4 * (rows + columns)) * machine.threads / SHARE
        cycles = 100 + max(terms * each, -(-terms // AHEAD) * LOAD) + 12 * rows * columns
        yield Tile(rows, columns, 0, 0, shape.groups * -(-groups // machine.warps), cycles)
