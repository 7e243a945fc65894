"""How many filters and pixels a thread computes, by counting what a block executes."""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

THREADS = 512
LANES = 128  # of a multiprocessor that execute at the same time
L1, L2 = 60, 600  # cycles until a load from shared memory or the L1 cache arrives, and from L2
PHASE = 150  # cycles for a barrier and to begin a loop
FILTERS = (1, 2, 3, 4, 6, 8)
PIXELS = (1, 3, 5, 7)  # odd: see conv.cuh
ROOM = 4096  # floats at most for sums in parts
MOST = 32  # sums that a thread keeps in registers


def cycles(items: int, each: float, waits: float = 1.0, latency: int = L1) -> float:
    """Cycles of a phase whose items execute so many instructions each, and wait so often."""
    rounds = -(-items // THREADS)
    busy = min(THREADS, items)
    return rounds * max(each * busy / LANES, each + waits * latency) + PHASE


class Tile(NamedTuple):
    """The filters and pixels of a thread, the parts of the sums, and the cycles of the whole."""

    filters: int
    pixels: int
    parts: int
    cycles: float


def conv_tile(
    images: int, groups: int, rows: int, width: int, inner: int, outer: int, taps: tuple[int, int],
    stride: int, dilation: int, latency: int = L1,
) -> Tile:  # fmt: skip
    """The tile with the fewest cycles.

    `outer` filters of a group add up `inner` channels, for `rows` rows of `width` pixels. `taps`
    are those that lie inside of the images. Weights arrive after `latency` cycles.
    """
    high, wide = taps

    def made(filters: int, pixels: int) -> Tile:
        blocks, columns = -(-outer // filters), -(-width // pixels)
        items = images * groups * blocks * rows * columns
        size = images * groups * outer * rows * width
        cut = min(parts(items, inner), max(1, ROOM // size))
        terms = -(-inner // cut) * high
        span = (pixels - 1) * stride + (wide - 1) * dilation + 1
        each = terms * (8 + 3 * span + wide * filters * (2 + pixels)) + 30
        added = cycles(size, 3 * cut, cut) if cut > 1 else 0.0
        return Tile(filters, pixels, cut, cycles(items * cut, each, terms, latency) + added)

    return min((made(f, p) for f, p in _tiles(outer, width)), key=lambda tile: tile.cycles)


def _tiles(outer: int, width: int) -> Iterator[tuple[int, int]]:
    for filters, pixels in product(FILTERS, PIXELS):
        fits = filters <= outer and pixels <= width + 1 and filters * pixels <= MOST
        if fits or filters == pixels == 1:
            yield filters, pixels


def parts(count: int, length: int, most: int = 16) -> int:
    """The parts that a sum of `length` terms is cut into, where there are `count` sums.

    >>> parts(10, 400), parts(1000, 400), parts(10, 3)
    (16, 1, 3)
    """
    return max(1, min(THREADS // max(1, count), most, length))
