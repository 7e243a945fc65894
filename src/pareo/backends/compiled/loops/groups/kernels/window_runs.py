"""Which pixels a window covers, for each place of a result: runs of columns, and rows.

A convolution, and the gradient of its images, are sums over taps: (tap of the filter, pixel of the
source). At the edges some taps lie outside. Columns are grouped in runs with the same taps, so that
a loop can be generated for each run, and no pixel outside of the image is ever read.
"""

from dataclasses import dataclass
from itertools import pairwise

Taps = list[tuple[int, int]]  # (tap of the filter, pixel of the source)


@dataclass(frozen=True)
class Run:
    """Columns `start`, `start + step`, ... (`count` of them) that have the same taps.

    `first` is the source pixel of the first tap in the first column; it moves by `move` from one
    column to the next. `offsets` are the source pixels of all taps, relative to the first.
    """

    start: int
    step: int
    count: int
    taps: tuple[int, ...]
    first: int
    move: int
    offsets: tuple[int, ...]


def forward_taps(
    places: int, pixels: int, window: int, stride: int, before: int, dilation: int
) -> list[Taps]:
    """The taps of each place of a convolution's result, along one axis.

    >>> forward_taps(3, 3, 3, 1, 1, 1)
    [[(1, 0), (2, 1)], [(0, 0), (1, 1), (2, 2)], [(0, 1), (1, 2)]]
    """
    taps = [[(u, i * stride - before + u * dilation) for u in range(window)] for i in range(places)]
    return [[(u, pixel) for u, pixel in row if 0 <= pixel < pixels] for row in taps]


def backward_taps(
    places: int, pixels: int, window: int, stride: int, before: int, dilation: int
) -> list[Taps]:
    """For each pixel of a convolution's images, the taps and places of the result that read it.

    >>> backward_taps(2, 4, 2, 2, 0, 1)
    [[(0, 0)], [(1, 0)], [(0, 1)], [(1, 1)]]
    """
    found: list[Taps] = [[] for _ in range(pixels)]
    rows = forward_taps(places, pixels, window, stride, before, dilation)
    for place, row in enumerate(rows):
        for tap, pixel in row:
            found[pixel].append((tap, place))
    return [sorted(taps) for taps in found]


def runs(columns: list[Taps]) -> list[Run]:
    """The columns in runs.

    >>> [(run.start, run.count, run.taps) for run in runs(forward_taps(4, 4, 3, 1, 1, 1))]
    [(0, 1, (1, 2)), (1, 2, (0, 1, 2)), (3, 1, (0, 1))]
    """
    kinds: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for j, taps in enumerate(columns):
        offsets = tuple(pixel - taps[0][1] for _, pixel in taps)
        kinds.setdefault((tuple(tap for tap, _ in taps), offsets), []).append(j)
    found = []
    for (taps_of_run, offsets), members in kinds.items():
        firsts = [columns[j][0][1] if columns[j] else 0 for j in members]
        at = 0
        while at < len(members):
            end = at + 1
            step = move = 0
            if end < len(members):
                step, move = members[end] - members[at], firsts[end] - firsts[at]
                while (
                    end < len(members)
                    and members[end] - members[end - 1] == step
                    and firsts[end] - firsts[end - 1] == move
                ):
                    end += 1
            found.append(Run(members[at], step, end - at, taps_of_run, firsts[at], move, offsets))
            at = end
    return sorted(found, key=lambda run: run.start)


def row_table(rows: list[Taps]) -> tuple[list[tuple[int, int, int]], int, int]:
    """(count, first tap, first source row) of each row, and the steps of taps and of source rows.

    >>> row_table(forward_taps(3, 3, 3, 1, 1, 1))
    ([(2, 1, 0), (3, 0, 0), (2, 0, 1)], 1, 1)
    """
    steps = {
        (after[0] - before[0], after[1] - before[1])
        for row in rows
        for before, after in pairwise(row)
    }
    if len(steps) > 1:
        raise ValueError("taps of a row that are not evenly spaced")
    tap_step, row_step = steps.pop() if steps else (1, 1)
    return [(len(row), *row[0]) if row else (0, 0, 0) for row in rows], tap_step, row_step
