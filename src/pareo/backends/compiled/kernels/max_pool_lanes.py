"""Max pooling of as many planes at once as a register has lanes. float32 only.

A vector holds one pixel of each plane, so every loop is over whole vectors, however small a plane
is. Planes are copied into such vectors a strip of rows at a time, which stays in the second cache.
Rows that the windows of two strips share are kept for the next one.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

from pareo.array import Array
from pareo.backends.compiled.kernels.activations import NONE
from pareo.backends.compiled.kernels.channels_last import load, offsets, store
from pareo.backends.compiled.runtime.jit import jit, llvm_intrinsic
from pareo.backends.compiled.runtime.lanes import LANES, VECTOR, call_on_vectors
from pareo.backends.compiled.runtime.llvm_vectors import VectorBuilder

STRIP = 1 << 16  # floats of a strip's pixels


def strip_sizes(height: int, width: int, windows: int, taps: int, stride: int) -> tuple[int, int]:
    """How many rows of windows a strip has, and the most rows of pixels that they need.

    >>> strip_sizes(9, 9, windows=4, taps=3, stride=2)
    (4, 9)
    """
    rows = max(1, STRIP // (LANES * width))
    if rows >= height:
        return windows, height
    number = max(1, (rows - taps) // stride + 1)
    return number, min(height, number * stride + taps)


@jit
def _first_row(i: int, windows: int, stride: int, top: int, height: int) -> int:
    """The first row of pixels that a row of windows needs; all of them lie before the last."""
    return height if i >= windows else max(0, i * stride - top)


@jit
def _keep(buffer: Array, first: int, count: int) -> None:
    """Move `count` floats from `first` on to the beginning."""
    if first:
        for q in range(count):
            buffer[q] = buffer[first + q]


@llvm_intrinsic
def _larger(typingctx, most, values, step, count):  # type: ignore[no-untyped-def]
    """Vectors of maxima of two numbers, of which NaN is larger than all.

    The vectors `most` are side by side, and the others `step` bytes apart.
    """
    signature = types.void(*[types.int64] * 4)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        def write(code: VectorBuilder, arguments: Any) -> None:
            most, values, step, count = arguments
            inner = code.builder
            with cgutils.for_range(inner, count) as at:
                into = code.advance(most, at.index, LANES)
                seen, value = (
                    code.load(into),
                    code.load(inner.add(values, inner.mul(at.index, step))),
                )
                larger = inner.or_(
                    inner.fcmp_ordered(">", value, seen), inner.fcmp_unordered("uno", value, value)
                )
                code.store(inner.select(larger, value, seen), into)

        call_on_vectors(builder, "max_pool_larger", arguments, write)
        return context.get_dummy_value()

    return signature, generate


@llvm_intrinsic
def _give(typingctx, gradients, rest, best, laid, step, count):  # type: ignore[no-untyped-def]
    """Windows whose maximum is at this tap add their gradient there, and have none left.

    Windows are side by side, and their taps `step` bytes apart. A maximum that is NaN is equal to
    every NaN of its window.
    """
    signature = types.void(*[types.int64] * 6)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        def write(code: VectorBuilder, arguments: Any) -> None:
            gradients, rest, best, laid, step, count = arguments
            inner = code.builder
            with cgutils.for_range(inner, count) as at:
                window, tap = code.advance(rest, at.index, LANES), inner.mul(at.index, step)
                left, most = code.load(window), code.load(code.advance(best, at.index, LANES))
                value, total = code.load(inner.add(laid, tap)), inner.add(gradients, tap)
                equal, zero = inner.fcmp_ordered("==", value, most), code.constant(0.0)
                hit = inner.or_(equal, inner.fcmp_unordered("uno", value, value))
                given = inner.select(hit, left, zero)
                code.store(code.add(code.load(total), given), total)
                code.store(inner.select(hit, zero, left), window)

        call_on_vectors(builder, "max_pool_give", arguments, write)
        return context.get_dummy_value()

    return signature, generate


@jit
def _reached(tap: int, windows: int, width: int, stride: int, left: int) -> tuple[int, int]:
    """The first and the last window but one whose tap is inside the image."""
    first = max(0, -((tap - left) // stride))
    return first, max(first, min(windows, (width - 1 + left - tap) // stride + 1))


@jit
def _row_maxima(
    best: int, columns: Array, laid: Array, first: int, last: int, width: int, windows: int,
    kw: int, sw: int, left: int,
) -> None:  # fmt: skip
    """The maxima of a row of windows over rows first to last: of columns, then of windows."""
    columns[: width * LANES] = -np.inf
    for row in range(first, last):
        _larger(columns.ctypes.data, laid.ctypes.data + row * width * VECTOR, VECTOR, width)
    for tap in range(kw):
        begin, end = _reached(tap, windows, width, sw, left)
        pixel = columns.ctypes.data + (begin * sw + tap - left) * VECTOR
        _larger(best + begin * VECTOR, pixel, sw * VECTOR, end - begin)


@jit
def max_pool(
    out: Array, laid: Array, columns: Array, best: Array, x: Array, number: int,
    kh: int, kw: int, sh: int, sw: int, top: int, left: int, lo: int, hi: int,
) -> None:  # fmt: skip
    """Groups lo to hi of planes, `number` rows of windows in a strip."""
    (planes, high, wide), height, width = out.shape, x.shape[1], x.shape[2]
    pixels, results = offsets(height, width, width, LANES), offsets(number, wide, wide, LANES)
    line, nothing = width * LANES, np.zeros(LANES, out.dtype)
    for p in range(lo * LANES, min(hi * LANES, planes), LANES):
        own, loaded, base = min(LANES, planes - p), 0, 0
        for begin in range(0, high, number):
            end = min(begin + number, high)
            first = _first_row(begin, high, sh, top, height)
            last = min(height, (end - 1) * sh - top + kh)
            _keep(laid, (first - base) * line, max(0, loaded - first) * line)
            start = max(first, loaded)
            load(
                laid[(start - first) * line :], LANES, width, last - start, x, p, own, start, 0,
                pixels,
            )  # fmt: skip
            base, loaded = first, last
            best[: (end - begin) * wide * LANES] = -np.inf
            for i in range(begin, end):
                above, below = max(0, i * sh - top), min(height, i * sh - top + kh)
                _row_maxima(
                    best.ctypes.data + (i - begin) * wide * VECTOR,
                    columns,
                    laid,
                    above - base,
                    below - base,
                    width,
                    wide,
                    kw,
                    sw,
                    left,
                )
            store(out, p, own, begin, end - begin, best, LANES, nothing, NONE, results)


@jit
def max_pool_gradient(
    out: Array, laid: Array, columns: Array, best: Array, gradients: Array, rest: Array, g: Array,
    x: Array, number: int, kh: int, kw: int, sh: int, sw: int, top: int, left: int, lo: int,
    hi: int,
) -> None:  # fmt: skip
    """Groups lo to hi of planes, `number` rows of windows in a strip."""
    (planes, high, wide), height, width = g.shape, x.shape[1], x.shape[2]
    pixels, results = offsets(height, width, width, LANES), offsets(number, wide, wide, LANES)
    line, nothing = width * LANES, np.zeros(LANES, out.dtype)
    for p in range(lo * LANES, min(hi * LANES, planes), LANES):
        own, loaded, base = min(LANES, planes - p), 0, 0
        for begin in range(0, high, number):
            end = min(begin + number, high)
            first = _first_row(begin, high, sh, top, height)
            done = _first_row(end, high, sh, top, height)
            last = max(done, min(height, (end - 1) * sh - top + kh))
            shared = max(0, loaded - first)
            _keep(laid, (first - base) * line, shared * line)
            _keep(gradients, (first - base) * line, shared * line)
            gradients[shared * line : (last - first) * line] = 0
            start = first + shared
            load(
                laid[shared * line :], LANES, width, last - start, x, p, own, start, 0, pixels
            )  # fmt: skip
            load(rest, LANES, wide, end - begin, g, p, own, begin, 0, results)
            base, loaded = first, last
            for i in range(begin, end):
                above, below = max(0, i * sh - top), min(height, i * sh - top + kh)
                best[: wide * LANES] = -np.inf
                maxima, gap = best.ctypes.data, sw * VECTOR
                _row_maxima(
                    maxima, columns, laid, above - base, below - base, width, wide, kw, sw, left
                )
                gs = rest.ctypes.data + (i - begin) * wide * VECTOR
                for row in range(above - base, below - base):
                    for tap in range(kw):
                        j, end_j = _reached(tap, wide, width, sw, left)
                        at = (row * width + j * sw + tap - left) * VECTOR
                        _give(
                            gradients.ctypes.data + at, gs + j * VECTOR, maxima + j * VECTOR,
                            laid.ctypes.data + at, gap, end_j - j,
                        )  # fmt: skip
            store(out, p, own, first, done - first, gradients, LANES, nothing, NONE, pixels)
