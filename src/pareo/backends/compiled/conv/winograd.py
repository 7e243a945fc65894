"""3x3 and 5x5 convolutions with a fraction of the multiplications: Winograd's minimal filtering.

A patch of 6x6 pixels is enough for a tile of 4x4 results of a 3x3 filter, or of 2x2 of a 5x5 one.
With matrices A, B and G that come from evaluating polynomials at 0, 1, -1, 2, -2 and infinity, a
tile is A' [(G w G') * (B' x B)] A. The bracket, which is the transformed domain, has 36 positions;
the direct sum has 144 or 100 products. At each position, the sum over channels is one matrix
product: filters by channels with channels by tiles. The gradient of the filters is
G' [the sum over tiles of (A g A') * (B' x B)] G.

This costs accuracy: the matrices contain numbers as large as 16 and as small as 1/24, so that
float32 rounds several times as much as in the direct sum (the tests of this module say how much).

The work is cut into rows of tiles, some hundred tiles at a time, with buffers for each worker. The
transforms of rows are in `winograd_loops`.
"""

import numpy as np

from pareo.array import Array
from pareo.backends import blas
from pareo.backends.compiled.backend import Sizes
from pareo.backends.compiled.conv.winograd_loops import (
    PATCH,
    POSITIONS,
    filters_backward,
    inverse_transform_tiles,
    transform_filters,
    transform_gradients,
    transform_patches,
)
from pareo.backends.compiled.conv.winograd_transforms import LANES, WIDE_LANES
from pareo.backends.compiled.kernels.activations import NONE
from pareo.backends.compiled.runtime.gemm import gemm
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import split_numbered, workers
from pareo.spec import Spec

# The side of a tile, by the filters' taps.
TILES: dict[Sizes, int] = {(3, 3): 4, (5, 5): 2}
LEAST_CHANNELS = 8  # and filters: with fewer, the transforms take most of the time
LEAST_TILES = 9  # of all images: with fewer, the filters' transform does
BUFFER_BYTES = 16 << 20  # for the transformed tiles at hand, for each worker
MOST_TILES = 512  # at a time
# If the transformed filters are smaller than this, they stay in the cache of a core, and so should
# the tiles at hand. Otherwise many tiles at a time are worth more: the filters are read less often.
CACHED_FILTER_BYTES = 640 << 10
LEAST_AT_ONCE = 32


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
    return enough and min(filters[:2]) >= LEAST_CHANNELS and blas.address(out.dtype) is not None


