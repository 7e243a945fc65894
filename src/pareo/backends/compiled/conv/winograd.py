"""3x3 and 5x5 convolutions with a fraction of the multiplications: Winograd's minimal filtering.

A patch of 6x6 pixels is enough for a tile of 4x4 results of a 3x3 filter, or of 2x2 of a 5x5 one.
With matrices A, B and G that come from evaluating polynomials at 0, 1, -1, 2, -2 and infinity, the
tile is A' [(G w G') * (B' x B)] A. The bracket has 36 places, where the direct sum has 144 or 100
products, and at each place the sum over channels is one product of matrices: filters by channels
with channels by tiles. The way back to the filters is the same read from the other end: G' [the sum
over tiles of (A g A') times (B' x B)] G.

It costs accuracy: the matrices hold numbers as large as 16 and as small as 1/24, so that float32
rounds several times as much as in the direct sum (tests/backends/test_winograd.py says how much).

The work is cut into rows of tiles, some hundred tiles at a time, each worker with its own room.
"""

from typing import Any

import numpy as np

from pareo.backends import blas
from pareo.backends.compiled.conv.winograd_transforms import LANES, transform
from pareo.backends.compiled.kernels.activations import NONE, RELU, SIGMOID
from pareo.backends.compiled.kernels.elementwise_loops import sigmoid_here, tanh_here
from pareo.backends.compiled.loops.runtime import multiply
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import split_numbered, workers
from pareo.spec import Spec

PATCH = 6
PLACES = PATCH * PATCH
TILES = {(3, 3): 4, (5, 5): 2}  # the side of a tile, by the filters' taps
LEAST_CHANNELS = 16  # and filters: with fewer, getting into the bracket and out costs the most
LEAST_TILES = 32  # in all images: with fewer, the filters' way into the bracket does
ROOM = 16 << 20  # bytes for the brackets of the tiles at hand, for each worker
MOST_TILES = 512  # at a time


