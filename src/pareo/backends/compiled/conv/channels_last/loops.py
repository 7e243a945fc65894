"""Loops over the windows of images with channels last, a tile of results in registers at a time.

A row of a window is one run of numbers, so a result is a sum over as many runs as the window has
rows. Filters lie in panels of WIDE: for each tap and channel the filters of the panel.
"""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.kernels.activations import NONE
from pareo.backends.compiled.kernels.channels_last import load, offsets, store
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.lanes import (
    LANES,
    pixels_to_vectors,
    vectors_to_pixels,
    whole_vectors,
)
from pareo.backends.compiled.runtime.register_products import ROWS, WIDE, product_tile


@jit
def _tap_offsets(taps: int, channels: int, wide: int) -> Array:
    """Where each number of a filter goes, in bytes: tap by tap, then channel by channel."""
    made = np.empty(channels * taps, np.int64)
    for c in range(channels):
        for t in range(taps):
            made[c * taps + t] = 4 * wide * (t * channels + c)
    return made


@jit
def pack_filters(packed: Array, w: Array, lo: int, hi: int) -> None:
    """Vectors lo to hi of the filters w (filters, channels, taps), in panels."""
    filters, channels, taps = w.shape
    depth, whole = channels * taps, whole_vectors(filters)
    for first in range(lo * LANES, min(hi * LANES, filters), LANES):
        panel = first // WIDE * WIDE
        wide = min(WIDE, whole - panel)
        begin, own = panel * depth + first - panel, min(LANES, filters - first)
        places = _tap_offsets(taps, channels, wide)
        if depth < LANES:
            for lane in range(LANES):
                k = min(first + lane, filters - 1)
                for c in range(channels):
                    for t in range(taps):
                        packed[begin + (t * channels + c) * wide + lane] = w[k, c, t]
            continue
        into, table = packed.ctypes.data + 4 * begin, places.ctypes.data
        source = w.ctypes.data + 4 * first * depth
        for q in range(0, depth - LANES + 1, LANES):
            pixels_to_vectors(into, table + 8 * q, source + 4 * q, 4 * depth, own)
        if depth % LANES:
            q = depth - LANES
            pixels_to_vectors(into, table + 8 * q, source + 4 * q, 4 * depth, own)


@jit
def padded_width(given: int, results: int, left: int, taps: int, stride: int) -> int:
    """Columns of a buffer: those of the windows, and those of the image after them."""
    return max((results - 1) * stride + taps, left + given)


@jit
def forward(
    out: Array, x: Array, packed: Array, channels: int, filters: int, kh: int, kw: int, sh: int,
    sw: int, top: int, left: int, bias: Array, activation: int, image: int, images: int, row: int,
    rows: int, buffer: Array, results: Array,
) -> None:  # fmt: skip
    """Some rows of the results of some images."""
    width = out.shape[2]
    padded, lines = padded_width(x.shape[2], width, left, kw, sw), (rows - 1) * sh + kh
    places = offsets(x.shape[1], x.shape[2], padded, channels)
    whole, depth, line = whole_vectors(filters), kh * kw * channels, padded * channels
    for n in range(images):
        load(
            buffer[n * lines * line :], channels, padded, lines, x, (image + n) * channels,
            channels, row * sh - top, left, places,
        )  # fmt: skip
    for column in range(0, whole, WIDE):
        wide = min(WIDE, whole - column)
        filters_at = packed.ctypes.data + 4 * column * depth
        for n in range(images):
            for r in range(rows):
                given = buffer.ctypes.data + 4 * (n * lines + r * sh) * line
                into = results.ctypes.data + 4 * ((n * rows + r) * width * whole + column)
                for at in range(0, width, ROWS):
                    product_tile(
                        min(ROWS, width - at), wide // LANES, 0, (into + 4 * at * whole, 4 * whole),
                        (given + 4 * at * sw * channels, 4 * sw * channels, 0, 4 * line, 4),
                        (filters_at, 0, 4 * kw * channels * wide, 4 * wide),
                        (1, kh, kw * channels),
                    )  # fmt: skip
    made = offsets(out.shape[1], width, width, whole)
    for n in range(images):
        store(
            out, (image + n) * filters, filters, row, rows, results[n * rows * width * whole :],
            whole, bias, activation, made,
        )  # fmt: skip


