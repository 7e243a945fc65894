"""How the blocks of a kernel share a direct convolution, by counting what they execute."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, NamedTuple

from pareo.backends.cuda.grid.tiles import BYTES, LOAD, SHARE, START, End, Machine

MOST_ROOM = 24000  # floats of shared memory
AT_ONCE = 8192  # sums that are added up at once, as in direct.cuh
MOST_COPIES = 12  # pixels that a thread copies of a channel, or weights of some
UNROLLED = 200  # multiplications of a thread, up to which they are unrolled, as in direct.cuh
BUSY = 1.1  # times as long as its instructions are issued a loop takes, with many warps
IDLE = 0.6  # the same besides, for one warp of each scheduler
READ = 1.0  # cycles of a read of shared memory by a warp
COPY = 4.0  # the same of a copy to it, while others compute


@dataclass(frozen=True)
class Sizes:
    """A convolution, of each of `groups`, whose taps lie side by side."""

    groups: int
    images: int
    channels: int
    filters: int
    pixels: tuple[int, int]
    results: tuple[int, int]
    window: tuple[int, int]
    stride: tuple[int, int]

    @property
    def taps(self) -> int:
        return prod(self.window)

    def span(self, rows: int) -> int:
        """The rows of images that some rows of results need, with those between images."""
        step, high = self.stride[0], self.window[0]
        crossed = -(-(rows - 1) // self.results[0])
        return (rows - 1) * step + high + crossed * max(0, high - step)

    def broad(self, columns: int) -> int:
        """The pixels of a row that so many results need: an odd number, for the banks' sake."""
        return ((columns - 1) * self.stride[1] + self.window[1]) | 1


class Way(NamedTuple):
    """What a thread computes, and how threads share a tile, as direct.cuh has it."""

    rows: int
    columns: int
    wide: int
    high: int
    split: int
    deep: int
    room: int
    tiles: int
    cycles: float


def sizes_of(
    images: Sequence[int], results: Sequence[int], window: Sequence[int], how: Any
) -> Sizes | None:
    """Those of a convolution; None if it has gaps between its taps."""
    if tuple(how["dilation"]) != (1, 1):
        return None
    groups = how["groups"]
    return Sizes(
        groups, images[0], images[1] // groups, results[1] // groups, (images[2], images[3]),
        (results[2], results[3]), (window[0], window[1]), tuple(how["stride"]),
    )  # fmt: skip


def sizes_back(
    images: Sequence[int], results: Sequence[int], window: Sequence[int], how: Any
) -> Sizes | None:
    """Those of the gradient of the images, as a convolution of errors; None if it is not one."""
    if tuple(how["stride"]) != (1, 1):
        return None
    return sizes_of(results, images, window, how)


@cache
def ways_of(sizes: Sizes, machine: Machine, end: End) -> list[Way]:
    """Ways to compute a convolution; for each number of tiles that is worth it, the fastest.

    >>> sizes = Sizes(1, 32, 16, 16, (12, 12), (12, 12), (3, 3), (1, 1))
    >>> way = min(ways_of(sizes, Machine(132, 256), End()), key=lambda way: way.cycles)
    >>> way.rows * way.high <= 16
    True
    """
    return _worth(_forward(sizes, machine, end))


@cache
def ways_of_errors(sizes: Sizes, machine: Machine, end: End, parts: int) -> list[Way]:
    """The same for the gradient of the filters of a convolution."""
    return _worth(_of_errors(sizes, machine, end, parts))


def _worth(ways: Iterator[Way]) -> list[Way]:
    found: list[Way] = []
    for way in sorted(ways, key=lambda way: (way.tiles, way.cycles)):
        if not found or way.cycles < 0.98 * found[-1].cycles:
            found.append(way)
    return found


