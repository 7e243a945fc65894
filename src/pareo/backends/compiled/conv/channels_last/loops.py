"""Loops over the windows of images with channels last, a tile of results in registers at a time.

A row of a window is one run of numbers, so a result is a sum over as many runs as the window has
rows. Filters lie in panels of WIDE: for each tap and channel the filters of the panel. A tile has
results of several images, rows or columns, whichever needs fewest products. Where windows reach far
beyond the images, taps that only meet padding are left out.
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

FEW_ROWS = 5  # of a tile: fewer take as long, because a sum waits for the one before
Pair = tuple[int, int]
Triple = tuple[int, int, int]


@jit
def take_core(inner: Array, filters: Array, row: int, column: int) -> None:
    """inner = the taps of filters (any, high, wide) from a row and column on."""
    _, high, wide = inner.shape
    for k in range(inner.shape[0]):
        for u in range(high):
            for v in range(wide):
                inner[k, u, v] = filters[k, row + u, column + v]


@jit
def put_core(filters: Array, inner: Array, row: int, column: int) -> None:
    """The other way: all other taps are 0."""
    _, high, wide = inner.shape
    for k in range(filters.shape[0]):
        for u in range(filters.shape[1]):
            within = row <= u < row + high
            for v in range(filters.shape[2]):
                filters[k, u, v] = 0
            for v in range(wide if within else 0):
                filters[k, u, column + v] = inner[k, u - row, v]


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
def met(start: int, count: int, stride: int, window: int, pixels: int) -> tuple[int, int]:
    """The first tap that meets a pixel, and the one after the last, for `count` windows together.

    The first window begins at pixel `start`, which may be outside, each other `stride` further.
    """
    last = start + (count - 1) * stride
    low = min(window, max(0, -last))
    return low, max(low, min(window, pixels - start))


@jit
def _cycles(
    axis: int, counts: Triple, window: Pair, starts: Pair, strides: Pair, pixels: Pair,
    skips: bool,
) -> int:  # fmt: skip
    """How long the tiles along an axis take, as in `multiply_windows`, for each channel."""
    each = balanced(counts[axis])
    found = 0
    for r in range(0, counts[1], each if axis == 1 else 1):
        high = min(each, counts[1] - r) if axis == 1 else 1
        first, last = met(starts[0] + r * strides[0], high, strides[0], window[0], pixels[0])
        for j in range(0, counts[2], each if axis == 2 else 1):
            wide = min(each, counts[2] - j) if axis == 2 else 1
            left, right = met(starts[1] + j * strides[1], wide, strides[1], window[1], pixels[1])
            taps = (last - first) * (right - left) if skips else window[0] * window[1]
            if axis == 0:
                whole, rest = counts[0] // each, counts[0] % each
                rows = whole * max(FEW_ROWS, each) + (max(FEW_ROWS, rest) if rest else 0)
            else:
                rows = counts[0] * max(FEW_ROWS, high * wide)
            found += taps * rows
    return found


@jit
def balanced(count: int) -> int:
    """How many of some rows a tile has, if all have about as many."""
    return -(-count // -(-count // ROWS))


@jit
def multiply_windows(
    out: int, out_steps: Triple, given: int, steps: Triple, filters: int, whole: int,
    counts: Triple, window: Pair, channels: int, line: int, starts: Pair, strides: Pair,
    pixels: Pair, skips: bool, panel_bytes: int,
) -> None:  # fmt: skip
    """The products of windows at an address and filters, which are in panels, `whole` of them.

    out_steps, steps: the bytes from one image, row and column to the next
    counts:           images, rows and columns of results
    line:             bytes from one row of a window to the next
    starts:           the row and column at which the first window begins, of an image of `pixels`
    panel_bytes:      of filters that all windows are multiplied by before others
    """
    kh, kw = window
    run = kw * channels
    axis, least = 2, _cycles(2, counts, window, starts, strides, pixels, skips)
    for other in range(2):
        cycles = _cycles(other, counts, window, starts, strides, pixels, skips)
        if cycles < least:
            axis, least = other, cycles
    each = balanced(counts[axis])
    block = max(1, panel_bytes // (4 * WIDE * run))
    for column in range(0, whole, WIDE):
        wide = min(WIDE, whole - column)
        panel = filters + 4 * column * kh * run
        for begin in range(0, kh, block):
            for n in range(0, counts[0], each if axis == 0 else 1):
                for r in range(0, counts[1], each if axis == 1 else 1):
                    high = min(each, counts[1] - r) if axis == 1 else 1
                    first, last = 0, kh
                    if skips:
                        start = starts[0] + r * strides[0]
                        first, last = met(start, high, strides[0], kh, pixels[0])
                    low, stop = max(first, begin), min(last, begin + block)
                    if low >= stop and (begin or first < last):
                        continue  # another block of taps has products, and writes the results
                    for j in range(0, counts[2], each if axis == 2 else 1):
                        rows, left, right = high, 0, kw
                        if axis == 0:
                            rows = min(each, counts[0] - n)
                        elif axis == 2:
                            rows = min(each, counts[2] - j)
                        if skips:
                            across = rows if axis == 2 else 1
                            start = starts[1] + j * strides[1]
                            left, right = met(start, across, strides[1], kw, pixels[1])
                        product_tile(
                            rows, wide // LANES, int(low > first),
                            (
                                out + n * out_steps[0] + r * out_steps[1] + j * out_steps[2]
                                + 4 * column,
                                out_steps[axis],
                            ),
                            (
                                given + n * steps[0] + r * steps[1] + j * steps[2] + low * line
                                + 4 * left * channels,
                                steps[axis], 0, line, 4,
                            ),
                            (
                                panel + 4 * (low * run + left * channels) * wide, 0, 4 * run * wide,
                                4 * wide,
                            ),
                            (1, max(0, stop - low), (right - left) * channels),
                        )  # fmt: skip


@jit
def forward(
    out: Array, x: Array, packed: Array, channels: int, filters: int, kh: int, kw: int, sh: int,
    sw: int, top: int, left: int, bias: Array, activation: int, image: int, images: int, row: int,
    rows: int, buffer: Array, results: Array, skips: bool, panel_bytes: int,
) -> None:  # fmt: skip
    """Some rows of the results of some images; with `skips`, products of padding are left out."""
    width = out.shape[2]
    padded, lines = padded_width(x.shape[2], width, left, kw, sw), (rows - 1) * sh + kh
    places = offsets(x.shape[1], x.shape[2], padded, channels)
    whole, line = whole_vectors(filters), padded * channels
    for n in range(images):
        load(
            buffer[n * lines * line :], channels, padded, lines, x, (image + n) * channels,
            channels, row * sh - top, left, places,
        )  # fmt: skip
    multiply_windows(
        results.ctypes.data, (4 * rows * width * whole, 4 * width * whole, 4 * whole),
        buffer.ctypes.data, (4 * lines * line, 4 * sh * line, 4 * sw * channels),
        packed.ctypes.data, whole, (images, rows, width), (kh, kw), channels, 4 * line,
        (row * sh - top, -left), (sh, sw), (x.shape[1], x.shape[2]), skips, panel_bytes,
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
    rows: int, buffer: Array, errors: Array, skips: bool,
) -> None:  # fmt: skip
    """sums = the gradient of some rows of images; with `keep`, sums += it.

    sums has taps and channels by filters, `own` of them from the first on. With `skips` products of
    padding are left out.
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
        first, last = 0, rows
        if skips:
            first, last = meeting(row * sh + ky - top, rows, sh, x.shape[1])
        for column in range(0, whole, WIDE):
            wide = min(WIDE, whole - column)
            for at in range(0, run, ROWS):
                count = min(ROWS, run - at)
                begin, end = 0, width
                if skips:
                    begin, _ = meeting((at + count - 1) // channels - left, width, sw, x.shape[2])
                    _, end = meeting(at // channels - left, width, sw, x.shape[2])
                    end = max(begin, end)
                product_tile(
                    count, wide // LANES, keep,
                    (sums.ctypes.data + 4 * ((ky * run + at) * whole + column), 4 * whole),
                    (
                        buffer.ctypes.data
                        + 4 * ((first * sh + ky) * line + begin * sw * channels + at),
                        4, 4 * lines * line, 4 * sh * line, 4 * sw * channels,
                    ),
                    (
                        errors.ctypes.data + 4 * ((first * width + begin) * whole + column),
                        4 * rows * width * whole, 4 * width * whole, 4 * whole,
                    ),
                    (images, last - first, end - begin),
                )  # fmt: skip


@jit
def meeting(start: int, places: int, stride: int, pixels: int) -> tuple[int, int]:
    """The first place whose tap meets a pixel, and the one after the last.

    The tap of place 0 is at pixel `start`, which may be outside, each other `stride` further.
    """
    first = min(places, max(0, -(start // stride)))
    return first, max(first, min(places, -((start - pixels) // stride)))


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
    panel_bytes: int,
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
            depth, y = nj * ni * filters, row + (ay - top - row) % sh
            high = -(-(row + rows - y) // sh)
            into = ((y - row) * width + start) * whole
            if not depth:
                for r in range(high):
                    for at in range(into, into + count * sw * whole, sw * whole):
                        results[at + r * sh * width * whole :][:whole] = 0
            elif high > 0 and count > 0:
                line_at = (y + top - ay) // sh - (nj - 1)
                given = (line_at + above) * line + shift * filters
                multiply_windows(
                    results.ctypes.data + 4 * into, (0, 4 * sh * width * whole, 4 * sw * whole),
                    buffer.ctypes.data + 4 * given, (0, 4 * line, 4 * filters),
                    packed.ctypes.data + 4 * begin, whole, (1, high, count), (nj, ni), filters,
                    4 * line, (line_at, shift - before), (1, 1), (g.shape[1], g.shape[2]), True,
                    panel_bytes,
                )  # fmt: skip
            begin += depth * whole
    made = offsets(height, width, width, whole)
    nothing = np.zeros(whole, out.dtype)
    store(
        out, image * channels, channels, row, rows, results, whole, nothing, NONE, made
    )  # fmt: skip
