"""3x3 convolutions with a quarter of the multiplications: Winograd's F(4x4, 3x3).

A tile of 4x4 results needs a patch of 6x6 pixels. With matrices A, B and G that come from
evaluating polynomials at 0, 1, -1, 2, -2 and infinity, the tile is A' [(G w G') * (B' x B)] A. The
bracket has 36 places, and at each the sum over channels is one product of matrices: filters by
channels with channels by tiles. The way back to the filters is the same read from the other end:
G' [the sum over tiles of (A g A') times (B' x B)] G.

It costs accuracy: the matrices hold numbers as large as 8 and as small as 1/24, so that float32
rounds several times as much as in the direct sum (tests/backends/test_winograd.py says how much).

The work is cut into rows of tiles, some hundred tiles at a time, each worker with its own room.
"""

from typing import Any

import numpy as np

from pareo.backends import blas
from pareo.backends.compiled import loops
from pareo.backends.compiled.functions import RELU, SIGMOID, TANH
from pareo.backends.compiled.jit import jit
from pareo.backends.compiled.parts import multiply
from pareo.backends.pool import split, split_numbered, workers
from pareo.spec import Spec

TILE, PATCH, TAPS = 4, 6, 3
PLACES = PATCH * PATCH
LEAST_CHANNELS = 16  # and filters: with fewer, getting into the bracket and out costs the most
LEAST_TILES = 32  # in all images: with fewer, the filters' way into the bracket does
ROOM = 16 << 20  # bytes for the brackets of the tiles at hand, for each worker
MOST_TILES = 512  # at a time


def suits(filters: Any, out: Any, stride: Any, dilation: Any, groups: int) -> bool:
    """Whether these shapes are worth it: `out` is the result, or the gradient of it."""
    plain = tuple(stride) == (1, 1) == tuple(dilation) and groups == 1
    if out.dtype != np.float32 or tuple(filters[2:]) != (TAPS, TAPS) or not plain:
        return False
    images, _, height, width = out.shape
    enough = images * _tiles(height) * _tiles(width) >= LEAST_TILES
    return enough and min(filters[:2]) >= LEAST_CHANNELS and blas.address(out.dtype) is not None


