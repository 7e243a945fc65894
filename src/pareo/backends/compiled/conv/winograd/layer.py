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
filters have four times the numbers, and those at hand then stay in the cache. The two ways are in
`by_rows` and `by_panels`, the transforms in `loops`, the products in `products`. A vector register
holds a pixel of several channels throughout.
"""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import Sizes
from pareo.backends.compiled.conv.winograd import by_panels, by_rows
from pareo.backends.compiled.conv.winograd.by_panels import SLICE
from pareo.backends.compiled.conv.winograd.loops import (
    AT_ONCE,
    LANES,
    PATCH,
    POSITIONS,
)
from pareo.backends.compiled.kernels.activations import NONE
from pareo.backends.compiled.runtime.arrays import copy
from pareo.backends.compiled.runtime.lanes import padded_channels
from pareo.backends.compiled.runtime.register_products import WIDE
from pareo.backends.compiled.runtime.thread_pool import least_items, split_numbered, workers
from pareo.spec import Spec

# The side of a tile, by the filters' taps.
TILES: dict[Sizes, int] = {(3, 3): 4, (5, 5): 2}
LEAST_CHANNELS = 8  # and filters: with fewer, the transforms take most of the time
LEAST_TILES = 4  # of all images: with fewer, the filters' transform does
# For the transformed tiles at hand, for each worker. As many bytes as the transformed filters take
# are best: the filters are read again for each of them, but fewer tiles stay in a nearer cache.
LEAST_BUFFER_BYTES, MOST_BUFFER_BYTES = 256 << 10, 16 << 20
MOST_TILES = 512  # at a time
TRANSFORM_FLOPS = 64  # as long as which the transform of a filter's number takes
# Panels of filters are better than rows of tiles if the transformed filters are larger than the
# cache of a core, and if tiles are so few that they can be read for each panel.
LARGE_FILTER_BYTES = 1 << 20
FEW_TILES = 256


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
    each = 4 * POSITIONS * (padded_channels(channels) + padded_channels(filters)) * wide
    filter_bytes = 4 * POSITIONS * channels * filters
    most = min(max(filter_bytes, LEAST_BUFFER_BYTES), MOST_BUFFER_BYTES, MOST_TILES * each // wide)
    return max(1, min(round(most / each), -(-out.shape[0] * high // workers())))


def _positions(x: Spec, *sizes: int) -> Spec:
    """A float for each position and further sizes; and a vector more between two positions.

    Without it, the positions of a tile might compete for the same places in the cache.
    """
    *counts, numbers = sizes
    return x.like((*counts, POSITIONS, numbers + LANES))


def scratch(x: Spec, out: Spec, taps: int) -> list[Spec]:
    """Of a convolution of x: transformed patches, results and filters, buffers for both."""
    return _scratch(x, out, taps, has_errors=False)


def gradient_scratch(x: Spec, g: Spec, taps: int) -> list[Spec]:
    """Of the filters' gradient: transformed patches, errors and sums, and the same buffers."""
    return _scratch(x, g, taps, has_errors=True)


def _scratch(x: Spec, out: Spec, taps: int, has_errors: bool) -> list[Spec]:
    channels, filters, count = x.shape[1], out.shape[1], workers()
    _, high, wide = _tile_grid(out, taps)
    deep, whole = padded_channels(channels), padded_channels(filters)
    if _by_panels(channels, filters, out, taps):  # all tiles, and some filters for each worker
        tiles = out.shape[0] * high * wide
        return [
            _positions(x, 1, tiles * deep),
            _positions(x, 1, tiles * whole) if has_errors else _positions(x, count, tiles * WIDE),
            _positions(x, count, SLICE * WIDE),
            *_buffers(x, out, taps, high),
        ]
    rows = _at_once(channels, filters, out, taps)  # some tiles for each worker, and all filters
    return [
        _positions(x, count, rows * wide * deep),
        _positions(x, count, rows * wide * whole),
        _positions(x, count if has_errors else 1, channels * whole),
        *_buffers(x, out, taps, min(rows, high)),
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
    bias = np.zeros(padded_channels(filters), x.dtype)
    if b is not None:
        copy(bias[:filters], b)
    if _by_panels(channels, filters, out, side):
        _transform_shared(v[0], m[0], x, out, padding, side, False, buffers)

        def panels(part: int, lo: int, hi: int) -> None:
            by_panels.convolve(
                _planes(out), v[0], taps, side, backward, channels, filters, bias, activation, tile,
                high, wide, out.shape[0] * high, u[part], m[part], buffers[part],
                filter_buffers[part], lo, hi,
            )  # fmt: skip

        split_numbered(panels, -(-filters // WIDE))
        return
    at_once = _at_once(channels, filters, out, side)

    def transform(part: int, lo: int, hi: int) -> None:
        by_rows.transform_all_filters(u[0], taps, side, backward, filter_buffers[part], lo, hi)

    def work(part: int, lo: int, hi: int) -> None:
        by_rows.convolve(
            _planes(out), _planes(x), u[0], channels, filters, bias, activation, *padding[:2], tile,
            high, wide, at_once, v[part], m[part], buffers[part], lo, hi,
        )  # fmt: skip

    vectors, rows = padded_channels(filters) // LANES, out.shape[0] * high
    split_numbered(transform, vectors, least_items(vectors, TRANSFORM_FLOPS * w.size))
    split_numbered(work, rows, least_items(rows, 2 * out.size * w[0].size))


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
            by_panels.sum_products(
                taps, side, v[0], m[0], tiles, sums[part], filter_buffers[part], lo, hi
            )

        split_numbered(panels, -(-filters // WIDE))
        return
    at_once = _at_once(channels, filters, g, side)

    def work(part: int, lo: int, hi: int) -> None:
        by_rows.sum_products(
            sums[part], channels, filters, _planes(x), _planes(g), *padding[:2], tile, high, wide,
            at_once, v[part], m[part], buffers[part], lo, hi,
        )  # fmt: skip

    rows, vectors = g.shape[0] * high, padded_channels(filters) // LANES
    parts = split_numbered(work, rows, least_items(rows, 2 * g.size * out[0].size))

    def gather(part: int, lo: int, hi: int) -> None:
        by_rows.gather_sums(taps, side, sums[:parts], filter_buffers[part], lo, hi)

    split_numbered(gather, vectors, least_items(vectors, TRANSFORM_FLOPS * out.size))


def _transform_shared(
    v: Array, m: Array, x: Array, g: Array, padding: Sizes, side: int, has_errors: bool,
    buffers: Array,
) -> None:  # fmt: skip
    """The patches of all tiles, and the errors g if there are any."""
    tile, high, wide = _tile_grid(g, side)

    def work(part: int, lo: int, hi: int) -> None:
        by_panels.transform_rows(
            v, m, _planes(x), _planes(g), x.shape[1], g.shape[1], *padding[:2], tile, high, wide,
            has_errors, buffers[part], lo, hi,
        )  # fmt: skip

    split_numbered(work, g.shape[0] * high)


def _planes(images: Array) -> Array:
    return images.reshape(-1, *images.shape[2:])


def _taps(w: Array) -> Array:
    """Filters with all taps in one axis."""
    return w.reshape(*w.shape[:2], w.shape[2] * w.shape[3])
