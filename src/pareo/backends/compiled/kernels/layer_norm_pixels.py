"""Layer normalisation over the channels of images (before, channels, pixels): a vector of pixels.

The sums of a pixel stay in registers while its channels are read. float32, and LONGEST channels at
most; `layer_norm` has plain loops for others.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from pareo.array import Array
from pareo.backends.compiled.kernels.layer_norm_pieces import LONGEST
from pareo.backends.compiled.kernels.vectors_of_columns import (
    clear,
    each_group,
    each_row,
    places,
)
from pareo.backends.compiled.runtime.jit import jit, llvm_intrinsic
from pareo.backends.compiled.runtime.lanes import LANES, VECTOR, call_on_vectors
from pareo.backends.compiled.runtime.llvm_vectors import VectorBuilder
from pareo.spec import Spec

PIECE = 512  # pixels of an image that are work for a thread
_I64, _FLOAT = ir.IntType(64), ir.FloatType()
_Vectors = Sequence[VectorBuilder]


def suits(x: Array | Spec, channels: int) -> bool:
    """Whether the loops here are for arrays of this kind."""
    return x.dtype == np.float32 and channels <= LONGEST


@llvm_intrinsic
def _normalise(typingctx, out, x, scale, shift, channels, gap, count, epsilon):  # type: ignore[no-untyped-def]
    """`count` pixels of an image, whose channels lie `gap` bytes apart."""
    signature = types.void(*[types.int64] * 7, types.float32)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        call_on_vectors(builder, "layer_norm pixels", arguments, _write)
        return context.get_dummy_value()

    return signature, generate


@llvm_intrinsic
def _gradients(typingctx, gx, by_scale, by_shift, g, x, scale, channels, gap, count, epsilon):  # type: ignore[no-untyped-def]
    """The same for gradients; a vector of by_scale and by_shift for each channel is added to."""
    signature = types.void(*[types.int64] * 9, types.float32)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        call_on_vectors(builder, "layer_norm pixel gradients", arguments, _write_gradients)
        return context.get_dummy_value()

    return signature, generate


class _Pixels:
    """Some vectors of pixels, of which all channels are read several times."""

    def __init__(
        self, columns: _Vectors, offset: ir.Value, x: ir.Value, channels: ir.Value, gap: ir.Value,
        epsilon: ir.Value,
    ) -> None:  # fmt: skip
        self.columns, self.code = columns, columns[0]
        self.builder = self.code.builder
        self.offset, self.x, self.channels, self.gap = offset, x, channels, gap
        self.plain = VectorBuilder(self.builder, LANES)
        size = self.plain.broadcast(self.builder.uitofp(channels, _FLOAT))
        self.share = self.builder.fdiv(self.plain.constant(1.0), size)
        self.near, self.rest, self.by = self._statistics(epsilon)

    def sums(self) -> list[ir.Value]:
        made = places(self.plain, len(self.columns))
        clear(self.plain, made)
        return made

    def add(self, value: ir.Value, place: ir.Value) -> None:
        self.builder.store(self.plain.add(self.builder.load(place), value), place)

    def means(self, sums: Sequence[ir.Value]) -> list[ir.Value]:
        return [self.plain.multiply(self.builder.load(place), self.share) for place in sums]

    def _statistics(
        self, epsilon: ir.Value
    ) -> tuple[list[ir.Value], list[ir.Value], list[ir.Value]]:
        """The mean of each pixel in two parts, and 1 / sqrt(variance + epsilon)."""
        builder, plain = self.builder, self.plain
        first, second = self.sums(), self.sums()

        def add_up(addresses: list[ir.Value]) -> None:
            for j, each in enumerate(self.columns):
                self.add(each.load(addresses[0], LANES * j), first[j])

        source = [(self.x, self.gap)]
        each_row(plain, self.channels, self.offset, source, add_up)
        near = self.means(first)
        clear(plain, first)

        def add_distances(addresses: list[ir.Value]) -> None:
            for j, each in enumerate(self.columns):
                distance = plain.subtract(each.load(addresses[0], LANES * j), near[j])
                self.add(distance, first[j])
                self.add(plain.multiply(distance, distance), second[j])

        each_row(plain, self.channels, self.offset, source, add_distances)
        rest, zero, one = self.means(first), plain.constant(0.0), plain.constant(1.0)
        added, inverses = plain.broadcast(epsilon), []
        name, kind = f"llvm.sqrt.v{LANES}f32", ir.FunctionType(plain.kind, [plain.kind])
        root = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        for mean, square in zip(rest, self.means(second), strict=True):
            variance = plain.subtract(square, plain.multiply(mean, mean))
            kept = builder.fcmp_unordered(">", variance, zero)  # true for NaN
            variance = plain.add(builder.select(kept, variance, zero), added)
            inverses.append(builder.fdiv(one, builder.call(root, [variance])))
        return near, rest, inverses

    def normalised(self, j: int, address: ir.Value) -> ir.Value:
        """Vector j of a channel, normalised; 0 in lanes that are not used."""
        each, plain = self.columns[j], self.plain
        distance = plain.subtract(each.load(address, LANES * j), self.near[j])
        distance = each.kept(plain.subtract(distance, self.rest[j]))
        return plain.multiply(distance, self.by[j])


def _write(code: VectorBuilder, arguments: Sequence[ir.Value]) -> None:
    out, x, scale, shift, channels, gap, count, epsilon = arguments
    four = _I64(4)

    def write(columns: _Vectors, offset: ir.Value) -> None:
        pixels = _Pixels(columns, offset, x, channels, gap, epsilon)

        def one(addresses: list[ir.Value]) -> None:
            target, own, by, level = addresses
            factor, term = (
                code.load_broadcast(code.builder.sub(place, offset)) for place in (by, level)
            )
            for j, each in enumerate(columns):
                value = code.multiply_add(pixels.normalised(j, own), factor, term)
                each.store(value, target, LANES * j)

        arrays = [(out, gap), (x, gap), (scale, four), (shift, four)]
        each_row(code, channels, offset, arrays, one)

    each_group(code, count, write)


def _write_gradients(code: VectorBuilder, arguments: Sequence[ir.Value]) -> None:
    gx, by_scale, by_shift, g, x, scale, channels, gap, count, epsilon = arguments
    builder, four, line = code.builder, _I64(4), _I64(VECTOR)

    def write(columns: _Vectors, offset: ir.Value) -> None:
        pixels = _Pixels(columns, offset, x, channels, gap, epsilon)
        totals, inners = pixels.sums(), pixels.sums()

        def add_up(addresses: list[ir.Value]) -> None:
            given, own, *others = addresses
            factor, scales, shifts = (builder.sub(place, offset) for place in others)
            by = code.load_broadcast(factor)
            scaled, shifted = code.load(scales), code.load(shifts)
            for j, each in enumerate(columns):
                value, error = pixels.normalised(j, own), each.load(given, LANES * j)
                scaled, shifted = code.multiply_add(error, value, scaled), code.add(shifted, error)
                slope = code.multiply(error, by)
                pixels.add(slope, totals[j])
                pixels.add(code.multiply(slope, value), inners[j])
            code.store(scaled, scales)
            code.store(shifted, shifts)

        arrays = [(g, gap), (x, gap), (scale, four), (by_scale, line), (by_shift, line)]
        each_row(code, channels, offset, arrays, add_up)
        levels, tilts = pixels.means(totals), pixels.means(inners)

        def one(addresses: list[ir.Value]) -> None:
            target, given, own, factor = addresses
            by = code.load_broadcast(builder.sub(factor, offset))
            for j, each in enumerate(columns):
                slope = code.multiply(each.load(given, LANES * j), by)
                lowered = code.subtract(slope, levels[j])
                tilted = code.multiply(pixels.normalised(j, own), tilts[j])
                result = code.multiply(pixels.by[j], code.subtract(lowered, tilted))
                each.store(result, target, LANES * j)

        each_row(code, channels, offset, [(gx, gap), (g, gap), (x, gap), (scale, four)], one)

    each_group(code, count, write)


@jit
def _pieces(pixels: int) -> int:
    return -(-pixels // PIECE)


pieces: Callable[[int], int] = _pieces.py_func  # the pieces of each image


@jit
def _place(a: Array, i: int, low: int) -> int:
    """The address of a pixel of an image."""
    return a.ctypes.data + 4 * (i * a.shape[1] * a.shape[2] + low)


@jit
def forward(
    out: Array, x: Array, scale: Array, shift: Array, epsilon: float, lo: int, hi: int
) -> None:
    """Pieces lo to hi of all images."""
    _, channels, pixels = x.shape
    each = _pieces(pixels)
    for piece in range(lo, hi):
        i, low = piece // each, piece % each * PIECE
        _normalise(
            _place(out, i, low), _place(x, i, low), scale.ctypes.data, shift.ctypes.data,
            channels, 4 * pixels, min(PIECE, pixels - low), np.float32(epsilon),
        )  # fmt: skip


@jit
def backward(
    gx: Array, by_scale: Array, by_shift: Array, g: Array, x: Array, scale: Array, epsilon: float,
    lo: int, hi: int,
) -> None:  # fmt: skip
    """Pieces lo to hi of all images; by_scale and by_shift, in double precision, are added to."""
    _, channels, pixels = x.shape
    each = _pieces(pixels)
    sums = np.zeros((2, channels, LANES), np.float32)  # of one piece
    for piece in range(lo, hi):
        i, low = piece // each, piece % each * PIECE
        _gradients(
            _place(gx, i, low), sums[0].ctypes.data, sums[1].ctypes.data, _place(g, i, low),
            _place(x, i, low), scale.ctypes.data, channels, 4 * pixels, min(PIECE, pixels - low),
            np.float32(epsilon),
        )  # fmt: skip
        for c in range(channels):
            for lane in range(LANES):
                by_scale[c] += sums[0, c, lane]
                by_shift[c] += sums[1, c, lane]
        sums[:] = 0
