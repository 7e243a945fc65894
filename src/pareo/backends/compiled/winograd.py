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
from pareo.backends.compiled.functions import NONE, RELU, SIGMOID
from pareo.backends.compiled.jit import jit
from pareo.backends.compiled.parts import multiply
from pareo.backends.compiled.transforms import LANES, transform
from pareo.backends.pool import split_numbered, workers
from pareo.spec import Spec

TILE, PATCH, TAPS = 4, 6, 3
PLACES = PATCH * PATCH
LEAST_CHANNELS = 16  # and filters: with fewer, getting into the bracket and out costs the most
LEAST_TILES = 32  # in all images: with fewer, the filters' way into the bracket does
ROOM = 16 << 20  # bytes for the brackets of the tiles at hand, for each worker
MOST_TILES = 512  # at a time


def suits(filters: Any, out: Any, *, stride: Any, padding: Any, dilation: Any, groups: int) -> bool:
    """Whether these shapes are worth it; `out` is what is computed, or what gradients come from."""
    plain = tuple(stride) == (1, 1) == tuple(dilation) and groups == 1 and max(padding) < TAPS
    if out.dtype != np.float32 or tuple(filters[2:]) != (TAPS, TAPS) or not plain:
        return False
    images, _, height, width = out.shape
    enough = images * _tiles(height) * _tiles(width) >= LEAST_TILES
    many = min(filters[:2]) >= LEAST_CHANNELS and filters[1] % LANES == 0
    return enough and many and blas.address(out.dtype) is not None


