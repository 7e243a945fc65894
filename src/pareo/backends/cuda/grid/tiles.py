"""How the blocks of a kernel share a product or a sum, by counting what they execute."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pareo.backends.cuda.grid.shapes import PLAIN, Product

LOAD = 650  # cycles until what another multiprocessor wrote arrives
SHARE = 128  # threads of a multiprocessor that execute at the same time
BEHIND = 3.0  # times as long as all its instructions a tile takes
START = 700  # cycles of a tile besides: its pointers and places, its code, and the last store
AT_ONCE = 32  # floats that a thread reads at once, as in products.cuh
BYTES = 24  # of a cycle, that a multiprocessor reads from the L2 cache or writes to it
MOST_CLASSES = 128  # of losses that the block with their logits computes
MOST_ROOM = 10000  # floats of shared memory
MOST_ON_TENSORS = 48000  # the same of a tile on tensor cores
STAGES = 3  # chunks of it that are copied or multiplied at once
ON_TENSORS = 18  # bytes of a cycle that are copied for them
AT_THE_END = 8  # sums of a thread that it ends at once, there
MMA = 1.6  # cycles of a product of 16 x 8 by 8 x 8 numbers on tensor cores
MOST_SHARED = 16  # sums of a thread that are added up in shared memory
COPIED = 12  # floats that a thread copies to shared memory at once, about
LEAST_SHARE = 16  # threads of a block that share the terms of a tile of copies, at most
BUSY = 1.5  # times as long as its instructions a tile of elements, or of copies, takes


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
    share their terms. Where terms lie side by side, a warp can share them: then `high` and `wide`
    are 0. With `deep`, operands are copied to shared memory, so many terms at a time. On `tensors`,
    a warp has `rows` x `columns` times 16 x 8 sums, and `high` x `wide` warps have others.
    """

    rows: int
    columns: int
    high: int
    wide: int
    tiles: int
    cycles: float  # of one tile
    deep: int = 0
    tensors: bool = False


class End(NamedTuple):
    """What follows for each element of a product: floats in memory, and cycles of a thread."""

    floats: int = 1
    cycles: int = 0


def tiles_of(
    shape: Product, machine: Machine, end: End, parts: int = 1, rows: bool = False
) -> list[Tile]:
    """Ways to compute a product; for each number of tiles that is worth it, the fastest.

    rows: tiles must have whole rows, for whose losses there must be room.

    >>> ways = tiles_of(Product(1, 128, 512, 512, "n"), Machine(132), End())
    >>> any(way.tensors for way in ways)
    True
    """
    every = [*_by_copies(shape, machine, end, parts)]
    if shape.along == "k":
        every += _by_lanes(shape, machine, end, parts)
    elif parts == 1:
        every += _by_threads(shape, machine, end, parts)
    every += _on_tensors(shape, machine, end, parts)
    every = [tile for tile in every if not rows or _fits(tile, shape, machine)]
    ways = sorted(every, key=lambda tile: (tile.tiles, tile.cycles))
    worth: list[Tile] = []
    for way in ways:
        if not worth or way.cycles < 0.98 * worth[-1].cycles:
            worth.append(way)
    return worth


def _fits(tile: Tile, shape: Product, machine: Machine) -> bool:
    """Whether a tile has whole rows, and shared memory has room for them behind its sums."""
    whole = not tile.deep and tile.columns * tile.wide >= shape.n
    return whole and room_of(tile, shape, machine, True) <= MOST_ROOM