def suits(filters: Any, out: Any, *, stride: Any, padding: Any, dilation: Any, groups: int) -> bool:
    """Whether these shapes are worth it; `out` is what is computed, or what gradients come from."""
    plain = tuple(stride) == (1, 1) == tuple(dilation) and groups == 1
    tile = TILES.get(tuple(filters[2:]))
    if out.dtype != np.float32 or tile is None or not plain or max(padding) >= filters[2]:
        return False
    images, _, height, width = out.shape
    enough = images * -(-height // tile) * -(-width // tile) >= LEAST_TILES
    many = min(filters[:2]) >= LEAST_CHANNELS and filters[1] % LANES == 0
    return enough and many and blas.address(out.dtype) is not None


BT: list[list[float]] = [
    [4, 0, -5, 0, 1, 0],
    [0, -4, -4, 1, 1, 0],
    [0, 4, -4, -1, 1, 0],
    [0, -2, -1, 2, 1, 0],
    [0, 2, -1, -2, 1, 0],
    [0, 4, 0, -5, 0, 1],
]
POINTS = {0: 4, 1: -6, -1: -6, 2: 24, -2: 24}  # and the product of their distances to the others


def _g(taps: int) -> list[list[float]]:
    """G: a filter as a polynomial, at every point."""
    finite = [[point**k / product for k in range(taps)] for point, product in POINTS.items()]
    return [*finite, [0.0] * (taps - 1) + [1.0]]


def _a(tile: int) -> list[list[float]]:
    """A: the powers of every point."""
    finite = [[float(point**k) for k in range(tile)] for point in POINTS]
    return [*finite, [0.0] * (tile - 1) + [1.0]]


def _turned(matrix: list[list[float]]) -> list[list[float]]:
    return [list(row) for row in zip(*matrix, strict=True)]


_patches_down, _errors_down_4, _errors_down_2 = transform(BT), transform(_a(4)), transform(_a(2))
_patches_along_4, _patches_along_2 = transform(BT, strung=4), transform(BT, strung=2)
_errors_along_4, _errors_along_2 = transform(_a(4), strung=4), transform(_a(2), strung=2)
_tiles_down_4, _tiles_down_2 = transform(_turned(_a(4))), transform(_turned(_a(2)))
_tiles_along_4 = transform(_turned(_a(4)), string=4)
_tiles_along_2 = transform(_turned(_a(2)), string=2)
_filters_in_3, _filters_in_5 = transform(_g(3)), transform(_g(5))
_filters_out_3, _filters_out_5 = transform(_turned(_g(3))), transform(_turned(_g(5)))


@jit
def _filters_in(u: Any, w: Any, room: Any, flip: bool, lo: int, hi: int) -> None:
    """u[:, k] = G w[k] G' for filters lo to hi; turned round by half a circle if asked.

    room holds the taps of all channels, one after another, then G's six rows of them.
    """
    channels, taps = w.shape[1], w.shape[2]
    line, place, fours = 4 * channels, 4 * u.shape[1] * channels, channels // 4
    given, mixed = room.ctypes.data, room.ctypes.data + taps * taps * line
    for k in range(lo, hi):
        for a in range(taps * taps):
            tap = taps * taps - 1 - a if flip else a
            for c in range(channels):
                room[tap, c] = w[k, c, a // taps, a % taps]
        for column in range(taps):
            into, start = mixed + column * line, given + column * line
            if taps == 3:
                _filters_in_3(into, 3 * line, start, 3 * line, fours)
            else:
                _filters_in_5(into, 5 * line, start, 5 * line, fours)
        for row in range(PATCH):
            into = u.ctypes.data + PATCH * row * place + k * line
            if taps == 3:
                _filters_in_3(into, place, mixed + 3 * row * line, line, fours)
            else:
                _filters_in_5(into, place, mixed + 5 * row * line, line, fours)


@jit
def _filters_out(w: Any, sums: Any, room: Any, lo: int, hi: int) -> None:
    """w[k] = G' (the sum of the workers' sums) G for filters lo to hi; room as above."""
    channels, taps = w.shape[1], w.shape[2]
    line, place, fours = 4 * channels, 4 * w.shape[0] * channels, channels // 4
    mixed, made = room.ctypes.data, room.ctypes.data + PATCH * taps * line
    for k in range(lo, hi):
        for other in range(1, sums.shape[0]):
            for at in range(PLACES):
                total, more = sums[0, at, k], sums[other, at, k]
                for c in range(channels):
                    total[c] += more[c]
        for column in range(PATCH):
            into, start = mixed + column * line, sums.ctypes.data + k * line + column * place
            if taps == 3:
                _filters_out_3(into, PATCH * line, start, PATCH * place, fours)
            else:
                _filters_out_5(into, PATCH * line, start, PATCH * place, fours)
        for row in range(taps):
            into, start = made + taps * row * line, mixed + PATCH * row * line
            if taps == 3:
                _filters_out_3(into, line, start, line, fours)
            else:
                _filters_out_5(into, line, start, line, fours)
        for a in range(taps * taps):
            for c in range(channels):
                w[k, c, a // taps, a % taps] = room[PATCH * taps + a, c]


@jit
def _lift(lines: Any, planes: Any, p: int, top: int, left: int, rows: int) -> None:
    """lines[i] = row top + i of plane p, `left` zeros before it, and zeros where there is none."""
    wide, width = lines.shape[1], np.uint64(min(planes.shape[2], lines.shape[1] - left))
    start = np.uint64(left)
    end = start + width
    for i in range(rows):
        if 0 <= top + i < planes.shape[1]:
            row = np.uint64(top + i)
            for x in range(start):
                lines[i, x] = 0
            for x in range(width):  # unsigned: an index that may be negative is not vectorised
                lines[i, x + start] = planes[p, row, x]
            for x in range(np.uint64(wide) - end):
                lines[i, x + end] = 0
        else:
            for x in range(wide):
                lines[i, x] = 0


@jit
def _patches_in(v: Any, planes: Any, first: int, row: int, at: int, top: int, left: int, tile: int,
                wide: int, channel: int, lines: Any, mixed: Any) -> None:  # fmt: skip
    """The patches of one row of tiles, B' x B, for all channels from plane `first` on."""
    line, place, fours = 4 * lines.shape[1], 4 * v.shape[1], (wide + 3) // 4
    for c in range(v.shape[1] // channel):
        _lift(lines, planes, first + c, tile * row - top, left, PATCH)
        _patches_down(mixed.ctypes.data, line, lines.ctypes.data, line, lines.shape[1] // 4)
        for i in range(PATCH):
            into = v.ctypes.data + 4 * (c * channel + at) + PATCH * i * place
            start = mixed.ctypes.data + i * line
            if tile == 4:
                _patches_along_4(into, place, start, 0, fours)
            else:
                _patches_along_2(into, place, start, 0, fours)


@jit
def _errors_in(m: Any, planes: Any, first: int, row: int, at: int, tile: int, wide: int,
               channel: int, lines: Any, mixed: Any) -> None:  # fmt: skip
    """The errors of one row of tiles, A g A', for all filters from plane `first` on."""
    line, place, fours = 4 * lines.shape[1], 4 * m.shape[1], (wide + 3) // 4
    given, into = lines.ctypes.data, mixed.ctypes.data
    for k in range(m.shape[1] // channel):
        _lift(lines, planes, first + k, tile * row, 0, tile)
        if tile == 4:
            _errors_down_4(into, line, given, line, lines.shape[1] // 4)
        else:
            _errors_down_2(into, line, given, line, lines.shape[1] // 4)
        for i in range(PATCH):
            out = m.ctypes.data + 4 * (k * channel + at) + PATCH * i * place
            if tile == 4:
                _errors_along_4(out, place, into + i * line, 0, fours)
            else:
                _errors_along_2(out, place, into + i * line, 0, fours)


@jit
def _tiles_out(planes: Any, m: Any, first: int, row: int, at: int, tile: int, wide: int,
               channel: int, bias: Any, activation: int, lines: Any,
               mixed: Any) -> None:  # fmt: skip
    """One row of tiles, A' m A, with bias and activation, for all filters from plane `first` on."""
    line, place, fours = 4 * lines.shape[1], 4 * m.shape[1], (wide + 3) // 4
    between = 16 * fours  # the bytes of a row of tiles' numbers, in mixed
    top = np.uint64(tile * row)
    for k in range(m.shape[1] // channel):
        given = m.ctypes.data + 4 * (k * channel + at)
        for i in range(PATCH):
            into, start = mixed.ctypes.data + i * between, given + i * place
            if tile == 4:
                _tiles_down_4(into, PATCH * between, start, PATCH * place, fours)
            else:
                _tiles_down_2(into, PATCH * between, start, PATCH * place, fours)
        for i in range(tile):
            into, start = lines.ctypes.data + i * line, mixed.ctypes.data + PATCH * i * between
            if tile == 4:
                _tiles_along_4(into, 0, start, between, fours)
            else:
                _tiles_along_2(into, 0, start, between, fours)
        shift = bias[k]
        for i in range(min(tile, planes.shape[1] - tile * row)):
            if activation == RELU:
                for x in range(planes.shape[2]):
                    z = lines[i, x] + shift
                    planes[first + k, top + np.uint64(i), x] = z if z > 0 or z != z else 0
            else:
                for x in range(planes.shape[2]):
                    planes[first + k, top + np.uint64(i), x] = lines[i, x] + shift
                if activation != NONE:
                    out = planes[first + k, tile * row + i]
                    sigmoid_here(out) if activation == SIGMOID else tanh_here(out)


@jit
def _convolve(
    product: int, out: Any, x: Any, u: Any, turn: bool, bias: Any, activation: int, top: int,
    left: int, tile: int, high: int, wide: int, v: Any, m: Any, lines: Any, mixed: Any,
    lo: int, hi: int,
) -> None:  # fmt: skip
    """Rows lo to hi of all tiles, `high` of them an image, `wide` tiles each.

    u is filters by channels, or, turned, channels by filters.
    """
    one, none = v.dtype.type(1), v.dtype.type(0)
    channels, filters = (u.shape[1], u.shape[2]) if turn else (u.shape[2], u.shape[1])
    channel = v.shape[1] // channels  # the tiles of one channel, some floats more than at once
    for start in range(lo, hi, (channel - 4) // wide):
        rows = min((channel - 4) // wide, hi - start)
        for r in range(rows):
            n, i = (start + r) // high, (start + r) % high
            _patches_in(v, x, n * channels, i, r * wide, top, left, tile, wide, channel, lines,
                        mixed)  # fmt: skip
        for place in range(PLACES):
            of = v[place].reshape((channels, channel))[:, : rows * wide]
            into = m[place].reshape((filters, channel))[:, : rows * wide]
            multiply(product, into, u[place], turn, of, False, one, none)
        for r in range(rows):
            n, i = (start + r) // high, (start + r) % high
            _tiles_out(out, m, n * filters, i, r * wide, tile, wide, channel, bias, activation,
                       lines, mixed)  # fmt: skip


@jit
def _weigh(
    product: int, sums: Any, x: Any, g: Any, top: int, left: int, tile: int, high: int, wide: int,
    v: Any, m: Any, lines: Any, mixed: Any, lo: int, hi: int,
) -> None:  # fmt: skip
    """sums = the filters' gradient in the bracket, from rows lo to hi of all tiles."""
    one, none = v.dtype.type(1), v.dtype.type(0)
    filters, channels = sums.shape[1:]
    channel = v.shape[1] // channels
    if lo == hi:
        sums[:] = 0
    for start in range(lo, hi, (channel - 4) // wide):
        rows = min((channel - 4) // wide, hi - start)
        for r in range(rows):
            n, i = (start + r) // high, (start + r) % high
            _patches_in(v, x, n * channels, i, r * wide, top, left, tile, wide, channel, lines,
                        mixed)  # fmt: skip
            _errors_in(m, g, n * filters, i, r * wide, tile, wide, channel, lines, mixed)
        for place in range(PLACES):
            of = v[place].reshape((channels, channel))[:, : rows * wide]
            by = m[place].reshape((filters, channel))[:, : rows * wide]
            multiply(product, sums[place], by, False, of, True, one, one if start > lo else none)


def _tiled(images: Any, taps: int) -> tuple[int, int, int]:
    """The side of a tile, and how many cover an image, down and across."""
    tile = TILES[taps, taps]
    return tile, -(-images.shape[2] // tile), -(-images.shape[3] // tile)


def room(x: Spec, out: Spec, taps: int) -> list[Spec]:
    """For every worker: patches and results in the bracket, lines, and room for filters.

    A channel's tiles lie four floats apart from the next one's, which its last four may touch.
    """
    channels, filters, team = x.shape[1], out.shape[1], workers()
    tile, high, wide = _tiled(out, taps)
    rows = out.shape[0] * high
    most = min(ROOM // (4 * PLACES * (channels + filters)), MOST_TILES) // wide
    at_once = max(1, min(most, -(-rows // team))) * wide + LANES
    line = LANES * tile * -(-wide // LANES) + LANES * LANES
    return [
        x.like((team, PLACES, channels * at_once)),
        x.like((team, PLACES, filters * at_once)),
        x.like((team, PATCH, line)),
        x.like((team, PATCH, line)),
        x.like((team, taps * (taps + PATCH) * max(channels, filters))),
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
    top, left = w.shape[2] - 1 - padding[0], w.shape[2] - 1 - padding[1]
    bias = np.zeros(w.shape[1], w.dtype)
    _run(out, g, w, True, bias, NONE, (top, left), scratch)


def _run(
    out: Any, x: Any, w: Any, back: bool, bias: Any, activation: int, padding: Any,
    scratch: tuple[Any, ...],
) -> None:  # fmt: skip
    v, m, lines, mixed, rooms, u = scratch
    product = blas.address(x.dtype)
    tile, high, wide = _tiled(out, w.shape[2])
    blas.threads(1)

    def change(part: int, lo: int, hi: int) -> None:
        _filters_in(u, w, _by_channel(w, rooms[part]), back, lo, hi)

    def work(part: int, lo: int, hi: int) -> None:
        _convolve(
            product, _planes(out), _planes(x), u, back, bias, activation, *padding[:2], tile, high,
            wide, v[part], m[part], lines[part], mixed[part], lo, hi,
        )  # fmt: skip

    split_numbered(change, w.shape[0])
    split_numbered(work, out.shape[0] * high)


def weight_gradient(out: Any, x: Any, g: Any, padding: Any, scratch: tuple[Any, ...]) -> None:
    """out = the gradient of the filters."""
    v, m, lines, mixed, rooms, sums = scratch
    product = blas.address(x.dtype)
    tile, high, wide = _tiled(g, out.shape[2])
    blas.threads(1)

    def work(part: int, lo: int, hi: int) -> None:
        _weigh(
            product, sums[part], _planes(x), _planes(g), *padding[:2], tile, high, wide,
            v[part], m[part], lines[part], mixed[part], lo, hi,
        )  # fmt: skip

    parts = split_numbered(work, g.shape[0] * high)

    def change(part: int, lo: int, hi: int) -> None:
        _filters_out(out, sums[:parts], _by_channel(out, rooms[part]), lo, hi)

    split_numbered(change, out.shape[0])


def _planes(images: Any) -> Any:
    return images.reshape(-1, *images.shape[2:])


def _by_channel(w: Any, room: Any) -> Any:
    """The start of a worker's room, as rows of one number a channel."""
    rows = w.shape[2] * (w.shape[2] + PATCH)
    return room[: rows * w.shape[1]].reshape(rows, w.shape[1])
