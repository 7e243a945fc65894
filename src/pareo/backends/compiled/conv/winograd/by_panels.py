"""Winograd's algorithm cut into panels of filters, for which all tiles are transformed before."""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.conv.winograd.loops import (
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
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.lanes import whole_vectors
from pareo.backends.compiled.runtime.register_products import WIDE

SLICE = 64  # channels of a panel at a time, whose transformed filters stay in the second cache


@jit
def transform_rows(
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


@jit
def convolve(
    out: Array, v: Array, w: Array, side: int, backward: bool, channels: int, filters: int,
    bias: Array, activation: int, tile: int, high: int, wide: int, rows: int, u: Array, m: Array,
    buffer: Array, filter_buffer: Array, lo: int, hi: int,
) -> None:  # fmt: skip
    """Panels lo to hi of filters, for all `rows` rows of tiles, whose patches are in v."""
    made = offsets(out.shape[1], out.shape[2], tile * wide)
    places = filter_offsets(w.shape[2], backward)
    deep = whole_vectors(channels)
    for first in range(lo * WIDE, min(hi * WIDE, filters), WIDE):
        last = min(first + WIDE, filters)
        panel = whole_vectors(last - first)
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
def sum_products(
    w: Array, side: int, v: Array, m: Array, tiles: int, sums: Array, filter_buffer: Array,
    lo: int, hi: int,
) -> None:  # fmt: skip
    """w = panels lo to hi of the filters' gradient, from patches v and errors m of all tiles."""
    filters, channels = w.shape[0], w.shape[1]
    deep, whole = whole_vectors(channels), whole_vectors(filters)
    places, nothing = filter_offsets(w.shape[2], False), np.zeros(LANES, w.dtype)
    for first in range(lo * WIDE, min(hi * WIDE, filters), WIDE):
        panel = whole_vectors(min(WIDE, filters - first))
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