def _tiles(size: int) -> int:
    return -(-size // TILE)


@jit
def _filters_in(u: Any, w: Any, room: Any, flip: bool, lo: int, hi: int) -> None:
    """u[:, k] = G w[k] G' for filters lo to hi; turned round by half a circle if asked.

    room (27, C) holds the nine taps of all channels, then G's six rows of them.
    """
    sixth, part, twelfth = w.dtype.type(1 / 6), w.dtype.type(1 / 24), w.dtype.type(1 / 12)
    quarter = w.dtype.type(1 / 4)
    channels = w.shape[1]
    for k in range(lo, hi):
        for a in range(9):
            tap = room[8 - a if flip else a]
            row, column = a // 3, a % 3
            for c in range(channels):
                tap[c] = w[k, c, row, column]
        for column in range(3):
            first, second, third = room[column], room[3 + column], room[6 + column]
            for c in range(channels):
                f, s, t = first[c], second[c], third[c]
                room[9 + column, c] = quarter * f
                room[12 + column, c] = -sixth * (f + s + t)
                room[15 + column, c] = -sixth * (f - s + t)
                room[18 + column, c] = part * f + twelfth * s + sixth * t
                room[21 + column, c] = part * f - twelfth * s + sixth * t
                room[24 + column, c] = t
        for row in range(PATCH):
            first, second, third = room[9 + 3 * row], room[10 + 3 * row], room[11 + 3 * row]
            for c in range(channels):
                f, s, t = first[c], second[c], third[c]
                u[PATCH * row, k, c] = quarter * f
                u[PATCH * row + 1, k, c] = -sixth * (f + s + t)
                u[PATCH * row + 2, k, c] = -sixth * (f - s + t)
                u[PATCH * row + 3, k, c] = part * f + twelfth * s + sixth * t
                u[PATCH * row + 4, k, c] = part * f - twelfth * s + sixth * t
                u[PATCH * row + 5, k, c] = t


@jit
def _filters_out(w: Any, sums: Any, room: Any, lo: int, hi: int) -> None:
    """w[k] = G' (the sum of the workers' sums) G for filters lo to hi; room as above."""
    sixth, part, twelfth = w.dtype.type(1 / 6), w.dtype.type(1 / 24), w.dtype.type(1 / 12)
    quarter = w.dtype.type(1 / 4)
    channels = w.shape[1]
    for k in range(lo, hi):
        for other in range(1, sums.shape[0]):
            for place in range(PLACES):
                for c in range(channels):
                    sums[0, place, k, c] += sums[other, place, k, c]
        for column in range(PATCH):
            for c in range(channels):
                p = sums[0, column, k, c]
                q, r = sums[0, PATCH + column, k, c], sums[0, 2 * PATCH + column, k, c]
                s, t = sums[0, 3 * PATCH + column, k, c], sums[0, 4 * PATCH + column, k, c]
                room[column, c] = quarter * p - sixth * (q + r) + part * (s + t)
                room[6 + column, c] = sixth * (r - q) + twelfth * (s - t)
                last = sums[0, 5 * PATCH + column, k, c]
                room[12 + column, c] = sixth * (s + t - q - r) + last
        for row in range(TAPS):
            at = PATCH * row
            for c in range(channels):
                p, q, r = room[at, c], room[at + 1, c], room[at + 2, c]
                s, t = room[at + 3, c], room[at + 4, c]
                w[k, c, row, 0] = quarter * p - sixth * (q + r) + part * (s + t)
                w[k, c, row, 1] = sixth * (r - q) + twelfth * (s - t)
                w[k, c, row, 2] = sixth * (s + t - q - r) + room[at + 5, c]


@jit
def _lift(lines: Any, plane: Any, top: int, left: int) -> None:
    """lines[i] = row top + i of a plane from column left on, 0 outside."""
    start = max(0, -left)
    stop = min(lines.shape[1], plane.shape[1] - left)
    for i in range(lines.shape[0]):
        line = lines[i]
        if 0 <= top + i < plane.shape[0] and stop > start:
            line[:start] = 0
            line[stop:] = 0
            line[start:stop] = plane[top + i, start + left : stop + left]
        else:
            line[:] = 0


@jit
def _patches_in(v: Any, lines: Any, mixed: Any, c: int, r: int) -> None:
    """v[:, c, r, j] = B' (patch j of six lines) B."""
    two, four, five = v.dtype.type(2), v.dtype.type(4), v.dtype.type(5)
    for x in range(lines.shape[1]):
        a, b, c_, d = lines[0, x], lines[1, x], lines[2, x], lines[3, x]
        e, f = lines[4, x], lines[5, x]
        even, odd = e - four * c_, d - four * b
        mixed[0, x] = four * a - five * c_ + e
        mixed[1, x] = even + odd
        mixed[2, x] = even - odd
        even, odd = e - c_, two * (d - b)
        mixed[3, x] = even + odd
        mixed[4, x] = even - odd
        mixed[5, x] = four * b - five * d + f
    for i in range(PATCH):
        for j in range(v.shape[3]):
            a, b, c_ = mixed[i, 4 * j], mixed[i, 4 * j + 1], mixed[i, 4 * j + 2]
            d, e, f = mixed[i, 4 * j + 3], mixed[i, 4 * j + 4], mixed[i, 4 * j + 5]
            even, odd = e - four * c_, d - four * b
            v[PATCH * i, c, r, j] = four * a - five * c_ + e
            v[PATCH * i + 1, c, r, j] = even + odd
            v[PATCH * i + 2, c, r, j] = even - odd
            even, odd = e - c_, two * (d - b)
            v[PATCH * i + 3, c, r, j] = even + odd
            v[PATCH * i + 4, c, r, j] = even - odd
            v[PATCH * i + 5, c, r, j] = four * b - five * d + f


@jit
def _errors_in(m: Any, lines: Any, mixed: Any, k: int, r: int) -> None:
    """m[:, k, r, j] = A (tile j of four lines of errors) A'."""
    two, four, eight = m.dtype.type(2), m.dtype.type(4), m.dtype.type(8)
    for x in range(lines.shape[1]):
        a, b, c, d = lines[0, x], lines[1, x], lines[2, x], lines[3, x]
        mixed[0, x] = a
        mixed[1, x] = a + c + (b + d)
        mixed[2, x] = a + c - (b + d)
        mixed[3, x] = a + four * c + (two * b + eight * d)
        mixed[4, x] = a + four * c - (two * b + eight * d)
        mixed[5, x] = d
    for i in range(PATCH):
        for j in range(m.shape[3]):
            a, b = mixed[i, 4 * j], mixed[i, 4 * j + 1]
            c, d = mixed[i, 4 * j + 2], mixed[i, 4 * j + 3]
            m[PATCH * i, k, r, j] = a
            m[PATCH * i + 1, k, r, j] = a + c + (b + d)
            m[PATCH * i + 2, k, r, j] = a + c - (b + d)
            m[PATCH * i + 3, k, r, j] = a + four * c + (two * b + eight * d)
            m[PATCH * i + 4, k, r, j] = a + four * c - (two * b + eight * d)
            m[PATCH * i + 5, k, r, j] = d


@jit
def _tiles_out(lines: Any, mixed: Any, m: Any, k: int, r: int) -> None:
    """Four lines of results: tile j of them is A' m[:, k, r, j] A; mixed (24, tiles) is room."""
    two, four, eight = m.dtype.type(2), m.dtype.type(4), m.dtype.type(8)
    for i in range(PATCH):
        for j in range(m.shape[3]):
            a, b, c = m[i, k, r, j], m[PATCH + i, k, r, j], m[2 * PATCH + i, k, r, j]
            d, e = m[3 * PATCH + i, k, r, j], m[4 * PATCH + i, k, r, j]
            mixed[i, j] = a + (b + c) + (d + e)
            mixed[6 + i, j] = b - c + two * (d - e)
            mixed[12 + i, j] = b + c + four * (d + e)
            mixed[18 + i, j] = b - c + eight * (d - e) + m[5 * PATCH + i, k, r, j]
    for i in range(TILE):
        line = lines[i]
        at = PATCH * i
        for j in range(m.shape[3]):
            a, b, c = mixed[at, j], mixed[at + 1, j], mixed[at + 2, j]
            d, e = mixed[at + 3, j], mixed[at + 4, j]
            line[4 * j] = a + (b + c) + (d + e)
            line[4 * j + 1] = b - c + two * (d - e)
            line[4 * j + 2] = b + c + four * (d + e)
            line[4 * j + 3] = b - c + eight * (d - e) + mixed[at + 5, j]


@jit
def _finish(plane: Any, lines: Any, top: int, bias: Any, activation: int) -> None:
    """Rows from top on of a plane = activation(lines + bias)."""
    for i in range(min(TILE, plane.shape[0] - top)):
        row, line = plane[top + i], lines[i]
        for x in range(row.size):
            row[x] = line[x] + bias
        if activation == RELU:
            loops.relu_here(row)
        elif activation == SIGMOID:
            loops.sigmoid_here(row)
        elif activation == TANH:
            loops.tanh_here(row)


@jit
def _convolve(
    product: int, out: Any, x: Any, u: Any, turn: bool, bias: Any, activation: int,
    top: int, left: int, v: Any, m: Any, lines: Any, mixed: Any, tiles: Any, lo: int, hi: int,
) -> None:  # fmt: skip
    """Rows lo to hi of all tiles; u is filters by channels, or turned, channels by filters."""
    high = -(-out.shape[2] // TILE)
    one, none = v.dtype.type(1), v.dtype.type(0)
    channels, filters, wide = v.shape[1], m.shape[1], v.shape[3]
    patches = v.reshape((PLACES, channels, v.shape[2] * wide))
    results = m.reshape((PLACES, filters, m.shape[2] * wide))
    for start in range(lo, hi, v.shape[2]):
        rows = min(v.shape[2], hi - start)
        for r in range(rows):
            n, i = (start + r) // high, (start + r) % high
            for c in range(channels):
                _lift(lines, x[n, c], TILE * i - top, -left)
                _patches_in(v, lines, mixed, c, r)
        for place in range(PLACES):
            of = patches[place][:, : rows * wide]
            into = results[place][:, : rows * wide]
            multiply(product, into, u[place], turn, of, False, one, none)
        for r in range(rows):
            n, i = (start + r) // high, (start + r) % high
            for k in range(filters):
                _tiles_out(lines, tiles, m, k, r)
                _finish(out[n, k], lines, TILE * i, bias[k], activation)


@jit
def _weigh(
    product: int, sums: Any, x: Any, g: Any, top: int, left: int,
    v: Any, m: Any, lines: Any, mixed: Any, lo: int, hi: int,
) -> None:  # fmt: skip
    """sums = the filters' gradient in the bracket, from rows lo to hi of all tiles."""
    high = -(-g.shape[2] // TILE)
    one, none = v.dtype.type(1), v.dtype.type(0)
    channels, filters, wide = v.shape[1], m.shape[1], v.shape[3]
    patches = v.reshape((PLACES, channels, v.shape[2] * wide))
    errors = m.reshape((PLACES, filters, m.shape[2] * wide))
    if lo == hi:
        sums[:] = 0
    for start in range(lo, hi, v.shape[2]):
        rows = min(v.shape[2], hi - start)
        for r in range(rows):
            n, i = (start + r) // high, (start + r) % high
            for c in range(channels):
                _lift(lines, x[n, c], TILE * i - top, -left)
                _patches_in(v, lines, mixed, c, r)
            for k in range(filters):
                _lift(lines[:TILE], g[n, k], TILE * i, 0)
                _errors_in(m, lines, mixed, k, r)
        for place in range(PLACES):
            of = patches[place][:, : rows * wide]
            by = errors[place][:, : rows * wide]
            multiply(product, sums[place], by, False, of, True, one, one if start > lo else none)


def room(x: Spec, out: Spec) -> list[Spec]:
    """For every worker: patches and results in the bracket, lines, and room for filters."""
    _, channels, _, _ = x.shape
    images, filters, height, width = out.shape
    wide, rows = _tiles(width), images * _tiles(height)
    most = min(ROOM // (4 * PLACES * (channels + filters)), MOST_TILES) // wide
    at_once = max(1, min(most, -(-rows // workers())))
    team = workers()
    return [
        x.like((team, PLACES, channels, at_once, wide)),
        x.like((team, PLACES, filters, at_once, wide)),
        x.like((team, PATCH, TILE * wide + 2)),
        x.like((team, PATCH, TILE * wide + 2)),
        x.like((team, PATCH * TILE, wide)),
        x.like((team, 27, max(channels, filters))),
    ]


def filters_room(filters: tuple[int, ...], x: Spec) -> Spec:
    """Room for filters in the bracket."""
    return x.like((PLACES, *filters[:2]))


def sums_room(filters: tuple[int, ...], x: Spec) -> Spec:
    """Room for the gradient of filters in the bracket, for every worker."""
    return x.like((workers(), PLACES, *filters[:2]))


def forward(
    out: Any, x: Any, w: Any, b: Any, activation: int, padding: Any, scratch: tuple[Any, ...]
) -> None:
    """out = activation(conv(x, w) + b), or the convolution alone where b is None."""
    bias = np.zeros(w.shape[0], w.dtype) if b is None else b
    _run(out, x, w, False, bias, activation, padding, scratch)


def input_gradient(out: Any, g: Any, w: Any, padding: Any, scratch: tuple[Any, ...]) -> None:
    """out = the gradient of the images: the errors' convolution with the filters turned round."""
    top, left = TAPS - 1 - padding[0], TAPS - 1 - padding[1]
    bias = np.zeros(w.shape[1], w.dtype)
    _run(out, g, w, True, bias, 0, (top, left), scratch)


def _run(
    out: Any, x: Any, w: Any, back: bool, bias: Any, activation: int, padding: Any,
    scratch: tuple[Any, ...],
) -> None:  # fmt: skip
    v, m, lines, mixed, tiles, rooms, u = scratch
    product = blas.address(x.dtype)
    blas.threads(1)

    def change(part: int, lo: int, hi: int) -> None:
        _filters_in(u, w, rooms[part], back, lo, hi)

    def work(part: int, lo: int, hi: int) -> None:
        _convolve(
            product, out, x, u, back, bias, activation, *padding[:2],
            v[part], m[part], lines[part], mixed[part], tiles[part], lo, hi,
        )  # fmt: skip

    split_numbered(change, w.shape[0])
    split_numbered(work, out.shape[0] * _tiles(out.shape[2]))


def weight_gradient(out: Any, x: Any, g: Any, padding: Any, scratch: tuple[Any, ...]) -> None:
    """out = the gradient of the filters."""
    v, m, lines, mixed, _, rooms, sums = scratch
    product = blas.address(x.dtype)
    blas.threads(1)

    def work(part: int, lo: int, hi: int) -> None:
        _weigh(
            product, sums[part], x, g, *padding[:2],
            v[part], m[part], lines[part], mixed[part], lo, hi,
        )  # fmt: skip

    parts = split_numbered(work, g.shape[0] * _tiles(g.shape[2]))

    def change(part: int, lo: int, hi: int) -> None:
        _filters_out(out, sums[:parts], rooms[part], lo, hi)

    split_numbered(change, out.shape[0])
