"""How many filters and pixels a thread computes, by counting what a block executes."""

from collections.abc import Iterator
from itertools import product

THREADS = 512
LANES = 128  # of a multiprocessor that execute at the same time
FILTERS = (1, 2, 3, 4, 6, 8)
PIXELS = (1, 3, 5, 7)  # odd: see layers.cuh
MOST = 32  # sums that a thread keeps in registers


def cycles(items: int, each: float) -> float:
    """Cycles of a phase whose items execute so many instructions each."""
    rounds = -(-items // THREADS)
    busy = min(THREADS, items)
    return rounds * each * max(1.0, busy / LANES) + 60


def conv_tile(
    images: int, groups: int, rows: int, width: int, inner: int, outer: int, taps: tuple[int, int],
    stride: int, dilation: int,
) -> tuple[int, int, float]:  # fmt: skip
    """The filters and pixels of a thread, and the cycles of the whole.

    `outer` filters of a group add up `inner` channels, for `rows` rows of `width` pixels.
    """
    high, wide = taps

    def cost(filters: int, pixels: int) -> float:
        blocks, columns = -(-outer // filters), -(-width // pixels)
        span = (pixels - 1) * stride + (wide - 1) * dilation + 1
        each = inner * high * (8 + 3 * span + wide * filters * (2 + pixels)) + 30
        return cycles(images * groups * blocks * rows * columns, each)

    return min(((f, p, cost(f, p)) for f, p in _tiles(outer, width)), key=lambda tile: tile[2])


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
