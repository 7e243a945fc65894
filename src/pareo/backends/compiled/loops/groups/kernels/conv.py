"""Convolutions of a group of images that lie side by side, written as LLVM instructions.

The innermost axis of every value is the image: x[c, i, j] is a vector of `lanes` floats, one for
each image of the group. So weights are scalars, values are whole vectors, and nothing depends on
the sizes of an image. A tile of sums, for some filters at one place or a few, stays in registers. A
group of one image has several pixels in a register. All sizes are literals. float32 only.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from pareo.array import Array
from pareo.backends.compiled.loops.groups.kernels import tiles
from pareo.backends.compiled.loops.groups.kernels.tiles import SUMS, cells, each_tile, pixels_of
from pareo.backends.compiled.loops.groups.kernels.vectors import (
    I64,
    QUAD,
    GroupBuilder,
    as_function,
    parts_of,
)
from pareo.backends.compiled.loops.groups.kernels.window_runs import (
    Run,
    Taps,
    backward_taps,
    forward_taps,
    row_table,
    runs,
)
from pareo.backends.compiled.runtime import registers
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.llvm_vectors import literals


def block_of(count: int, lanes: int) -> int:
    """How many filters' sums for one place are computed at once, of `count` filters.

    >>> block_of(1, 16)
    1
    """
    least = 2 if registers.IS_X86 or lanes == 1 else 1  # registers that each weight is used for
    most = max(1, SUMS // max(least, parts_of(lanes)))
    if count <= most:
        return count
    even = [size for size in range(most, 0, -1) if count % size == 0]
    if even[0] * 5 >= most * 3:
        return even[0]
    number = -(-count // most)
    return -(-count // number)


def padded(block: int) -> int:
    """The distance between two taps' packed weights."""
    return -(-block // QUAD) * QUAD


def packed_size(filters: int, channels: int, taps: int, lanes: int) -> int:
    """The number of floats of packed weights."""
    block = block_of(filters, lanes)
    return -(-filters // block) * padded(block) * channels * taps


@jit
def pack(out: Array, w: Array, sizes: Array) -> None:
    """out[block of filters, u, channel, v, filter] = w, of which a filter is `filter_step` apart.

    Both have a row for each group of filters; `pitch` is the padded size of a block. Sizes are in
    an array: Numba would compile this again for other literals.
    """
    filters, channels, kh, kw = sizes[0], sizes[1], sizes[2], sizes[3]
    block, pitch, filter_step, channel_step = sizes[4], sizes[5], sizes[6], sizes[7]
    size = kh * channels * kw * pitch
    for group in range(out.shape[0]):
        for filter in range(filters):  # whose elements lie side by side
            first = filter // block * size + filter % block
            for c in range(channels):
                tap = filter * filter_step + c * channel_step
                for u in range(kh):
                    at = first + (u * channels + c) * kw * pitch
                    for v in range(kw):
                        out[group, at + v * pitch] = w[group, tap + u * kw + v]


def sliding_product(
    builder: ir.IRBuilder,
    addresses: Sequence[ir.Value],
    lanes: int,
    images: int,
    filters: int,
    channels: int,
    window: tuple[int, int],
    source: tuple[int, int],
    rows: list[Taps],
    columns: list[Taps],
    biased: bool,
) -> None:
    """y[m, f, i, j] = b[f] + the sum over c and taps of w[f, c, u, v] * x[m, c, row, column].

    addresses: y, x, the packed weights, b. `images` share the filters.
    """
    y, x, w, b = addresses
    code = GroupBuilder(builder, lanes)
    (kh, kw), (high, wide) = window, source
    out_high, out_wide = len(rows), len(columns)
    block = block_of(filters, lanes)
    pitch = padded(block)
    entries, tap_step, row_step = row_table(rows)
    entry = code.table(entries, "rows")
    across = runs(columns)
    plane = high * wide * lanes
    unroll = max(1, min(channels, 4 // kw))

    def tile(
        size: int, pixels: int, y: ir.Value, x: ir.Value, w: ir.Value, b: ir.Value, count: Any,
        run: Run,
    ) -> None:  # fmt: skip
        registers = cells(lanes, pixels)
        sums = code.sums(size, len(registers))
        for f in range(size):
            start = code.load_broadcast(b, f) if biased else code.constant(0.0)
            for variable in sums[f]:
                builder.store(start, variable)

        def taps(weights: ir.Value, image: ir.Value, number: int) -> None:
            totals = code.load_all(sums)
            for c in range(number):
                for tap, offset in zip(run.taps, run.offsets, strict=True):
                    at = c * plane + offset * lanes
                    vectors = [tiles.load(code, image, at, cell, run.move) for cell in registers]
                    values = code.load_weights(weights, (c * kw + tap) * pitch, size)
                    code.multiply_into(totals, values, vectors)
            code.store_all(totals, sums)

        if run.taps:
            with code.loop(count) as u:
                line = code.at(x, (u.index, row_step * wide * lanes))
                weights = code.at(w, (u.index, tap_step * channels * kw * pitch))
                with code.loop(channels // unroll) as c:
                    taps(
                        code.at(weights, (c.index, unroll * kw * pitch)),
                        code.at(line, (c.index, unroll * plane)),
                        unroll,
                    )
                done = channels // unroll * unroll
                if done < channels:
                    at = I64(4 * done * kw * pitch), I64(4 * done * plane)
                    taps(builder.add(weights, at[0]), builder.add(line, at[1]), channels - done)
        for f in range(size):
            own = f * out_high * out_wide * lanes
            for cell, variable in zip(registers, sums[f], strict=True):
                tiles.store(code, builder.load(variable), y, own, cell, run.step)

    def blocks(number: Any, size: int, first: int, image: Any, row: Any) -> None:
        """`number` blocks of `size` filters from `first` on."""
        count, tap, line = (entry(row, column) for column in range(3))
        own = block * out_high * out_wide * lanes
        weights = kh * kw * channels * pitch
        with code.loop(number) as k:
            index = builder.add(k.index, I64(first))
            out = code.at(
                y, (image, filters * out_high * out_wide * lanes), (index, own),
                (row, out_wide * lanes),
            )  # fmt: skip
            lines = code.at(x, (image, channels * plane), (line, wide * lanes))
            own_weights = code.at(w, (index, weights), (tap, channels * kw * pitch))
            bias = code.at(b, (index, block))
            for run in across:

                def body(place: ir.Value, pixel: ir.Value, pixels: int, run: Run = run) -> None:
                    tile(
                        size, pixels, code.at(out, (place, lanes)), code.at(lines, (pixel, lanes)),
                        own_weights, bias, count, run,
                    )  # fmt: skip

                each_tile(code, run, pixels_of(lanes, size, run), body)

    with code.loop(images) as m, code.loop(out_high) as i:
        whole = filters // block
        blocks(whole, block, 0, m.index, i.index)
        if filters % block:
            blocks(1, filters % block, whole, m.index, i.index)


@intrinsic(prefer_literal=True)
def forward(  # type: ignore[no-untyped-def]
    typingctx, y, x, w, b, lanes, images, filters, channels, high, wide, out_high, out_wide,
    kh, kw, sh, sw, top, left, dh, dw, biased,
):  # fmt: skip
    """y = the convolution of x with packed weights, plus b if `biased`; all given by addresses."""
    kinds = (lanes, images, filters, channels, high, wide, out_high, out_wide, kh, kw, sh, sw, top,
             left, dh, dw, biased)  # fmt: skip
    sizes = literals(*kinds)

    def emit(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> None:
        (lanes, images, filters, channels, high, wide, out_high, out_wide, kh, kw, sh, sw, top,
         left, dh, dw, biased) = sizes  # fmt: skip
        rows = forward_taps(out_high, high, kh, sh, top, dh)
        columns = forward_taps(out_wide, wide, kw, sw, left, dw)
        sliding_product(
            builder, arguments, lanes, images, filters, channels, (kh, kw), (high, wide), rows,
            columns, bool(biased),
        )  # fmt: skip

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return as_function(context, builder, "conv_forward", sizes, arguments[:4], emit)

    return types.void(y, x, w, b, *kinds), generate


@intrinsic(prefer_literal=True)
def input_gradient(  # type: ignore[no-untyped-def]
    typingctx, d, g, w, lanes, images, filters, channels, high, wide, out_high, out_wide, kh,
    kw, sh, sw, top, left, dh, dw,
):  # fmt: skip
    """d = the gradient of a convolution's images (high, wide), from that of its result.

    The weights are packed with channels in the place of filters.
    """
    kinds = (lanes, images, filters, channels, high, wide, out_high, out_wide, kh, kw, sh, sw, top,
             left, dh, dw)  # fmt: skip
    sizes = literals(*kinds)

    def emit(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> None:
        (lanes, images, filters, channels, high, wide, out_high, out_wide, kh, kw, sh, sw, top,
         left, dh, dw) = sizes  # fmt: skip
        rows = backward_taps(out_high, high, kh, sh, top, dh)
        columns = backward_taps(out_wide, wide, kw, sw, left, dw)
        d, g, w = arguments
        sliding_product(
            builder, (d, g, w, w), lanes, images, channels, filters, (kh, kw),
            (out_high, out_wide), rows, columns, False,
        )  # fmt: skip

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return as_function(context, builder, "conv_input_gradient", sizes, arguments[:3], emit)

    return types.void(d, g, w, *kinds), generate
