"""Parts of long sums, so that all blocks have some."""

from functools import cache

from pareo.backends.cuda.grid.direct import Sizes, Way, ways_of_errors
from pareo.backends.cuda.grid.shapes import Product
from pareo.backends.cuda.grid.tiles import BYTES, LOAD, START, End, Machine, Tile, tiles_of

BLOCKS = 132  # that parts are for
TERMS = 64  # of a part of a sum, at least
WORTH = 0.8  # of the time of fewer parts, that more are worth


@cache
def parts_of(shape: Product, sizes: Sizes | None = None) -> int:
    """The parts that a gradient of filters is computed in, so that all blocks have some.

    >>> parts_of(Product(1, 6, 75, 1024, "k")), parts_of(Product(1, 4, 3, 44944, "k"))
    (8, 64)
    """
    machine = Machine(BLOCKS, 256)
    found, least, parts = 1, float("inf"), 1
    while parts <= BLOCKS and (parts == 1 or shape.k >= 2 * TERMS * parts):
        ways: list[Tile | Way] = [*tiles_of(shape, machine, End(), parts)]
        ways += ways_of_errors(sizes, machine, End(), parts) if sizes else []
        time = min(-(-way.tiles // BLOCKS) * way.cycles for way in ways)
        time += 8 * parts if parts > 1 else 0  # to add them up
        if time < WORTH * least:
            found, least = parts, time
        parts *= 2
    return found


@cache
def parts_of_product(shape: Product) -> int:
    """The parts of a product of matrices, if they are worth a level of their own.

    >>> parts_of_product(Product(1, 64, 921, 1431, "n"))
    8
    >>> parts_of_product(Product(1, 64, 120, 80, "n"))
    1
    """
    machine, times = Machine(BLOCKS, 256), dict[int, float]()
    for parts in (1, 2, 3, 4, 6, 8, 12, 16):
        ways = tiles_of(shape, machine, End(), parts)
        if ways and (parts == 1 or shape.k >= TERMS * parts):
            times[parts] = min(-(-way.tiles // BLOCKS) * way.cycles for way in ways)
    moved = 8 * shape.m * shape.n / BLOCKS / BYTES  # of each part
    for parts in times.keys() - {1}:
        times[parts] += machine.barrier + START + LOAD + 200 + moved * parts
    best = min(times, key=lambda parts: times[parts])
    return best if times[best] < WORTH * times[1] else 1


def parts_of_sum(sums: int, terms: int) -> int:
    """The same of a sum.

    >>> parts_of_sum(44, 55696), parts_of_sum(512, 4096)
    (3, 1)
    """
    return max(1, min(BLOCKS // sums, terms // 4096))


def parts_of_rows(rows: int) -> int:
    """The same of the sums over so many rows.

    >>> parts_of_rows(64), parts_of_rows(3500)
    (1, 27)
    """
    return max(1, min(BLOCKS, rows // 128))


def parts_of_channels(channels: int, terms: int) -> int:
    """The same of the statistics of channels.

    >>> parts_of_channels(11, 44944), parts_of_channels(128, 4096), parts_of_channels(17, 3600)
    (12, 1, 1)
    """
    return max(1, min(BLOCKS // channels, terms // 2048)) if terms >= 8192 else 1