@jit
def add_weight_gradient(
    sums: Array, keep: int, x: Array, g: Array, channels: int, filters: int, first: int, own: int,
    kh: int, kw: int, sh: int, sw: int, top: int, left: int, image: int, images: int, row: int,
    rows: int, buffer: Array, errors: Array,
) -> None:  # fmt: skip
    """sums = the gradient of some rows of images; with `keep`, sums += it.

    sums has taps and channels by filters, `own` of them from the first on.
    """
    width = g.shape[2]
    padded, lines = padded_width(x.shape[2], width, left, kw, sw), (rows - 1) * sh + kh
    places = offsets(x.shape[1], x.shape[2], padded, channels)
    whole, line = whole_vectors(own), padded * channels
    made = offsets(g.shape[1], width, width, whole)
    for n in range(images):
        load(
            buffer[n * lines * line :], channels, padded, lines, x, (image + n) * channels,
            channels, row * sh - top, left, places,
        )  # fmt: skip
        load(
            errors[n * rows * width * whole :], whole, width, rows, g,
            (image + n) * filters + first, own, row, 0, made,
        )  # fmt: skip
    run = kw * channels
    for ky in range(kh):
        for column in range(0, whole, WIDE):
            wide = min(WIDE, whole - column)
            for at in range(0, run, ROWS):
                product_tile(
                    min(ROWS, run - at), wide // LANES, keep,
                    (sums.ctypes.data + 4 * ((ky * run + at) * whole + column), 4 * whole),
                    (
                        buffer.ctypes.data + 4 * (ky * line + at), 4, 4 * lines * line,
                        4 * sh * line, 4 * sw * channels,
                    ),
                    (
                        errors.ctypes.data + 4 * column, 4 * rows * width * whole,
                        4 * width * whole, 4 * whole,
                    ),
                    (images, rows, width),
                )  # fmt: skip


@jit
def unpack_sums(w: Array, sums: Array, lo: int, hi: int) -> None:
    """Vectors lo to hi of the filters w (filters, channels, taps) = the workers' sums, added up."""
    filters, channels, taps = w.shape
    depth, whole = channels * taps, whole_vectors(filters)
    places, nothing = _tap_offsets(taps, channels, whole), np.zeros(LANES, w.dtype)
    for first in range(lo * LANES, min(hi * LANES, filters), LANES):
        for other in range(1, sums.shape[0]):
            for at in range(first, depth * whole, whole):
                for lane in range(LANES):
                    sums[0, at + lane] += sums[other, at + lane]
        own = min(LANES, filters - first)
        if depth < LANES:
            for lane in range(own):
                for c in range(channels):
                    for t in range(taps):
                        w[first + lane, c, t] = sums[0, (t * channels + c) * whole + first + lane]
            continue
        given, table = sums.ctypes.data + 4 * first, places.ctypes.data
        target, zeros = w.ctypes.data + 4 * first * depth, nothing.ctypes.data
        for q in range(0, depth - LANES + 1, LANES):
            vectors_to_pixels(target + 4 * q, 4 * depth, own, given, table + 8 * q, zeros, 0)
        if depth % LANES:
            q = depth - LANES
            vectors_to_pixels(target + 4 * q, 4 * depth, own, given, table + 8 * q, zeros, 0)


