"""Transforms of Winograd's minimal filtering (see `layer`) for rows of tiles and for filters.

Images are first copied into vectors of channels, with zeros around them, some rows at a time; the
buffer has LANES channels of as many pixels. Transformed values lie position by position, tile by
tile, channel by channel, with the number of channels rounded up to whole vectors.
"""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.conv.winograd.transforms import transform
from pareo.backends.compiled.kernels.activations import NONE, RELU
from pareo.backends.compiled.kernels.channels_last import activate_rows
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.lanes import (
    LANES,
    VECTOR,
    pixels_to_vectors,
    vectors_to_pixels,
)

PATCH = 6
POSITIONS = PATCH * PATCH
AT_ONCE = 16  # channels whose filters are transformed at a time
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


_patches = transform(BT)
_gradients_4, _gradients_2 = transform(_a(4)), transform(_a(2))
_tiles_4, _tiles_2 = transform(_transposed(_a(4))), transform(_transposed(_a(2)))
_filters_in_3, _filters_in_5 = transform(_g(3)), transform(_g(5))
_filters_out_3, _filters_out_5 = transform(_transposed(_g(3))), transform(_transposed(_g(5)))


@jit
def offsets(height: int, width: int, padded: int) -> Array:
    """Where in a buffer of `padded` columns the pixels of an image lie, in bytes."""
    made = np.empty(height * width, np.int64)
    for row in range(height):
        for column in range(width):
            made[row * width + column] = VECTOR * (row * padded + column)
    return made


@jit
def _clear(buffer: Array, first: int, last: int) -> None:
    for p in range(first, last):
        for lane in range(LANES):
            buffer[p, lane] = 0


