"""3x3 and 5x5 convolutions with a fraction of the multiplications: Winograd's minimal filtering.

A patch of 6x6 pixels is enough for a tile of 4x4 results of a 3x3 filter, or of 2x2 of a 5x5 one.
With matrices A, B and G that come from evaluating polynomials at 0, 1, -1, 2, -2 and infinity, a
tile is A' [(G w G') * (B' x B)] A. The bracket, which is the transformed domain, has 36 positions;
the direct sum has 144 or 100 products. At each position, the sum over channels is one matrix
product: tiles by channels with channels by filters. The gradient of the filters is
G' [the sum over tiles of (A g A') * (B' x B)] G.

This costs accuracy: the matrices contain numbers as large as 16 and as small as 1/24, so that
float32 rounds several times as much as in the direct sum (the tests of this module say how much).

The work is cut into rows of tiles, some hundred tiles at a time, with buffers for each worker.
Where there are few tiles and many filters, it is cut into panels of filters instead: transformed
filters have four times the numbers, and those at hand then stay in the cache. The transforms are in
`loops`, the products in `products`. A vector register holds a pixel of several channels throughout.
"""

from collections.abc import Callable

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import Sizes
from pareo.backends.compiled.conv.winograd.loops import (
    AT_ONCE,
    LANES,
    PATCH,
    POSITIONS,
    filter_offsets,
    filters_backward,
    inverse_transform_tiles,
    offsets,
    transform_filters,
    transform_gradients,
    transform_patches,
)
from pareo.backends.compiled.conv.winograd.products import add_products, multiply
from pareo.backends.compiled.kernels.activations import NONE
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.register_products import WIDE
from pareo.backends.compiled.runtime.thread_pool import split_numbered, workers
from pareo.spec import Spec

# The side of a tile, by the filters' taps.
TILES: dict[Sizes, int] = {(3, 3): 4, (5, 5): 2}
LEAST_CHANNELS = 8  # and filters: with fewer, the transforms take most of the time
LEAST_TILES = 4  # of all images: with fewer, the filters' transform does
BUFFER_BYTES = 16 << 20  # for the transformed tiles at hand, for each worker
MOST_TILES = 512  # at a time
# If the transformed filters are smaller than this, they stay in the cache of a core, and so should
# the tiles at hand. Otherwise many tiles at a time are worth more: the filters are read less often.
CACHED_FILTER_BYTES = 640 << 10
LEAST_AT_ONCE = 32
# Panels of filters are better than rows of tiles if the transformed filters are larger than the
# cache of a core, and if tiles are so few that they can be read for each panel.
LARGE_FILTER_BYTES = 1 << 20
FEW_TILES = 256
DEPTH = 128  # channels of a product at a time, whose filters stay in the fastest cache
SLICE = 64  # channels of a panel at a time, whose transformed filters stay in the second cache