@jit
def _taps_of(phase: int, size: int, stride: int) -> int:
    """How many taps of a window reach pixels of a phase: those phase, phase + stride, ..."""
    return max(0, -(-(size - phase) // stride))


@jit
def _phase_offsets(
    filters: int, whole: int, panel: int, wide: int, kh: int, kw: int, sh: int, sw: int
) -> Array:  # fmt: skip
    """Where the taps of a panel of channels go, in bytes: phase by phase, in reverse.

    The places of a block after the last tap are behind all of them.
    """
    taps = kh * kw
    made = np.full(taps + LANES, 4 * taps * filters * whole)
    begin = 0
    for ay in range(sh):
        for ax in range(sw):
            nj, ni = _taps_of(ay, kh, sh), _taps_of(ax, kw, sw)
            for j in range(nj):
                for i in range(ni):
                    tap = (ay + sh * (nj - 1 - j)) * kw + ax + sw * (ni - 1 - i)
                    number = begin + (nj * ni * panel + (j * ni + i) * wide) * filters
                    made[tap] = 4 * number
            begin += nj * ni * filters * whole
    return made


@jit
def pack_reversed(
    packed: Array, w: Array, kh: int, kw: int, sh: int, sw: int, lo: int, hi: int
) -> None:
    """Vectors lo to hi of channels of the filters w, phase by phase, with taps in reverse.

    packed has space for a panel of each filter after them.
    """
    filters, channels, taps = w.shape
    whole = whole_vectors(channels)
    for first in range(lo * LANES, min(hi * LANES, channels), LANES):
        panel = first // WIDE * WIDE
        wide = min(WIDE, whole - panel)
        places = _phase_offsets(filters, whole, panel, wide, kh, kw, sh, sw)
        own, table = min(LANES, channels - first), places.ctypes.data
        for k in range(filters):
            begin = first - panel + k * wide
            if k < filters - 1 or first + LANES < channels:
                # Reads a few numbers after the last channel's, which are the next filter's.
                source = w.ctypes.data + 4 * (k * channels + first) * taps
                into = packed.ctypes.data + 4 * begin
                for q in range(0, taps, LANES):
                    pixels_to_vectors(into, table + 8 * q, source + 4 * q, 4 * taps, own)
                continue
            for t in range(taps):
                for lane in range(LANES):
                    c = min(first + lane, channels - 1)
                    packed[places[t] // 4 + begin + lane] = w[k, c, t]


@jit
def padded_errors(size: int, before: int, taps: int, stride: int) -> tuple[int, int]:
    """Rows or columns of a padded image of errors: those before the first, and all."""
    first = _taps_of(0, taps, stride) - 1
    return first, first + (size - 1 + before) // stride + 1


@jit
def input_gradient(
    out: Array, g: Array, packed: Array, channels: int, filters: int, kh: int, kw: int, sh: int,
    sw: int, top: int, left: int, image: int, row: int, rows: int, buffer: Array, results: Array,
) -> None:  # fmt: skip
    """Some rows of the gradient of an image, the pixels of each phase of the stride together."""
    height, width = out.shape[1], out.shape[2]
    above, lines = padded_errors(height, top, kh, sh)
    before, padded = padded_errors(width, left, kw, sw)
    whole, line = whole_vectors(channels), padded * filters
    places = offsets(g.shape[1], g.shape[2], padded, filters)
    load(buffer, filters, padded, lines, g, image * filters, filters, -above, before, places)
    begin = 0
    for ay in range(sh):
        for ax in range(sw):
            nj, ni = _taps_of(ay, kh, sh), _taps_of(ax, kw, sw)
            start = (ax - left) % sw
            count, shift = -(-(width - start) // sw), (start + left - ax) // sw - (ni - 1) + before
            depth = nj * ni * filters
            for y in range(row + (ay - top - row) % sh, row + rows, sh):
                into = ((y - row) * width + start) * whole
                if not depth:
                    for x in range(count):
                        results[into + x * sw * whole : into + (x * sw + 1) * whole] = 0
                    continue
                given = ((y + top - ay) // sh - (nj - 1) + above) * line + shift * filters
                for column in range(0, whole, WIDE):
                    wide = min(WIDE, whole - column)
                    filters_at = packed.ctypes.data + 4 * (begin + column * depth)
                    for at in range(0, count, ROWS):
                        product_tile(
                            min(ROWS, count - at), wide // LANES, 0,
                            (
                                results.ctypes.data + 4 * (into + at * sw * whole + column),
                                4 * sw * whole,
                            ),
                            (
                                buffer.ctypes.data + 4 * (given + at * filters), 4 * filters, 0,
                                4 * line, 4,
                            ),
                            (filters_at, 0, 4 * ni * filters * wide, 4 * wide),
                            (1, nj, ni * filters),
                        )  # fmt: skip
            begin += depth * whole
    made = offsets(height, width, width, whole)
    nothing = np.zeros(whole, out.dtype)
    store(
        out, image * channels, channels, row, rows, results, whole, nothing, NONE, made
    )  # fmt: skip