@jit
def _convolve(
    product: int, out: Array, x: Array, u: Array, inner: int, transpose: bool, bias: Array,
    activation: int, top: int, left: int, tile: int, high: int, wide: int, v: Array,
    m: Array, lines: Array, half: Array, lo: int, hi: int,
) -> None:  # fmt: skip
    """Rows lo to hi of all tiles; an image has `high` rows of `wide` tiles.

    u is filters by channels, or with `transpose` channels by filters; of its last axis, which is
    rounded up to whole vectors, `inner` are used.
    """
    one, none = v.dtype.type(1), v.dtype.type(0)
    channels, filters = (u.shape[1], inner) if transpose else (inner, u.shape[1])
    channel = v.shape[1] // channels  # the floats of one channel: its tiles, and four more
    for start in range(lo, hi, (channel - 4) // wide):
        rows = min((channel - 4) // wide, hi - start)
        transform_patches(v, x, start, rows, high, top, left, tile, wide, channel, lines, half)
        for position in range(POSITIONS):
            of = v[position].reshape((channels, channel))[:, : rows * wide]
            into = m[position].reshape((filters, channel))[:, : rows * wide]
            gemm(product, into, u[position, :, :inner], transpose, of, False, one, none)
        inverse_transform_tiles(
            out, m, start, rows, high, tile, wide, channel, bias, activation, lines, half
        )


@jit
def _sum_products(
    product: int, sums: Array, channels: int, x: Array, g: Array, top: int, left: int, tile: int,
    high: int, wide: int, v: Array, m: Array, lines: Array, half: Array,
    lo: int, hi: int,
) -> None:  # fmt: skip
    """sums = the filters' transformed gradient, from rows lo to hi of all tiles."""
    one, none = v.dtype.type(1), v.dtype.type(0)
    filters = sums.shape[1]
    channel = v.shape[1] // channels
    if lo == hi:
        sums[:] = 0
    for start in range(lo, hi, (channel - 4) // wide):
        rows = min((channel - 4) // wide, hi - start)
        transform_patches(v, x, start, rows, high, top, left, tile, wide, channel, lines, half)
        transform_gradients(m, g, start, rows, high, tile, wide, channel, lines, half)
        for position in range(POSITIONS):
            of = v[position].reshape((channels, channel))[:, : rows * wide]
            by = m[position].reshape((filters, channel))[:, : rows * wide]
            into = sums[position, :, :channels]
            gemm(product, into, by, False, of, True, one, one if start > lo else none)


def _tile_grid(images: Spec | Array, taps: int) -> tuple[int, int, int]:
    """The side of a tile, and the numbers of rows and columns of tiles of an image."""
    tile = TILES[taps, taps]
    return tile, -(-images.shape[2] // tile), -(-images.shape[3] // tile)


def scratch(x: Spec, out: Spec, taps: int) -> list[Spec]:
    """For every worker: transformed patches and results, two buffers for lines, one for filters.

    There are four floats between the tiles of two channels, because vectors may write over the end.
    """
    channels, filters, count = x.shape[1], out.shape[1], workers()
    tile, high, wide = _tile_grid(out, taps)
    rows = out.shape[0] * high
    each = 4 * POSITIONS * (channels + filters)
    most = min(BUFFER_BYTES // each, MOST_TILES)
    if 4 * POSITIONS * channels * filters <= CACHED_FILTER_BYTES:
        most = min(most, max(2 * CACHED_FILTER_BYTES // each, LEAST_AT_ONCE))
    at_once = max(1, min(most // wide, -(-rows // count))) * wide + LANES
    line = WIDE_LANES * -(-LANES * tile * -(-wide // LANES) // WIDE_LANES) + WIDE_LANES
    return [
        x.like((count, POSITIONS, channels * at_once)),
        x.like((count, POSITIONS, filters * at_once)),
        x.like((count, PATCH, line)),
        x.like((count, PATCH, line)),
        x.like((count, taps * (taps + PATCH) * _whole_vectors(max(channels, filters)))),
    ]


def filters_scratch(filters: Sizes, x: Spec) -> Spec:
    """The transformed filters."""
    return x.like((POSITIONS, filters[0], _whole_vectors(filters[1])))


def sums_scratch(filters: Sizes, x: Spec) -> Spec:
    """The transformed gradient of the filters, for every worker."""
    return x.like((workers(), POSITIONS, filters[0], _whole_vectors(filters[1])))


def _whole_vectors(channels: int) -> int:
    """A number of channels, rounded up; what is computed for those beyond is never read."""
    return -(-channels // LANES) * LANES


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
    bias = np.zeros(w.shape[0], w.dtype) if b is None else b
    _run(out, x, w, False, bias, activation, padding, scratch)


def input_gradient(
    out: Array, g: Array, w: Array, padding: Sizes, scratch: tuple[Array, ...]
) -> None:
    """out = the gradient of the images: g convolved with the filters rotated by 180 degrees."""
    top, left = w.shape[2] - 1 - padding[0], w.shape[2] - 1 - padding[1]
    bias = np.zeros(w.shape[1], w.dtype)
    _run(out, g, w, True, bias, NONE, (top, left), scratch)


def _run(
    out: Array, x: Array, w: Array, backward: bool, bias: Array,
    activation: int, padding: Sizes, scratch: tuple[Array, ...],
) -> None:  # fmt: skip
    v, m, lines, half, filter_buffers, u = scratch
    product = blas.address(x.dtype)
    tile, high, wide = _tile_grid(out, w.shape[2])
    blas.threads(1)

    def transform(part: int, lo: int, hi: int) -> None:
        transform_filters(u, w, _by_channel(w, filter_buffers[part]), backward, lo, hi)

    def work(part: int, lo: int, hi: int) -> None:
        _convolve(
            product, _planes(out), _planes(x), u, w.shape[1], backward, bias, activation,
            *padding[:2], tile, high, wide, v[part], m[part], lines[part], half[part], lo, hi,
        )  # fmt: skip

    split_numbered(transform, w.shape[0])
    split_numbered(work, out.shape[0] * high)


def weight_gradient(
    out: Array, x: Array, g: Array, padding: Sizes, scratch: tuple[Array, ...]
) -> None:
    """out = the gradient of the filters."""
    v, m, lines, half, filter_buffers, sums = scratch
    product = blas.address(x.dtype)
    tile, high, wide = _tile_grid(g, out.shape[2])
    blas.threads(1)

    def work(part: int, lo: int, hi: int) -> None:
        _sum_products(
            product, sums[part], out.shape[1], _planes(x), _planes(g), *padding[:2], tile, high,
            wide, v[part], m[part], lines[part], half[part], lo, hi,
        )  # fmt: skip

    parts = split_numbered(work, g.shape[0] * high)

    def transform(part: int, lo: int, hi: int) -> None:
        filters_backward(out, sums[:parts], _by_channel(out, filter_buffers[part]), lo, hi)

    split_numbered(transform, out.shape[0])


def _planes(images: Array) -> Array:
    return images.reshape(-1, *images.shape[2:])


def _by_channel(w: Array, buffer: Array) -> Array:
    """The start of a worker's buffer, as rows of one number for each channel."""
    rows = w.shape[2] * (w.shape[2] + PATCH)
    channels = _whole_vectors(w.shape[1])
    return buffer[: rows * channels].reshape(rows, channels)
