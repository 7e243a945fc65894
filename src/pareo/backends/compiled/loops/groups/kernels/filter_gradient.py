"""The gradient of a convolution's filters, for a group of images that lie side by side.

Values are laid out as in `conv`. The sums of a few filters and channels, for a row of taps, stay in
registers over all places. All sizes are literals. float32 only.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from pareo.backends.compiled.loops.groups.kernels import tiles
from pareo.backends.compiled.loops.groups.kernels.tiles import cells, each_tile
from pareo.backends.compiled.loops.groups.kernels.vectors import I64, GroupBuilder, as_function
from pareo.backends.compiled.loops.groups.kernels.window_runs import Run, forward_taps, runs
from pareo.backends.compiled.runtime import registers
from pareo.backends.compiled.runtime.llvm_vectors import literals

INDEPENDENT = 8  # sums, so that none waits for the one before


def _gradient_block(filters: int, channels: int, kw: int) -> tuple[int, int]:
    """How many filters and channels have their gradients computed at once, for a row of taps."""
    most = 20 if registers.COUNT == 32 else 9
    best, found = 0.0, (1, 1)
    for f in range(1, min(filters, 6) + 1):
        for c in range(1, min(channels, 5) + 1):
            if f * c * kw > most and (f, c) != (1, 1):
                continue
            # Multiply-adds for each load, less what the last, smaller blocks waste.
            use = filters / (-(-filters // f) * f) * channels / (-(-channels // c) * c)
            rate = min(f * c * kw / (f + c * kw), 2.2) * use * min(1.0, f * c * kw / 8)
            if rate > best:
                best, found = rate, (f, c)
    return found


@intrinsic(prefer_literal=True)
def weight_gradient(  # type: ignore[no-untyped-def]
    typingctx, gw, x, g, lanes, images, filters, channels, high, wide, out_high, out_wide, kh,
    kw, sh, sw, top, left, dh, dw,
):  # fmt: skip
    """gw (filters, channels, kh, kw) += the gradient of filters, summed over a group's images."""
    kinds = (lanes, images, filters, channels, high, wide, out_high, out_wide, kh, kw, sh, sw, top,
             left, dh, dw)  # fmt: skip
    sizes = literals(*kinds)

    def emit(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> None:
        (lanes, images, filters, channels, high, wide, out_high, out_wide, kh, kw, sh, sw, top,
         left, dh, dw) = sizes  # fmt: skip
        gw, x, g = arguments
        code = GroupBuilder(builder, lanes)
        plane, out_plane = high * wide * lanes, out_high * out_wide * lanes
        across = runs(forward_taps(out_wide, wide, kw, sw, left, dw))
        # For each row of taps: the first of the rows of the result that reach the image, how many
        # there are, and the row of the image that the first one reads.
        reach = forward_taps(out_high, high, kh, sh, top, dh)
        entries = []
        for u in range(kh):
            found = [(i, pixel) for i, row in enumerate(reach) for tap, pixel in row if tap == u]
            entries.append((len(found), *(found[0] if found else (0, 0))))
        entry = code.table(entries, "reach")
        most_f, most_c = _gradient_block(filters, channels, kw)

        def tile(f_size: int, c_size: int, k: Any, c: Any, u: Any) -> None:
            zero = code.constant(0.0)
            # Where there are few sums there are several of each, for registers in turn.
            copies = max(1, min(4, INDEPENDENT // (f_size * c_size * kw)))
            each = max(1, copies * code.lanes // lanes)  # pixels
            sums = [
                [cgutils.alloca_once_value(builder, zero) for _ in range(copies * c_size * kw)]
                for _ in range(f_size)
            ]
            for of_filter in sums:
                for variable in of_filter:
                    builder.store(zero, variable)
            count, first, line = (entry(u, column) for column in range(3))
            with code.loop(images) as m, code.loop(count) as i:
                errors = code.at(
                    g, (m.index, filters * out_plane), (k, out_plane),
                    (builder.add(first, i.index), out_wide * lanes),
                )  # fmt: skip
                pixels_of_row = code.at(
                    x, (m.index, channels * plane), (c, plane), (line, wide * lanes),
                    (i.index, sh * wide * lanes),
                )  # fmt: skip
                for run in across:
                    if not run.taps:
                        continue

                    def body(place: ir.Value, pixel: ir.Value, pixels: int, run: Run = run) -> None:
                        at = code.at(errors, (place, lanes))
                        source = code.at(pixels_of_row, (pixel, lanes))
                        totals = code.load_all(sums)
                        for number, cell in enumerate(cells(lanes, pixels)):
                            values = [
                                tiles.load(code, at, f * out_plane, cell, run.step)
                                for f in range(f_size)
                            ]
                            first_sum = number % copies * c_size * kw
                            for n in range(c_size):
                                for tap, offset in zip(run.taps, run.offsets, strict=True):
                                    there = n * plane + offset * lanes
                                    vector = tiles.load(code, source, there, cell, run.move)
                                    to = first_sum + n * kw + tap
                                    for value, row in zip(values, totals, strict=True):
                                        row[to] = code.multiply_add(value, vector, row[to])
                        code.store_all(totals, sums)

                    each_tile(code, run, min(each, run.count), body)
            own = code.at(gw, (k, channels * kh * kw), (c, kh * kw), (u, kw))
            for f in range(f_size):
                for n in range(c_size):
                    for v in range(kw):
                        at = (f * channels + n) * kh * kw + v
                        found = builder.load(sums[f][n * kw + v])
                        for copy in range(1, copies):
                            more = builder.load(sums[f][(copy * c_size + n) * kw + v])
                            found = code.add(found, more)
                        total = code.reduce_add(found, code.load_scalar(own, at))
                        code.store_scalar(total, own, at)

        def over_channels(f_size: int, k: Any) -> None:
            if channels // most_c:
                with code.loop(channels // most_c) as c, code.loop(kh) as u:
                    tile(f_size, most_c, k, builder.mul(c.index, I64(most_c)), u.index)
            if channels % most_c:
                with code.loop(kh) as u:
                    first = I64(channels // most_c * most_c)
                    tile(f_size, channels % most_c, k, first, u.index)

        with code.loop(filters // most_f) as k:
            over_channels(most_f, builder.mul(k.index, I64(most_f)))
        if filters % most_f:
            over_channels(filters % most_f, I64(filters // most_f * most_f))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return as_function(context, builder, "conv_weight_gradient", sizes, arguments[:3], emit)

    return types.void(gw, x, g, *kinds), generate