def _tiles(size: int) -> int:
    return -(-size // TILE)


BT: list[list[float]] = [
    [4, 0, -5, 0, 1, 0],
    [0, -4, -4, 1, 1, 0],
    [0, 4, -4, -1, 1, 0],
    [0, -2, -1, 2, 1, 0],
    [0, 2, -1, -2, 1, 0],
    [0, 4, 0, -5, 0, 1],
]
G: list[list[float]] = [
    [1 / 4, 0, 0],
    [-1 / 6, -1 / 6, -1 / 6],
    [-1 / 6, 1 / 6, -1 / 6],
    [1 / 24, 1 / 12, 1 / 6],
    [1 / 24, -1 / 12, 1 / 6],
    [0, 0, 1],
]
AT: list[list[float]] = [
    [1, 1, 1, 1, 1, 0],
    [0, 1, -1, 2, -2, 0],
    [0, 1, 1, 4, 4, 0],
    [0, 1, -1, 8, -8, 1],
]
GT, A = [list(row) for row in zip(*G, strict=True)], [list(row) for row in zip(*AT, strict=True)]
_patches_down, _patches_along = transform(BT), transform(BT, strung=True)
_errors_down, _errors_along = transform(A), transform(A, strung=True)
_tiles_down, _tiles_along = transform(AT), transform(AT, string=True)
_filters_in_by, _filters_out_by = transform(G), transform(GT)


@jit
def _filters_in(u: Any, w: Any, room: Any, flip: bool, lo: int, hi: int) -> None:
    """u[:, k] = G w[k] G' for filters lo to hi; turned round by half a circle if asked.

    room (27, C) holds the nine taps of all channels, then G's six rows of them.
    """
    channels = w.shape[1]
    line, place = 4 * channels, 4 * u.shape[1] * channels
    taps, mixed = room.ctypes.data, room.ctypes.data + 9 * line
    for k in range(lo, hi):
        for a in range(9):
            tap = 8 - a if flip else a
            for c in range(channels):
                room[tap, c] = w[k, c, a // 3, a % 3]
        for column in range(3):
            start = taps + column * line
            _filters_in_by(mixed + column * line, 3 * line, start, 3 * line, channels // 4)
        for row in range(PATCH):
            out = u.ctypes.data + PATCH * row * place + k * line
            _filters_in_by(out, place, mixed + 3 * row * line, line, channels // 4)


@jit
def _filters_out(w: Any, sums: Any, room: Any, lo: int, hi: int) -> None:
    """w[k] = G' (the sum of the workers' sums) G for filters lo to hi; room as above."""
    channels = w.shape[1]
    line, place = 4 * channels, 4 * w.shape[0] * channels
    mixed, taps = room.ctypes.data, room.ctypes.data + 18 * line
    for k in range(lo, hi):
        for other in range(1, sums.shape[0]):
            for at in range(PLACES):
                total, more = sums[0, at, k], sums[other, at, k]
                for c in range(channels):
                    total[c] += more[c]
        start = sums.ctypes.data + k * line
        for column in range(PATCH):
            _filters_out_by(
                mixed + column * line, PATCH * line, start + column * place, PATCH * place,
                channels // 4,
            )  # fmt: skip
        for row in range(TAPS):
            start = mixed + PATCH * row * line
            _filters_out_by(taps + 3 * row * line, line, start, line, channels // 4)
        for a in range(9):
            for c in range(channels):
                w[k, c, a // 3, a % 3] = room[18 + a, c]


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
def _patches_in(v: Any, planes: Any, first: int, row: int, at: int, top: int, left: int,
                wide: int, channel: int, lines: Any, mixed: Any) -> None:  # fmt: skip
    """The patches of one row of tiles, B' x B, for all channels from plane `first` on."""
    line = 4 * lines.shape[1]
    place = 4 * v.shape[1]
    for c in range(v.shape[1] // channel):
        _lift(lines, planes, first + c, TILE * row - top, left, PATCH)
        _patches_down(mixed.ctypes.data, line, lines.ctypes.data, line, lines.shape[1] // 4)
        out = v.ctypes.data + 4 * (c * channel + at)
        for i in range(PATCH):
            start = mixed.ctypes.data + i * line
            _patches_along(out + PATCH * i * place, place, start, 0, (wide + 3) // 4)


@jit
def _errors_in(m: Any, planes: Any, first: int, row: int, at: int, wide: int, channel: int,
               lines: Any, mixed: Any) -> None:  # fmt: skip
    """The errors of one row of tiles, A g A', for all filters from plane `first` on."""
    line = 4 * lines.shape[1]
    place = 4 * m.shape[1]
    for k in range(m.shape[1] // channel):
        _lift(lines, planes, first + k, TILE * row, 0, TILE)
        _errors_down(mixed.ctypes.data, line, lines.ctypes.data, line, lines.shape[1] // 4)
        out = m.ctypes.data + 4 * (k * channel + at)
        for i in range(PATCH):
            start = mixed.ctypes.data + i * line
            _errors_along(out + PATCH * i * place, place, start, 0, (wide + 3) // 4)


@jit
def _tiles_out(planes: Any, m: Any, first: int, row: int, at: int, wide: int, channel: int,
               bias: Any, activation: int, lines: Any, mixed: Any) -> None:  # fmt: skip
    """One row of tiles, A' m A, with bias and activation, for all filters from plane `first` on."""
    line, short = 4 * lines.shape[1], lines.shape[1]
    place = 4 * m.shape[1]
    width = planes.shape[2]
    top = np.uint64(TILE * row)
    for k in range(m.shape[1] // channel):
        given = m.ctypes.data + 4 * (k * channel + at)
        for i in range(PATCH):
            _tiles_down(mixed.ctypes.data + i * short, PATCH * short, given + i * place,
                        PATCH * place, (wide + 3) // 4)  # fmt: skip
        for i in range(TILE):
            start = mixed.ctypes.data + PATCH * i * short
            _tiles_along(lines.ctypes.data + i * line, 0, start, short, (wide + 3) // 4)
        shift = bias[k]
        for i in range(min(TILE, planes.shape[1] - TILE * row)):
            if activation == RELU:
                for x in range(width):
                    z = lines[i, x] + shift
                    planes[first + k, top + np.uint64(i), x] = z if z > 0 or z != z else 0
            else:
                for x in range(width):
                    planes[first + k, top + np.uint64(i), x] = lines[i, x] + shift
                if activation != NONE:
                    out = planes[first + k, TILE * row + i]
                    loops.sigmoid_here(out) if activation == SIGMOID else loops.tanh_here(out)


@jit
def _convolve(
    product: int, out: Any, x: Any, u: Any, turn: bool, bias: Any, activation: int, top: int,
    left: int, high: int, wide: int, v: Any, m: Any, lines: Any, mixed: Any, lo: int, hi: int,
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
            _patches_in(v, x, n * channels, i, r * wide, top, left, wide, channel, lines, mixed)
        for place in range(PLACES):
            of = v[place].reshape((channels, channel))[:, : rows * wide]
            into = m[place].reshape((filters, channel))[:, : rows * wide]
            multiply(product, into, u[place], turn, of, False, one, none)
        for r in range(rows):
            n, i = (start + r) // high, (start + r) % high
            _tiles_out(out, m, n * filters, i, r * wide, wide, channel, bias, activation, lines,
                       mixed)  # fmt: skip


@jit
def _weigh(
    product: int, sums: Any, x: Any, g: Any, top: int, left: int, high: int, wide: int,
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
            _patches_in(v, x, n * channels, i, r * wide, top, left, wide, channel, lines, mixed)
            _errors_in(m, g, n * filters, i, r * wide, wide, channel, lines, mixed)
        for place in range(PLACES):
            of = v[place].reshape((channels, channel))[:, : rows * wide]
            by = m[place].reshape((filters, channel))[:, : rows * wide]
            multiply(product, sums[place], by, False, of, True, one, one if start > lo else none)


def room(x: Spec, out: Spec) -> list[Spec]:
    """For every worker: patches and results in the bracket, lines, and room for filters.

    A channel's tiles lie four floats apart from the next one's, which its last four may touch.
    """
    _, channels, _, _ = x.shape
    images, filters, height, width = out.shape
    wide, rows = _tiles(width), images * _tiles(height)
    most = min(ROOM // (4 * PLACES * (channels + filters)), MOST_TILES) // wide
    at_once = max(1, min(most, -(-rows // workers()))) * wide + 4
    line = LANES * TILE * -(-wide // LANES) + LANES * TILE
    team = workers()
    return [
        x.like((team, PLACES, channels * at_once)),
        x.like((team, PLACES, filters * at_once)),
        x.like((team, PATCH, line)),
        x.like((team, PATCH, line)),
        x.like((team, 27 * max(channels, filters))),
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
    v, m, lines, mixed, rooms, u = scratch
    product = blas.address(x.dtype)
    high, wide = _tiles(out.shape[2]), _tiles(out.shape[3])
    blas.threads(1)

    def change(part: int, lo: int, hi: int) -> None:
        _filters_in(u, w, _room_for(w, rooms[part]), back, lo, hi)

    def work(part: int, lo: int, hi: int) -> None:
        _convolve(
            product, _planes(out), _planes(x), u, back, bias, activation, *padding[:2], high, wide,
            v[part], m[part], lines[part], mixed[part], lo, hi,
        )  # fmt: skip

    split_numbered(change, w.shape[0])
    split_numbered(work, out.shape[0] * high)


def _planes(images: Any) -> Any:
    return images.reshape(-1, *images.shape[2:])


def _room_for(w: Any, room: Any) -> Any:
    return room[: 27 * w.shape[1]].reshape(27, w.shape[1])


def weight_gradient(out: Any, x: Any, g: Any, padding: Any, scratch: tuple[Any, ...]) -> None:
    """out = the gradient of the filters."""
    v, m, lines, mixed, rooms, sums = scratch
    product = blas.address(x.dtype)
    high, wide = _tiles(g.shape[2]), _tiles(g.shape[3])
    blas.threads(1)

    def work(part: int, lo: int, hi: int) -> None:
        _weigh(
            product, sums[part], _planes(x), _planes(g), *padding[:2], high, wide,
            v[part], m[part], lines[part], mixed[part], lo, hi,
        )  # fmt: skip

    parts = split_numbered(work, g.shape[0] * high)

    def change(part: int, lo: int, hi: int) -> None:
        _filters_out(out, sums[:parts], _room_for(out, rooms[part]), lo, hi)

    split_numbered(change, out.shape[0])