@jit
def _load_image(
    buffer: Array, padded: int, rows: int, planes: Array, p: int, channels: int, top: int,
    left: int, places: Array,
) -> None:  # fmt: skip
    """The rows from `top` on of planes p to p + channels, `left` columns into the buffer."""
    height, width = planes.shape[1], planes.shape[2]
    first, last = max(0, -top), min(rows, height - top)
    if first >= last:
        _clear(buffer, 0, rows * padded)
        return
    _clear(buffer, 0, first * padded)
    _clear(buffer, last * padded, rows * padded)
    for row in range(first, last):
        _clear(buffer, row * padded, row * padded + left)
        _clear(buffer, row * padded + left + width, (row + 1) * padded)
    start, count = (top + first) * width, (last - first) * width
    if count < LANES:
        for q in range(count):
            at = (first + q // width) * padded + left + q % width
            for i in range(LANES):
                row, column = (start + q) // width, (start + q) % width
                buffer[at, i] = planes[p + min(i, channels - 1), row, column]
        return
    into = buffer.ctypes.data + VECTOR * (first * padded + left)
    gap = 4 * height * width
    source = planes.ctypes.data + p * gap + 4 * start
    for q in range(0, count - LANES + 1, LANES):
        pixels_to_vectors(into, places.ctypes.data + 8 * q, source + 4 * q, gap, channels)
    if count % LANES:  # the last ones once more, with those that are left
        q = count - LANES
        pixels_to_vectors(into, places.ctypes.data + 8 * q, source + 4 * q, gap, channels)


@jit
def _store_image(
    planes: Array, p: int, channels: int, top: int, rows: int, buffer: Array, padded: int,
    bias: Array, activation: int, places: Array,
) -> None:  # fmt: skip
    """The rows from `top` on of planes p to p + channels, with bias and activation."""
    height, width = planes.shape[1], planes.shape[2]
    rows = min(rows, height - top)
    start, count = top * width, rows * width
    is_relu = activation == RELU
    if count < LANES:
        for q in range(count):
            for i in range(channels):
                z = buffer[q // width * padded + q % width, i] + bias[i]
                if is_relu and z <= 0:
                    z = buffer.dtype.type(0)
                planes[p + i, (start + q) // width, (start + q) % width] = z
    else:
        gap, given = 4 * height * width, buffer.ctypes.data
        target, shift = planes.ctypes.data + p * gap + 4 * start, bias.ctypes.data
        for q in range(0, count - LANES + 1, LANES):
            at = places.ctypes.data + 8 * q
            vectors_to_pixels(target + 4 * q, gap, channels, given, at, shift, is_relu)
        if count % LANES:
            q = count - LANES
            at = places.ctypes.data + 8 * q
            vectors_to_pixels(target + 4 * q, gap, channels, given, at, shift, is_relu)
    if activation not in (NONE, RELU):
        activate_rows(planes, p, channels, top, rows, activation)


@jit
def transform_patches(
    v: Array, at: int, planes: Array, channels: int, start: int, rows: int, high: int, top: int,
    left: int, tile: int, wide: int, buffer: Array, places: Array,
) -> None:  # fmt: skip
    """Transform the patches of rows of tiles, B' x B; an image has `high` rows of `wide` tiles.

    They become the rows from `at` on of v.
    """
    whole, place = -(-channels // LANES) * LANES, v.strides[0]
    padded = tile * (wide - 1) + PATCH
    line = VECTOR * padded
    done = 0
    while done < rows:
        n, row = (start + done) // high, (start + done) % high
        count = min(high - row, rows - done)
        for c in range(0, channels, LANES):
            _load_image(
                buffer, padded, tile * (count - 1) + PATCH, planes, n * channels + c,
                min(LANES, channels - c), tile * row - top, left, places,
            )  # fmt: skip
            for i in range(count):
                into = v.ctypes.data + 4 * ((at + done + i) * wide * whole + c)
                given = buffer.ctypes.data + i * tile * line
                _patches(
                    into, PATCH * place, place, 4 * whole, given, line, VECTOR, tile * VECTOR, wide
                )
        done += count


@jit
def transform_gradients(
    m: Array, at: int, planes: Array, filters: int, start: int, rows: int, high: int, tile: int,
    wide: int, buffer: Array, places: Array,
) -> None:  # fmt: skip
    """Transform the gradients of rows of tiles likewise, A g A'."""
    whole, place = -(-filters // LANES) * LANES, m.strides[0]
    padded = tile * wide
    line = VECTOR * padded
    done = 0
    while done < rows:
        n, row = (start + done) // high, (start + done) % high
        count = min(high - row, rows - done)
        for k in range(0, filters, LANES):
            _load_image(
                buffer, padded, tile * count, planes, n * filters + k, min(LANES, filters - k),
                tile * row, 0, places,
            )  # fmt: skip
            for i in range(count):
                into = m.ctypes.data + 4 * ((at + done + i) * wide * whole + k)
                given = buffer.ctypes.data + i * tile * line
                if tile == 4:
                    _gradients_4(
                        into, PATCH * place, place, 4 * whole, given, line, VECTOR, tile * VECTOR,
                        wide,
                    )  # fmt: skip
                else:
                    _gradients_2(
                        into, PATCH * place, place, 4 * whole, given, line, VECTOR, tile * VECTOR,
                        wide,
                    )  # fmt: skip
        done += count


@jit
def inverse_transform_tiles(
    planes: Array, m: Array, filters: int, first: int, last: int, start: int, rows: int, high: int,
    tile: int, wide: int, bias: Array, activation: int, buffer: Array, places: Array,
) -> None:  # fmt: skip
    """Rows of tiles, A' m A, with bias and activation, for filters first to last, which m has.

    An image has so many filters; bias has whole vectors.
    """
    whole, place = -(-(last - first) // LANES) * LANES, m.strides[0]
    padded = tile * wide
    line = VECTOR * padded
    done = 0
    while done < rows:
        n, row = (start + done) // high, (start + done) % high
        count = min(high - row, rows - done)
        for k in range(first, last, LANES):
            for i in range(count):
                given = m.ctypes.data + 4 * ((done + i) * wide * whole + k - first)
                into = buffer.ctypes.data + i * tile * line
                if tile == 4:
                    _tiles_4(
                        into, line, VECTOR, tile * VECTOR, given, PATCH * place, place, 4 * whole,
                        wide,
                    )  # fmt: skip
                else:
                    _tiles_2(
                        into, line, VECTOR, tile * VECTOR, given, PATCH * place, place, 4 * whole,
                        wide,
                    )  # fmt: skip
            _store_image(
                planes, n * filters + k, min(LANES, last - k), tile * row, tile * count, buffer,
                padded, bias[k:], activation, places,
            )  # fmt: skip
        done += count


@jit
def _load_filters(
    buffer: Array, w: Array, backward: bool, first: int, count: int, depth: int, places: Array
) -> None:
    """Taps of LANES filters as vectors: of channels depth to depth + count, tap by tap.

    For `backward`, channels and filters change roles, and the taps are in reverse order. `places`
    has where the taps go, and that of a block after them.
    """
    filters, channels, taps = w.shape
    outputs = channels if backward else filters
    own, into, at = min(LANES, outputs - first), buffer.ctypes.data, places.ctypes.data
    if not backward and count * taps >= LANES:
        gap, source = 4 * channels * taps, w.ctypes.data + 4 * (first * channels + depth) * taps
        for q in range(0, count * taps - LANES + 1, LANES):
            pixels_to_vectors(into, at + 8 * q, source + 4 * q, gap, own)
        q = count * taps - LANES
        if q % LANES:
            pixels_to_vectors(into, at + 8 * q, source + 4 * q, gap, own)
        return
    for d in range(count):
        if backward and (depth + d < filters - 1 or first + LANES < channels):
            # Reads a few numbers after the last channel's, which are the next filter's.
            source = w.ctypes.data + 4 * ((depth + d) * channels + first) * taps
            for q in range(0, taps, LANES):
                at_tap = at + 8 * (d * (taps + LANES) + q)
                pixels_to_vectors(into, at_tap, source + 4 * q, 4 * taps, own)
            continue
        for lane in range(LANES):
            o = min(first + lane, outputs - 1)
            for a in range(taps):
                value = w[depth + d, o, taps - 1 - a] if backward else w[o, depth + d, a]
                buffer[d * taps + a, lane] = value


@jit
def filter_offsets(taps: int, backward: bool) -> Array:
    """Where the taps of AT_ONCE channels' filters go in a buffer, in bytes.

    For `backward`, the vectors after the last tap of a filter go to the end of the buffer.
    """
    if not backward:
        return np.arange(AT_ONCE * taps) * VECTOR
    made = np.empty((AT_ONCE, taps + LANES), np.int64)
    for d in range(AT_ONCE):
        for a in range(taps + LANES):
            made[d, a] = VECTOR * (d * taps + taps - 1 - a if a < taps else AT_ONCE * taps)
    return made.reshape(-1)


@jit
def transform_filters(
    u: Array, at: int, wide: int, w: Array, side: int, backward: bool, first: int, depth: int,
    count: int, buffer: Array, places: Array,
) -> None:  # fmt: skip
    """u[:, at:] = G w G' for LANES filters from the first on, and `count` channels from `depth` on.

    For `backward`, channels and filters change roles, and filters are rotated. Channels are `wide`
    numbers apart. w has its taps in one axis of side x side; buffer has AT_ONCE channels' filters,
    and one vector more. What is computed for filters that do not exist is never read.
    """
    place, taps, given = u.strides[0], w.shape[2], buffer.ctypes.data
    for start in range(0, count, AT_ONCE):
        now = min(AT_ONCE, count - start)
        _load_filters(buffer, w, backward, first, now, depth + start, places)
        into = u.ctypes.data + 4 * (at + start * wide)
        if side == 3:
            _filters_in_3(
                into, PATCH * place, place, 4 * wide, given, 3 * VECTOR, VECTOR, taps * VECTOR, now
            )
        else:
            _filters_in_5(
                into, PATCH * place, place, 4 * wide, given, 5 * VECTOR, VECTOR, taps * VECTOR, now
            )


@jit
def filters_backward(
    w: Array, side: int, first: int, depth: int, count: int, sums: Array, at: int, wide: int,
    buffer: Array, places: Array, nothing: Array,
) -> None:  # fmt: skip
    """w = G' sums[:, at:] G for LANES filters from the first on, `count` channels from `depth` on.

    The rest as above; `nothing` is a vector of zeros.
    """
    filters, channels, taps = w.shape
    place, into = sums.strides[0], buffer.ctypes.data
    own = min(LANES, filters - first)
    for start in range(0, count, AT_ONCE):
        now = min(AT_ONCE, count - start)
        given = sums.ctypes.data + 4 * (at + start * wide)
        if side == 3:
            _filters_out_3(
                into, 3 * VECTOR, VECTOR, taps * VECTOR, given, PATCH * place, place, 4 * wide, now
            )
        else:
            _filters_out_5(
                into, 5 * VECTOR, VECTOR, taps * VECTOR, given, PATCH * place, place, 4 * wide, now
            )
        if now * taps < LANES:
            for d in range(now):
                for a in range(taps):
                    for lane in range(own):
                        w[first + lane, depth + start + d, a] = buffer[d * taps + a, lane]
            continue
        gap, zeros = 4 * channels * taps, nothing.ctypes.data
        target = w.ctypes.data + 4 * (first * channels + depth + start) * taps
        for q in range(0, now * taps - LANES + 1, LANES):
            table = places.ctypes.data + 8 * q
            vectors_to_pixels(target + 4 * q, gap, own, into, table, zeros, 0)
        q = now * taps - LANES
        if q % LANES:
            table = places.ctypes.data + 8 * q
            vectors_to_pixels(target + 4 * q, gap, own, into, table, zeros, 0)