def suits(
    filters: Sizes,
    out: Spec | Array,
    *,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> bool:
    """Whether these shapes are worth it; `out` has the outputs or their gradients."""
    plain = tuple(stride) == (1, 1) == tuple(dilation) and groups == 1
    tile = TILES.get(tuple(filters[2:]))
    if out.dtype != np.float32 or tile is None or not plain or max(padding) >= filters[2]:
        return False
    images, _, height, width = out.shape
    enough = images * -(-height // tile) * -(-width // tile) >= LEAST_TILES
    return enough and min(filters[:2]) >= LEAST_CHANNELS


@jit
def _whole_vectors(channels: int) -> int:
    """A number of channels, rounded up; what is computed for those beyond is never read."""
    return -(-channels // LANES) * LANES


@jit
def _convolve(
    out: Array, x: Array, u: Array, channels: int, filters: int, bias: Array, activation: int,
    top: int, left: int, tile: int, high: int, wide: int, at_once: int, v: Array, m: Array,
    buffer: Array, lo: int, hi: int,
) -> None:  # fmt: skip
    """Rows lo to hi of all tiles, `at_once` at a time; an image has `high` rows of `wide` tiles."""
    given = offsets(x.shape[1], x.shape[2], tile * (wide - 1) + PATCH)
    made = offsets(out.shape[1], out.shape[2], tile * wide)
    deep, whole = _whole_vectors(channels), _whole_vectors(filters)
    for start in range(lo, hi, at_once):
        rows = min(at_once, hi - start)
        transform_patches(
            v, 0, x, channels, start, rows, high, top, left, tile, wide, buffer, given
        )  # fmt: skip
        for position in range(POSITIONS):
            into, of, by = (
                m[position].ctypes.data, v[position].ctypes.data, u[position].ctypes.data,
            )  # fmt: skip
            for first in range(0, channels, DEPTH):
                count = min(DEPTH, channels - first)
                for column in range(0, whole, WIDE):
                    panel = min(WIDE, whole - column)
                    multiply(
                        into + 4 * column, whole, first, of + 4 * first, deep,
                        by + 4 * (column * channels + first * panel), rows * wide, count, panel,
                    )  # fmt: skip
        inverse_transform_tiles(
            out, m, filters, 0, filters, start, rows, high, tile, wide, bias, activation, buffer,
            made,
        )  # fmt: skip


@jit
def _convolve_panels(
    out: Array, v: Array, w: Array, side: int, backward: bool, channels: int, filters: int,
    bias: Array, activation: int, tile: int, high: int, wide: int, rows: int, u: Array, m: Array,
    buffer: Array, filter_buffer: Array, lo: int, hi: int,
) -> None:  # fmt: skip
    """Panels lo to hi of filters, for all `rows` rows of tiles, whose patches are in v."""
    made = offsets(out.shape[1], out.shape[2], tile * wide)
    places = filter_offsets(w.shape[2], backward)
    deep = _whole_vectors(channels)
    for first in range(lo * WIDE, min(hi * WIDE, filters), WIDE):
        last = min(first + WIDE, filters)
        panel = _whole_vectors(last - first)
        for start in range(0, channels, SLICE):
            count = min(SLICE, channels - start)
            for at in range(0, panel, LANES):
                transform_filters(
                    u, at, panel, w, side, backward, first + at, start, count, filter_buffer, places
                )
            for position in range(POSITIONS):
                multiply(
                    m[position].ctypes.data, panel, start, v[position].ctypes.data + 4 * start,
                    deep, u[position].ctypes.data, rows * wide, count, panel,
                )  # fmt: skip
        inverse_transform_tiles(
            out, m, filters, first, last, 0, rows, high, tile, wide, bias, activation, buffer, made
        )


@jit
def _sum_products(
    sums: Array, channels: int, filters: int, x: Array, g: Array, top: int, left: int, tile: int,
    high: int, wide: int, at_once: int, v: Array, m: Array, buffer: Array, lo: int, hi: int,
) -> None:  # fmt: skip
    """sums = the filters' transformed gradient, from rows lo to hi of all tiles."""
    given = offsets(x.shape[1], x.shape[2], tile * (wide - 1) + PATCH)
    gradients = offsets(g.shape[1], g.shape[2], tile * wide)
    deep, whole = _whole_vectors(channels), _whole_vectors(filters)
    if lo == hi:
        sums[:] = 0
    for start in range(lo, hi, at_once):
        rows = min(at_once, hi - start)
        transform_patches(
            v, 0, x, channels, start, rows, high, top, left, tile, wide, buffer, given
        )  # fmt: skip
        transform_gradients(m, 0, g, filters, start, rows, high, tile, wide, buffer, gradients)
        for position in range(POSITIONS):
            into, of, by = (
                sums[position].ctypes.data, v[position].ctypes.data, m[position].ctypes.data,
            )  # fmt: skip
            for first in range(0, rows * wide, DEPTH):
                add_products(
                    into, whole, first + start - lo, of + 4 * first * deep, deep,
                    by + 4 * first * whole, whole, channels, whole, min(DEPTH, rows * wide - first),
                )  # fmt: skip


@jit
def _sum_panels(
    w: Array, side: int, v: Array, m: Array, tiles: int, sums: Array, filter_buffer: Array,
    lo: int, hi: int,
) -> None:  # fmt: skip
    """w = panels lo to hi of the filters' gradient, from patches v and errors m of all tiles."""
    filters, channels = w.shape[0], w.shape[1]
    deep, whole = _whole_vectors(channels), _whole_vectors(filters)
    places, nothing = filter_offsets(w.shape[2], False), np.zeros(LANES, w.dtype)
    for first in range(lo * WIDE, min(hi * WIDE, filters), WIDE):
        panel = _whole_vectors(min(WIDE, filters - first))
        for start in range(0, channels, SLICE):
            count = min(SLICE, channels - start)
            for position in range(POSITIONS):
                add_products(
                    sums[position].ctypes.data, panel, 0, v[position].ctypes.data + 4 * start, deep,
                    m[position].ctypes.data + 4 * first, whole, count, panel, tiles,
                )  # fmt: skip
            for at in range(0, panel, LANES):
                filters_backward(
                    w, side, first + at, start, count, sums, at, panel, filter_buffer, places,
                    nothing,
                )  # fmt: skip


@jit
def _transform_all_filters(
    u: Array, w: Array, side: int, backward: bool, buffer: Array, lo: int, hi: int
) -> None:
    """u = all channels of vectors lo to hi of filters, in panels that `multiply` reads."""
    depth, filters = (w.shape[0], w.shape[1]) if backward else (w.shape[1], w.shape[0])
    whole, places = _whole_vectors(filters), filter_offsets(w.shape[2], backward)
    for first in range(lo * LANES, min(hi * LANES, filters), LANES):
        start = first // WIDE * WIDE
        panel, at = min(WIDE, whole - start), start * depth + first - start
        transform_filters(u, at, panel, w, side, backward, first, 0, depth, buffer, places)


@jit
def _gather_sums(w: Array, side: int, sums: Array, buffer: Array, lo: int, hi: int) -> None:
    """w = vectors lo to hi of the filters' gradient, from the sums of all workers."""
    filters, channels = w.shape[0], w.shape[1]
    whole, places = _whole_vectors(filters), filter_offsets(w.shape[2], False)
    nothing = np.zeros(LANES, w.dtype)
    for first in range(lo * LANES, min(hi * LANES, filters), LANES):
        for other in range(1, sums.shape[0]):
            for position in range(POSITIONS):
                total, more = sums[0, position], sums[other, position]
                for c in range(channels):
                    at = c * whole + first
                    for lane in range(LANES):
                        total[at + lane] += more[at + lane]
        filters_backward(
            w, side, first, 0, channels, sums[0], first, whole, buffer, places, nothing
        )


@jit
def _transform_rows(
    v: Array, m: Array, x: Array, g: Array, channels: int, filters: int, top: int, left: int,
    tile: int, high: int, wide: int, has_errors: bool, buffer: Array, lo: int, hi: int,
) -> None:  # fmt: skip
    """Rows lo to hi of all tiles: the patches v, and the errors m if there are any."""
    given = offsets(x.shape[1], x.shape[2], tile * (wide - 1) + PATCH)
    transform_patches(
        v, lo, x, channels, lo, hi - lo, high, top, left, tile, wide, buffer, given
    )  # fmt: skip
    if has_errors:
        gradients = offsets(g.shape[1], g.shape[2], tile * wide)
        transform_gradients(m, lo, g, filters, lo, hi - lo, high, tile, wide, buffer, gradients)


def _tile_grid(images: Spec | Array, taps: int) -> tuple[int, int, int]:
    """The side of a tile, and the numbers of rows and columns of tiles of an image."""
    tile = TILES[taps, taps]
    return tile, -(-images.shape[2] // tile), -(-images.shape[3] // tile)


def _by_panels(channels: int, filters: int, out: Spec | Array, taps: int) -> bool:
    """Whether the work is cut into panels of filters, not into rows of tiles."""
    _, high, wide = _tile_grid(out, taps)
    is_large = 4 * POSITIONS * channels * filters > LARGE_FILTER_BYTES
    return is_large and out.shape[0] * high * wide <= FEW_TILES


def _at_once(channels: int, filters: int, out: Spec | Array, taps: int) -> int:
    """How many rows of tiles are transformed at a time."""
    _, high, wide = _tile_grid(out, taps)
    each = 4 * POSITIONS * (_padded(channels) + _padded(filters))
    most = min(BUFFER_BYTES // each, MOST_TILES)
    if 4 * POSITIONS * channels * filters <= CACHED_FILTER_BYTES:
        most = min(most, max(2 * CACHED_FILTER_BYTES // each, LEAST_AT_ONCE))
    return max(1, min(most // wide, -(-out.shape[0] * high // workers())))


_padded: Callable[[int], int] = _whole_vectors.py_func


def _positions(x: Spec, *sizes: int) -> Spec:
    """A float for each position and further sizes; and a vector more between two positions.

    Without it, the positions of a tile might compete for the same places in the cache.
    """
    *counts, numbers = sizes
    return x.like((*counts, POSITIONS, numbers + LANES))


def scratch(x: Spec, out: Spec, taps: int) -> list[Spec]:
    """Of a convolution of x: transformed patches, results and filters, buffers for both."""
    channels, filters, count = x.shape[1], out.shape[1], workers()
    _, high, wide = _tile_grid(out, taps)
    deep, whole = _padded(channels), _padded(filters)
    if _by_panels(channels, filters, out, taps):
        tiles = out.shape[0] * high * wide
        return [
            _positions(x, 1, tiles * deep),
            _positions(x, count, tiles * WIDE),
            _positions(x, count, SLICE * WIDE),
            *_buffers(x, out, taps, high),
        ]
    rows = _at_once(channels, filters, out, taps)
    return [
        _positions(x, count, rows * wide * deep),
        _positions(x, count, rows * wide * whole),
        _positions(x, 1, channels * whole),
        *_buffers(x, out, taps, min(rows, high)),
    ]


def gradient_scratch(x: Spec, g: Spec, taps: int) -> list[Spec]:
    """Of the filters' gradient: transformed patches, errors and sums, and the same buffers."""
    channels, filters, count = x.shape[1], g.shape[1], workers()
    _, high, wide = _tile_grid(g, taps)
    deep, whole = _padded(channels), _padded(filters)
    if _by_panels(channels, filters, g, taps):
        tiles = g.shape[0] * high * wide
        return [
            _positions(x, 1, tiles * deep),
            _positions(x, 1, tiles * whole),
            _positions(x, count, SLICE * WIDE),
            *_buffers(x, g, taps, high),
        ]
    rows = _at_once(channels, filters, g, taps)
    return [
        _positions(x, count, rows * wide * deep),
        _positions(x, count, rows * wide * whole),
        _positions(x, count, channels * whole),
        *_buffers(x, g, taps, min(rows, high)),
    ]


def _buffers(x: Spec, out: Spec, taps: int, rows: int) -> list[Spec]:
    """For every worker: vectors of as many rows of tiles, and of the taps of some filters."""
    tile, _, wide = _tile_grid(out, taps)
    lines, padded = tile * (rows - 1) + PATCH, tile * (wide - 1) + PATCH
    return [
        x.like((workers(), lines * padded, LANES)),
        x.like((workers(), AT_ONCE * taps * taps + 1, LANES)),
    ]


def forward(
    out: Array,
    x: Array,
    w: Array,
    b: Array | None,
    activation: int,
    padding: Sizes,
    scratch: tuple[Array, ...],
) -> None:
    """out = activation(conv(x, w) + b); without a bias b is None."""
    _run(out, x, w, False, b, activation, padding, scratch)


def input_gradient(
    out: Array, g: Array, w: Array, padding: Sizes, scratch: tuple[Array, ...]
) -> None:
    """out = the gradient of the images: g convolved with the filters rotated by 180 degrees."""
    top, left = w.shape[2] - 1 - padding[0], w.shape[2] - 1 - padding[1]
    _run(out, g, w, True, None, NONE, (top, left), scratch)


def _run(
    out: Array, x: Array, w: Array, backward: bool, b: Array | None,
    activation: int, padding: Sizes, scratch: tuple[Array, ...],
) -> None:  # fmt: skip
    v, m, u, buffers, filter_buffers = scratch
    side = w.shape[2]
    tile, high, wide = _tile_grid(out, side)
    channels, filters, taps = x.shape[1], out.shape[1], _taps(w)
    bias = np.zeros(_padded(filters), x.dtype)
    if b is not None:
        bias[:filters] = b
    if _by_panels(channels, filters, out, side):
        _transform_shared(v[0], m[0], x, out, padding, side, False, buffers)

        def panels(part: int, lo: int, hi: int) -> None:
            _convolve_panels(
                _planes(out), v[0], taps, side, backward, channels, filters, bias, activation, tile,
                high, wide, out.shape[0] * high, u[part], m[part], buffers[part],
                filter_buffers[part], lo, hi,
            )  # fmt: skip

        split_numbered(panels, -(-filters // WIDE))
        return
    at_once = _at_once(channels, filters, out, side)

    def transform(part: int, lo: int, hi: int) -> None:
        _transform_all_filters(u[0], taps, side, backward, filter_buffers[part], lo, hi)

    def work(part: int, lo: int, hi: int) -> None:
        _convolve(
            _planes(out), _planes(x), u[0], channels, filters, bias, activation, *padding[:2], tile,
            high, wide, at_once, v[part], m[part], buffers[part], lo, hi,
        )  # fmt: skip

    split_numbered(transform, _padded(filters) // LANES)
    split_numbered(work, out.shape[0] * high)


def weight_gradient(
    out: Array, x: Array, g: Array, padding: Sizes, scratch: tuple[Array, ...]
) -> None:
    """out = the gradient of the filters."""
    v, m, sums, buffers, filter_buffers = scratch
    filters, channels, side, _ = out.shape
    tile, high, wide = _tile_grid(g, side)
    taps = _taps(out)
    if _by_panels(channels, filters, g, side):
        _transform_shared(v[0], m[0], x, g, padding, side, True, buffers)

        def panels(part: int, lo: int, hi: int) -> None:
            tiles = g.shape[0] * high * wide
            _sum_panels(taps, side, v[0], m[0], tiles, sums[part], filter_buffers[part], lo, hi)

        split_numbered(panels, -(-filters // WIDE))
        return
    at_once = _at_once(channels, filters, g, side)

    def work(part: int, lo: int, hi: int) -> None:
        _sum_products(
            sums[part], channels, filters, _planes(x), _planes(g), *padding[:2], tile, high, wide,
            at_once, v[part], m[part], buffers[part], lo, hi,
        )  # fmt: skip

    parts = split_numbered(work, g.shape[0] * high)

    def gather(part: int, lo: int, hi: int) -> None:
        _gather_sums(taps, side, sums[:parts], filter_buffers[part], lo, hi)

    split_numbered(gather, _padded(filters) // LANES)


def _transform_shared(
    v: Array, m: Array, x: Array, g: Array, padding: Sizes, side: int, has_errors: bool,
    buffers: Array,
) -> None:  # fmt: skip
    """The patches of all tiles, and the errors g if there are any."""
    tile, high, wide = _tile_grid(g, side)

    def work(part: int, lo: int, hi: int) -> None:
        _transform_rows(
            v, m, _planes(x), _planes(g), x.shape[1], g.shape[1], *padding[:2], tile, high, wide,
            has_errors, buffers[part], lo, hi,
        )  # fmt: skip

    split_numbered(work, g.shape[0] * high)


def _planes(images: Array) -> Array:
    return images.reshape(-1, *images.shape[2:])


def _taps(w: Array) -> Array:
    """Filters with all taps in one axis."""
    return w.reshape(*w.shape[:2], w.shape[2] * w.shape[3])
