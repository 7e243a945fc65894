"""Transforms of Winograd's minimal filtering (see `winograd`) for rows of tiles and for filters."""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.conv.winograd_transforms import WIDE_LANES, transform
from pareo.backends.compiled.kernels.activations import NONE, RELU, SIGMOID
from pareo.backends.compiled.kernels.elementwise_loops import sigmoid_in_place, tanh_in_place
from pareo.backends.compiled.runtime.jit import jit

PATCH = 6
POSITIONS = PATCH * PATCH
BT: list[list[float]] = [
    [4, 0, -5, 0, 1, 0],
    [0, -4, -4, 1, 1, 0],
    [0, 4, -4, -1, 1, 0],
    [0, -2, -1, 2, 1, 0],
    [0, 2, -1, -2, 1, 0],
    [0, 4, 0, -5, 0, 1],
]
# Each point, and the product of its distances to the others.
POINTS = {0: 4, 1: -6, -1: -6, 2: 24, -2: 24}


def _g(taps: int) -> list[list[float]]:
    """G: evaluates a filter, as a polynomial, at every point."""
    finite = [[point**k / product for k in range(taps)] for point, product in POINTS.items()]
    return [*finite, [0.0] * (taps - 1) + [1.0]]


def _a(tile: int) -> list[list[float]]:
    """A: the powers of every point."""
    finite = [[float(point**k) for k in range(tile)] for point in POINTS]
    return [*finite, [0.0] * (tile - 1) + [1.0]]


def _transposed(matrix: list[list[float]]) -> list[list[float]]:
    return [list(row) for row in zip(*matrix, strict=True)]


_patches_down = transform(BT, lanes=WIDE_LANES)
_patches_along_4, _patches_along_2 = transform(BT, interleaved=4), transform(BT, interleaved=2)
_gradients_down_4 = transform(_a(4), lanes=WIDE_LANES)
_gradients_down_2 = transform(_a(2), lanes=WIDE_LANES)
_gradients_along_4 = transform(_a(4), interleaved=4)
_gradients_along_2 = transform(_a(2), interleaved=2)
_tiles_down_4, _tiles_down_2 = transform(_transposed(_a(4))), transform(_transposed(_a(2)))
_tiles_along_4 = transform(_transposed(_a(4)), interleave=4)
_tiles_along_2 = transform(_transposed(_a(2)), interleave=2)
_filters_in_3, _filters_in_5 = transform(_g(3)), transform(_g(5))
_filters_out_3, _filters_out_5 = transform(_transposed(_g(3))), transform(_transposed(_g(5)))