def _side_by_side(count: int, most: int) -> list[int]:
    """How many results a thread can have of a row, without more waste than needed."""
    found = {-(-count // -(-count // each)) for each in range(1, most + 1)}
    return sorted(found)[-4:]


def _copies(pixels: int, machine: Machine) -> tuple[int, int]:
    """How many pixels of a channel a thread copies, and of how many channels at a time."""
    many = machine.threads
    while many > 1 and many // 2 >= pixels:
        many //= 2
    return -(-pixels // many), machine.threads // many


def rounded(count: int) -> int:
    """The next multiple of 4."""
    return -(-count // 4) * 4


def _rows_at_once(sums: int, each: int) -> int:
    some = sums
    while some > 1 and (some * each > AT_ONCE or sums % some):
        some -= 1
    return some


@cache
def conflicts(across: int, step: int, row: int) -> float:
    """How often the banks of a warp's reads must be read.

    Neighbouring threads read elements `step` apart; each `across` of them, those of rows that are
    `row` elements apart.

    >>> conflicts(32, 1, 0), conflicts(32, 2, 0), conflicts(8, 6, 51)
    (1, 2, 2)
    """
    banks: dict[int, set[int]] = {}
    for lane in range(32):
        at = lane // across * row + lane % across * step
        banks.setdefault(at % 32, set()).add(at)
    return max(map(len, banks.values()))


def _time(instructions: float, reads: float, threads: int) -> float:
    """Cycles of a loop, of whose instructions and reads of shared memory a thread has so many."""
    warps = -(-threads // 32)
    issued = instructions * -(-warps // 4)
    return max(issued * (BUSY + IDLE / -(-warps // 4)), reads * warps * READ)


def _ending(outputs: float, split: int, machine: Machine, end: End) -> float:
    """Cycles of adding up the sums of threads, and of what follows, for so many of each thread."""
    return outputs * (30 + end.cycles + 6 * split) * (0.4 * machine.threads / SHARE + 0.9)


def _forward(sizes: Sizes, machine: Machine, end: End) -> Iterator[Way]:
    threads = machine.threads
    most = 32 if threads > 256 else 48  # sums of a thread
    wides = [w for w in (machine.lanes << k for k in range(5)) if w <= threads]
    for columns in _side_by_side(sizes.results[1], 8):
        for rows in _side_by_side(sizes.filters, 8):
            if rows * columns > most:
                continue
            for wide in wides:
                for high in {min(-(-sizes.filters // rows), threads // wide), 1}:
                    rest = threads // (wide * high)
                    for split in {1, min(rest, sizes.channels)}:
                        yield from _deep(sizes, machine, end, (rows, columns, wide, high, split))


def _deep(
    sizes: Sizes, machine: Machine, end: End, how: tuple[int, int, int, int, int]
) -> Iterator[Way]:
    rows, columns, wide, high, split = how
    threads, channels, taps = machine.threads, sizes.channels, sizes.taps
    across = -(-sizes.results[1] // columns)
    lines = wide // across if wide % across == 0 else (wide + across - 2) // across + 1
    broad = sizes.broad(across * columns)
    pixels = sizes.span(lines) * broad
    copies, at_once = _copies(pixels, machine)
    if copies > MOST_COPIES:
        return
    each = rounded(rows) if rows > 2 else rows
    apart = wide + (32 // columns if columns > 1 else 0)
    some = _rows_at_once(rows, columns * threads)
    groups = sizes.images * sizes.results[0] * across
    tiles = sizes.groups * -(-groups // wide) * -(-sizes.filters // (high * rows))
    active = wide * high * split
    line = (columns - 1) * sizes.stride[1] + sizes.window[1]
    vectors = -(-each // 4)
    beside = high * each + (4 if high * each % 8 == 0 else 0)
    kh, kw = sizes.window
    conflict = conflicts(across, columns * sizes.stride[1], broad * sizes.stride[0])
    # Of a channel: instructions of a thread, and reads of shared memory.
    counted = kh * (kw * rows * columns + line + kw * vectors) + 12
    counted += 6 * kh if taps * rows * columns > UNROLLED else 0
    reads = kh * (line * conflict + kw * vectors)
    ending = _ending(rows * columns * wide * high / threads, split, machine, end)
    ending += 100 * (rows // some)
    moved = 4 * (channels * (min(pixels, sizes.images * prod(sizes.pixels)) + taps * high * rows)
                 + end.floats * rows * columns * wide * high) / BYTES  # fmt: skip
    tried, deep = set[int](), split
    while deep < channels + split:
        tried.add(deep)
        deep *= 2
    tried.add(-(-channels // split) * split)
    for deep in tried:
        stage = rounded(deep * pixels) + rounded(deep * taps * beside)
        room = max((2 if channels > deep else 1) * stage, split * high * some * columns * apart)
        weights = -(-rounded(deep * taps) * high * rows // threads)
        if room > MOST_ROOM or weights > MOST_COPIES:
            continue
        chunks = -(-channels // deep)
        copied = copies * (4 + -(-deep // at_once)) + weights * 5
        chunk = _time(deep // split * counted, deep // split * reads, active)
        warps = deep * (-(-pixels // 32) + taps * high * rows / 32)
        copying = max(_time(copied, copied, threads), COPY * warps)
        setup = _time(copies * 25 + weights * 25, 0, threads)
        cycles = START + LOAD + setup + copying + ending
        cycles += max(chunks * max(chunk + copying + 60, LOAD / 2), moved)
        yield Way(rows, columns, wide, high, split, deep, room, tiles, cycles)


def _of_errors(sizes: Sizes, machine: Machine, end: End, parts: int) -> Iterator[Way]:
    threads, (kh, kw) = machine.threads, sizes.window
    most = 48 if threads > 256 else 96  # sums of a thread
    for columns in (4, 2, 1):
        if columns > 1 and sizes.results[1] <= columns // 2:
            continue
        for rows in _side_by_side(sizes.filters, 8):
            if rows * kw > most:
                continue
            for wide in _some_of(sizes.channels, threads // kh):
                for high in _some_of(-(-sizes.filters // rows), threads // (kh * wide)):
                    split = threads // (kh * wide * high)
                    for deep in _rows_of_chunks(sizes, split):
                        yield from _rows_deep(
                            sizes, machine, end, parts, (rows, columns, wide, high, split, deep)
                        )


def _some_of(count: int, most: int) -> list[int]:
    """Counts that share `count` without more waste than needed, up to `most`: the largest two."""
    found = {-(-count // pieces) for pieces in range(1, count + 1)}
    return sorted(one for one in found if one <= most)[-2:]


def _rows_of_chunks(sizes: Sizes, split: int) -> set[int]:
    """How many rows of results can be copied at once: some of an image, or those of some images."""
    high, found = sizes.results[0], set[int]()
    for rows in (split, 2 * split, 4 * split):
        if rows < high:
            found.add(-(-high // -(-high // rows)))
        else:
            found |= {rows // high * high, min(-(-rows // high), sizes.images) * high}
    return found


def _rows_deep(
    sizes: Sizes, machine: Machine, end: End, parts: int,
    how: tuple[int, int, int, int, int, int],
) -> Iterator[Way]:  # fmt: skip
    rows, columns, wide, high, split, deep = how
    threads, (kh, kw) = machine.threads, sizes.window
    across = -(-sizes.results[1] // columns) * columns
    tall = min(deep, sizes.results[0])
    images = deep // tall
    chunks = -(-sizes.images // images) * -(-sizes.results[0] // tall)
    chunks = -(-chunks // parts)  # of a part
    broad = sizes.broad(across)
    span = images * ((tall - 1) * sizes.stride[0] + kh)
    pixels = span * broad
    apart = pixels + (kh - span) * broad % 32
    stage = rounded(wide * apart) + high * rows * rounded(deep * across)
    some = _rows_at_once(rows, kw * threads)
    room = max(2 * stage, some * kw * (threads + 8))
    copies, at_once = _copies(pixels, machine)
    copies_back, at_once_back = _copies(deep * across, machine)
    if room > MOST_ROOM or max(copies, copies_back) > MOST_COPIES:
        return
    down, over = -(-sizes.filters // (high * rows)), -(-sizes.channels // wide)
    active = wide * kh * high * split
    line = (columns - 1) * sizes.stride[1] + kw
    vectors = rows * -(-columns // 4)
    steps = across // columns
    row = steps * (rows * kw * columns + line + vectors)
    row += 20 + (0 if rows * kw * across <= UNROLLED else 6 * steps)
    times = -(-deep // split)
    chunk = _time(times * row, times * steps * (line + vectors), active)
    copied = copies * (5 + -(-wide // at_once))
    copied += copies_back * (5 + -(-high * rows // at_once_back)) + 40
    copying = _time(copied, copied, threads)
    setup = _time((copies + copies_back) * 25, 0, threads)
    moved = 4 * chunks * (wide * min(pixels, span * sizes.pixels[1])
                          + high * rows * deep * sizes.results[1]) / BYTES  # fmt: skip
    cycles = START + LOAD + setup + copying
    cycles += max(chunks * max(chunk + copying + 60, LOAD / 2), moved)
    outputs = rows * high * wide * kh * kw / threads
    cycles += _ending(outputs, split, machine, end) + 100 * (rows // some)
    tiles = sizes.groups * down * over * parts
    yield Way(rows, columns, wide, high, split, deep, room, tiles, cycles)
