"""Winograd's algorithm cut into rows of tiles, for which all filters are transformed before."""

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

DEPTH = 128  # channels of a product at a time, whose filters stay in the fastest cache


@jit
def transform_all_filters(
    u: Array, w: Array, side: int, backward: bool, buffer: Array, lo: int, hi: int
) -> None:
    """u = all channels of vectors lo to hi of filters, in panels that `multiply` reads."""
    depth, filters = (w.shape[0], w.shape[1]) if backward else (w.shape[1], w.shape[0])
    whole, places = whole_vectors(filters), filter_offsets(w.shape[2], backward)
    for first in range(lo * LANES, min(hi * LANES, filters), LANES):
        start = first // WIDE * WIDE
        panel, at = min(WIDE, whole - start), start * depth + first - start
        transform_filters(u, at, panel, w, side, backward, first, 0, depth, buffer, places)


@jit
def convolve(
    out: Array, x: Array, u: Array, channels: int, filters: int, bias: Array, activation: int,
    top: int, left: int, tile: int, high: int, wide: int, at_once: int, v: Array, m: Array,
    buffer: Array, lo: int, hi: int,
) -> None:  # fmt: skip
    """Rows lo to hi of all tiles, `at_once` at a time; an image has `high` rows of `wide` tiles."""
    given = offsets(x.shape[1], x.shape[2], tile * (wide - 1) + PATCH)
    made = offsets(out.shape[1], out.shape[2], tile * wide)
    deep, whole = whole_vectors(channels), whole_vectors(filters)
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
def sum_products(
    sums: Array, channels: int, filters: int, x: Array, g: Array, top: int, left: int, tile: int,
    high: int, wide: int, at_once: int, v: Array, m: Array, buffer: Array, lo: int, hi: int,
) -> None:  # fmt: skip
    """sums = the filters' transformed gradient, from rows lo to hi of all tiles."""
    given = offsets(x.shape[1], x.shape[2], tile * (wide - 1) + PATCH)
    gradients = offsets(g.shape[1], g.shape[2], tile * wide)
    deep, whole = whole_vectors(channels), whole_vectors(filters)
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
def gather_sums(w: Array, side: int, sums: Array, buffer: Array, lo: int, hi: int) -> None:
    """w = vectors lo to hi of the filters' gradient, from the sums of all workers."""
    filters, channels = w.shape[0], w.shape[1]
    whole, places = whole_vectors(filters), filter_offsets(w.shape[2], False)
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