@jit
def transform_filters(u: Array, w: Array, buffer: Array, flip: bool, lo: int, hi: int) -> None:
    """u[:, k] = G w[k] G' for filters lo to hi; with `flip`, they are rotated by 180 degrees.

    buffer has a row for each tap, with all channels, and then G's six rows of them. Rows of buffer
    and u are whole vectors, so that they may have channels that no filter has.
    """
    channels, taps, all_channels = w.shape[1], w.shape[2], u.shape[2]
    line, place, fours = 4 * all_channels, 4 * u.shape[1] * all_channels, all_channels // 4
    given, half = buffer.ctypes.data, buffer.ctypes.data + taps * taps * line
    for k in range(lo, hi):
        for a in range(taps * taps):
            tap = taps * taps - 1 - a if flip else a
            for c in range(channels):
                buffer[tap, c] = w[k, c, a // taps, a % taps]
        for column in range(taps):
            into, start = half + column * line, given + column * line
            if taps == 3:
                _filters_in_3(into, 3 * line, start, 3 * line, fours)
            else:
                _filters_in_5(into, 5 * line, start, 5 * line, fours)
        for row in range(PATCH):
            into = u.ctypes.data + PATCH * row * place + k * line
            if taps == 3:
                _filters_in_3(into, place, half + 3 * row * line, line, fours)
            else:
                _filters_in_5(into, place, half + 5 * row * line, line, fours)


@jit
def filters_backward(w: Array, sums: Array, buffer: Array, lo: int, hi: int) -> None:
    """w[k] = G' (the sum of the workers' sums) G for filters lo to hi; buffer as above."""
    channels, taps, all_channels = w.shape[1], w.shape[2], sums.shape[3]
    line, place, fours = 4 * all_channels, 4 * w.shape[0] * all_channels, all_channels // 4
    half, made = buffer.ctypes.data, buffer.ctypes.data + PATCH * taps * line
    for k in range(lo, hi):
        for other in range(1, sums.shape[0]):
            for at in range(POSITIONS):
                total, more = sums[0, at, k], sums[other, at, k]
                for c in range(channels):
                    total[c] += more[c]
        for column in range(PATCH):
            into, start = half + column * line, sums.ctypes.data + k * line + column * place
            if taps == 3:
                _filters_out_3(into, PATCH * line, start, PATCH * place, fours)
            else:
                _filters_out_5(into, PATCH * line, start, PATCH * place, fours)
        for row in range(taps):
            into, start = made + taps * row * line, half + PATCH * row * line
            if taps == 3:
                _filters_out_3(into, line, start, line, fours)
            else:
                _filters_out_5(into, line, start, line, fours)
        for a in range(taps * taps):
            for c in range(channels):
                w[k, c, a // taps, a % taps] = buffer[PATCH * taps + a, c]


@jit
def _load_lines(lines: Array, planes: Array, p: int, top: int, left: int, rows: int) -> None:
    """lines[i] = row top + i of plane p after `left` zeros; zeros outside the plane."""
    wide, width = lines.shape[1], np.uint64(min(planes.shape[2], lines.shape[1] - left))
    start = np.uint64(left)
    end = start + width
    for i in range(rows):
        if 0 <= top + i < planes.shape[1]:
            row = np.uint64(top + i)
            for x in range(start):
                lines[i, x] = 0
            for x in range(width):  # unsigned: a loop whose index may be negative is not vectorised
                lines[i, x + start] = planes[p, row, x]
            for x in range(np.uint64(wide) - end):
                lines[i, x + end] = 0
        else:
            for x in range(wide):
                lines[i, x] = 0


@jit
def transform_patches(
    v: Array, planes: Array, start: int, rows: int, high: int, top: int, left: int,
    tile: int, wide: int, channel: int, lines: Array, half: Array,
) -> None:  # fmt: skip
    """Transform the patches of rows of tiles, B' x B, for all channels; an image has `high` rows.

    The rows of a channel are done together, while the memory they share is in the cache.
    """
    line, place, fours = 4 * lines.shape[1], 4 * v.shape[1], (wide + 3) // 4
    channels = v.shape[1] // channel
    for c in range(channels):
        for r in range(rows):
            n, row = (start + r) // high, (start + r) % high
            _load_lines(lines, planes, n * channels + c, tile * row - top, left, PATCH)
            wides = lines.shape[1] // WIDE_LANES
            _patches_down(half.ctypes.data, line, lines.ctypes.data, line, wides)
            for i in range(PATCH):
                into = v.ctypes.data + 4 * (c * channel + r * wide) + PATCH * i * place
                given = half.ctypes.data + i * line
                if tile == 4:
                    _patches_along_4(into, place, given, 0, fours)
                else:
                    _patches_along_2(into, place, given, 0, fours)


@jit
def transform_gradients(
    m: Array, planes: Array, start: int, rows: int, high: int, tile: int, wide: int,
    channel: int, lines: Array, half: Array,
) -> None:  # fmt: skip
    """Transform the gradients of rows of tiles likewise, A g A', for all filters."""
    line, place, fours = 4 * lines.shape[1], 4 * m.shape[1], (wide + 3) // 4
    given, into, filters = lines.ctypes.data, half.ctypes.data, m.shape[1] // channel
    for k in range(filters):
        for r in range(rows):
            n, row = (start + r) // high, (start + r) % high
            _load_lines(lines, planes, n * filters + k, tile * row, 0, tile)
            if tile == 4:
                _gradients_down_4(into, line, given, line, lines.shape[1] // WIDE_LANES)
            else:
                _gradients_down_2(into, line, given, line, lines.shape[1] // WIDE_LANES)
            for i in range(PATCH):
                out = m.ctypes.data + 4 * (k * channel + r * wide) + PATCH * i * place
                if tile == 4:
                    _gradients_along_4(out, place, into + i * line, 0, fours)
                else:
                    _gradients_along_2(out, place, into + i * line, 0, fours)


@jit
def _inverse_row(
    planes: Array, p: int, row: int, given: int, place: int, tile: int, wide: int,
    shift: float, activation: int, lines: Array, half: Array,
) -> None:  # fmt: skip
    """One row of tiles of plane p; its first tile is at `given`, positions are `place` apart."""
    line, fours = 4 * lines.shape[1], (wide + 3) // 4
    between = 16 * fours  # the bytes of a row of tiles in half
    top = np.uint64(tile * row)
    for i in range(PATCH):
        into, start = half.ctypes.data + i * between, given + i * place
        if tile == 4:
            _tiles_down_4(into, PATCH * between, start, PATCH * place, fours)
        else:
            _tiles_down_2(into, PATCH * between, start, PATCH * place, fours)
    for i in range(tile):
        into, start = lines.ctypes.data + i * line, half.ctypes.data + PATCH * i * between
        if tile == 4:
            _tiles_along_4(into, 0, start, between, fours)
        else:
            _tiles_along_2(into, 0, start, between, fours)
    for i in range(min(tile, planes.shape[1] - tile * row)):
        if activation == RELU:
            for x in range(planes.shape[2]):
                z = lines[i, x] + shift
                planes[p, top + np.uint64(i), x] = z if z > 0 or z != z else 0
        else:
            for x in range(planes.shape[2]):
                planes[p, top + np.uint64(i), x] = lines[i, x] + shift
            if activation != NONE:
                out = planes[p, tile * row + i]
                sigmoid_in_place(out) if activation == SIGMOID else tanh_in_place(out)


@jit
def inverse_transform_tiles(
    planes: Array, m: Array, start: int, rows: int, high: int, tile: int, wide: int,
    channel: int, bias: Array, activation: int, lines: Array, half: Array,
) -> None:  # fmt: skip
    """Rows of tiles, A' m A, with bias and activation, for all filters."""
    filters = m.shape[1] // channel
    for k in range(filters):
        for r in range(rows):
            n, row = (start + r) // high, (start + r) % high
            given = m.ctypes.data + 4 * (k * channel + r * wide)
            _inverse_row(
                planes, n * filters + k, row, given, 4 * m.shape[1], tile, wide, bias[k],
                activation, lines, half,
            )  # fmt: skip