def room_of(tile: Tile, shape: Product, machine: Machine, rows: bool) -> int:
    """Floats of shared memory for a tile's sums, and for its rows."""
    if tile.tensors:
        tall, broad = 16 * tile.rows * tile.high, 8 * tile.columns * tile.wide
        copied = STAGES * sum(
            max(side * (tile.deep + 4), tile.deep * (side + 8)) for side in (tall, broad)
        )
        split = machine.warps // (tile.high * tile.wide)
        return max(copied, split * tall * (broad + 8))
    if tile.deep:
        sides = tile.rows * tile.high, tile.columns * tile.wide
        copied = 2 * tile.deep * sum((side + 7) // 4 * 4 for side in sides)
        return max(copied, (machine.threads + 8) * min(tile.rows * tile.columns, MOST_SHARED))
    behind = tile.rows * tile.high * shape.n if rows else 0
    return machine.threads * tile.rows * tile.columns + behind


def _by_threads(shape: Product, machine: Machine, end: End, parts: int) -> Iterator[Tile]:
    wides = [w for w in (machine.lanes, 2 * machine.lanes, 4 * machine.lanes, 8, 16)
             if w <= machine.threads]  # fmt: skip
    for rows, columns in ((1, 1), (2, 2), (4, 1), (1, 4), (4, 4)):
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
    each = BEHIND * max(rows * columns + 8, 4 * rows + shape.index * columns) * share
    waits = _rounds(terms, rows, columns) * LOAD
    moved = 4 * ((tall + broad) * shape.k + end.floats * tall * broad) / BYTES
    outputs = -(-rows * columns * high * wide // machine.threads)
    cycles = START + max(terms * each, waits, moved) + outputs * (60 + end.cycles) * share / 2
    shares = max(1, machine.lanes // (high * wide))  # of a warp, added up by its lanes
    cycles += outputs * 6 * split / shares + 8 * rows * columns * share
    cycles += 2 * rows * columns * (shares.bit_length() - 1) * share
    return Tile(rows, columns, high, wide, count, cycles)


def _by_lanes(shape: Product, machine: Machine, end: End, parts: int) -> Iterator[Tile]:
    for rows, columns in ((1, 1), (2, 2), (4, 1), (4, 4)):
        if (rows > 1 and rows // 2 >= shape.m) or (columns > 1 and columns // 2 >= shape.n):
            continue
        groups = -(-shape.m // rows) * -(-shape.n // columns) * parts
        terms = -(-shape.k // (parts * machine.lanes))
        share = machine.threads / SHARE
        each = BEHIND * max(rows * columns + 12, 4 * rows + shape.index * columns) * share
        waits = _rounds(terms, rows, columns) * LOAD
        moved = 4 * machine.warps * (rows + columns) * (shape.k / parts) / BYTES
        sums = (2 * rows * columns + 3) * 3 * share  # over the lanes
        cycles = START + 100 + max(terms * each, waits, moved) + sums + end.cycles
        yield Tile(rows, columns, 0, 0, shape.groups * -(-groups // machine.warps), cycles)


def _by_copies(shape: Product, machine: Machine, end: End, parts: int) -> Iterator[Tile]:
    powers = [1 << k for k in range(machine.threads.bit_length())]
    for rows, columns in ((4, 4), (8, 4), (4, 8), (2, 4), (4, 2), (2, 2)):
        if rows >= 2 * shape.m or columns >= 2 * shape.n:
            continue
        for high in powers:
            if high > 1 and rows * high >= 2 * shape.m:
                break
            for wide in powers:
                many = high * wide
                if many > machine.threads or (wide > 1 and columns * wide >= 2 * shape.n):
                    break
                if many * LEAST_SHARE >= machine.threads:
                    yield from _copied(shape, machine, end, parts, rows, columns, high, wide)


def _copied(
    shape: Product, machine: Machine, end: End, parts: int, rows: int, columns: int, high: int,
    wide: int,
) -> Iterator[Tile]:  # fmt: skip
    tall, broad = rows * high, columns * wide
    split = machine.threads // (high * wide)
    terms = -(-shape.k // parts)
    deep = max(split, 4)
    while deep < 64 and deep < terms and deep * (tall + broad) < COPIED * machine.threads:
        deep *= 2
    tile = Tile(rows, columns, high, wide, 0, 0, deep)
    if room_of(tile, shape, machine, False) > MOST_ROOM:
        return
    count = shape.groups * -(-shape.m // tall) * -(-shape.n // broad) * parts
    share = machine.threads / SHARE
    copies = -(-tall * deep // machine.threads) + -(-broad * deep // machine.threads)
    terms_of_thread = deep // split
    multiplied = terms_of_thread * (rows * columns + rows + columns + 2) * share
    found_by_index = shape.index > PLAIN and shape.along == "n"
    copying = (3 if found_by_index else 2) * shape.index * copies * share
    busy = 0.9 + 1.8 / share if shape.index > PLAIN else BUSY
    chunk = max(busy * (multiplied + copying), LOAD + 150)
    moved = 4 * ((min(tall, shape.m) + min(broad, shape.n)) * terms) / BYTES
    chunks = -(-terms // deep)
    outputs = -(-rows * columns * high * wide // machine.threads)
    cycles = START - 300 + LOAD + copying + busy * multiplied + max((chunks - 1) * chunk, moved)
    cycles += outputs * (60 + end.cycles + 6 * split) * (0.4 * share + 0.9)
    cycles += 12 * rows * columns * share
    yield tile._replace(tiles=count, cycles=cycles)


def _on_tensors(shape: Product, machine: Machine, end: End, parts: int) -> Iterator[Tile]:
    if shape.index != PLAIN or min(shape.m, shape.n, shape.k) < 8:
        return
    powers = [1 << k for k in range(machine.warps.bit_length())]
    for rows, columns in ((1, 1), (1, 2), (2, 2), (1, 4), (2, 4)):
        if (rows > 1 and 8 * rows >= shape.m) or (columns > 1 and 4 * columns >= shape.n):
            continue
        for high in powers:
            if high > 1 and 8 * rows * high >= shape.m:
                break
            for wide in powers:
                if high * wide > machine.warps or (wide > 1 and 4 * columns * wide >= shape.n):
                    break
                yield from _tensors(shape, machine, end, parts, rows, columns, high, wide)


def _tensors(
    shape: Product, machine: Machine, end: End, parts: int, rows: int, columns: int, high: int,
    wide: int,
) -> Iterator[Tile]:  # fmt: skip
    tall, broad = 16 * rows * high, 8 * columns * wide
    split = machine.warps // (high * wide)
    terms = -(-shape.k // parts)
    share = machine.threads / SHARE
    most = (MOST_ON_TENSORS // STAGES // (tall + broad) - 8) // (8 * split) * (8 * split)
    if most <= 0:
        return
    chunks = max(-(-terms // most), min(-(-terms // (8 * split)), STAGES))
    deep = -(-terms // (chunks * 8 * split)) * 8 * split
    chunks = -(-terms // deep)
    tile = Tile(rows, columns, high, wide, 0, 0, deep, True)
    room = room_of(tile, shape, machine, False)
    if room > MOST_ON_TENSORS:
        return
    count = shape.groups * -(-shape.m // tall) * -(-shape.n // broad) * parts
    factors, times = 4 * rows + 2 * columns, deep // (8 * split)
    copied = 4 * (tall + broad) * deep / SHARE
    issued = times * (4 * factors + 3 * rows * columns + 12) * share + copied
    multiplied = max(1.3 * issued, times * machine.warps * 3 * rows * columns * MMA, times * 120)
    copying = max(4 * (tall + broad) * deep / ON_TENSORS, LOAD / 2)
    cycles: float = START - 200 + LOAD + 100 * chunks
    cycles += max(copying * chunks + multiplied, multiplied * chunks + copying)
    outputs = -(-tall * broad // machine.threads)
    cycles += outputs * (50 + end.cycles + 4 * split) * 0.5 * share
    cycles += -(-outputs // AT_THE_END) * LOAD if end.floats > 1 else 0
    yield tile._replace(tiles=count, cycles=cycles)
