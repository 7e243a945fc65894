"""How the blocks of a kernel share a product or a sum, by counting what they execute."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pareo.backends.cuda.grid.shapes import Product

LOAD = 650  # cycles until what another multiprocessor wrote arrives
SHARE = 128  # threads of a multiprocessor that execute at the same time
BEHIND = 3.0  # times as long as all its instructions a tile takes
START = 300  # cycles of a tile besides: its pointers and places, and the last store
AT_ONCE = 32  # floats that a thread reads at once, as in products.cuh
BYTES = 24  # of a cycle, that a multiprocessor reads from the L2 cache or writes to it
MOST_CLASSES = 128  # of losses that the block with their logits computes
MOST_ROOM = 10000  # floats of shared memory
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
        return 850 if self.cluster else 1400


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


class End(NamedTuple):
    """What follows for each element of a product: floats in memory, and cycles of a thread."""

    floats: int = 1
    cycles: int = 0


def tiles_of(
    shape: Product, machine: Machine, end: End, parts: int = 1, rows: bool = False
) -> list[Tile]:
    """Ways to compute a product; for each number of tiles that is worth it, the fastest.

    rows: tiles must have whole rows, for whose losses there must be room.

    >>> way = min(tiles_of(Product(1, 64, 512, 256, "n"), Machine(132), End()))
    >>> way.tiles * way.rows * way.columns * way.high * way.wide
    32768
    """
    found = _by_lanes if shape.along == "k" else _by_threads
    every = [
        tile
        for tile in found(shape, machine, end, parts)
        if not rows or _fits(tile, shape, machine)
    ]
    ways = sorted(every, key=lambda tile: (tile.tiles, tile.cycles))
    worth: list[Tile] = []
    for way in ways:
        if not worth or way.cycles < 0.98 * worth[-1].cycles:
            worth.append(way)
    return worth


def _fits(tile: Tile, shape: Product, machine: Machine) -> bool:
    """Whether a tile has whole rows, and shared memory has room for them behind its sums."""
    return tile.columns * tile.wide >= shape.n and room_of(tile, shape, machine, True) <= MOST_ROOM


def room_of(tile: Tile, shape: Product, machine: Machine, rows: bool) -> int:
    """Floats of shared memory for a tile's sums, and for its rows."""
    behind = tile.rows * tile.high * shape.n if rows else 0
    return machine.threads * tile.rows * tile.columns + behind


def _by_threads(shape: Product, machine: Machine, end: End, parts: int) -> Iterator[Tile]:
    wides = [w for w in (machine.lanes, 2 * machine.lanes, 4 * machine.lanes, 8, 16)
             if w <= machine.threads]  # fmt: skip
    for rows, columns in ((1, 1), (2, 2), (4, 1), (4, 4)):
        if (rows > 1 and rows // 2 >= shape.m) or (columns > 1 and columns // 2 >= shape.n):
            continue
        for wide in wides or [1]:
            high = 1
            while wide * high <= machine.threads:
                if rows * columns <= MOST_SHARED or wide * high == machine.threads:
                    yield _shared(shape, machine, end, rows, columns, high, wide)
                if rows * high >= shape.m:
                    break
                high *= 2


def _rounds(terms: int, rows: int, columns: int) -> int:
    """How often a thread waits for what it reads."""
    return -(-terms // (AT_ONCE // (rows + columns)))


def _shared(
    shape: Product, machine: Machine, end: End, rows: int, columns: int, high: int, wide: int
) -> Tile:
    split = machine.threads // (high * wide)
    tall, broad = min(rows * high, shape.m), min(columns * wide, shape.n)
    count = shape.groups * -(-shape.m // (rows * high)) * -(-shape.n // (columns * wide))
    terms = -(-shape.k // split)
    share = machine.threads / SHARE
    each = BEHIND * max(rows * columns + 8, 4 * (rows + columns)) * share
    waits = _rounds(terms, rows, columns) * LOAD
    moved = 4 * ((tall + broad) * shape.k + end.floats * tall * broad) / BYTES
    outputs = -(-rows * columns * high * wide // machine.threads)
    cycles = START + max(terms * each, waits, moved) + outputs * (60 + end.cycles) * share / 2
    cycles += outputs * 6 * split + 8 * rows * columns * share
    return Tile(rows, columns, high, wide, count, cycles)


def _by_lanes(shape: Product, machine: Machine, end: End, parts: int) -> Iterator[Tile]:
    for rows, columns in ((1, 1), (2, 2), (4, 1), (4, 4)):
        if (rows > 1 and rows // 2 >= shape.m) or (columns > 1 and columns // 2 >= shape.n):
            continue
        groups = -(-shape.m // rows) * -(-shape.n // columns) * parts
        terms = -(-shape.k // (parts * machine.lanes))
        share = machine.threads / SHARE
        each = BEHIND * max(rows * columns + 12, 4 * (rows + columns)) * share
        waits = _rounds(terms, rows, columns) * LOAD
        moved = 4 * machine.warps * (rows + columns) * (shape.k / parts) / BYTES
        sums = rows * columns * (10 * share + 12)  # over the lanes
        cycles = START + 100 + max(terms * each, waits, moved) + sums + end.cycles
        yield Tile(rows, columns, 0, 0, shape.groups * -(-groups // machine.warps), cycles)
