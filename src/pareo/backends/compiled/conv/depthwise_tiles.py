"""Tiles of depthwise convolutions, written as LLVM instructions.

A tile is some rows of one vector each. Its sums stay in registers for all taps, and every pixel is
loaded once for all rows. Vectors at the right edge are masked. Images are read from buffers with
padding, where rows are `pitch` numbers apart; for stride 2, a row of the buffer has the even
columns first, and the odd ones `phase` numbers after them.

All functions take addresses. `kind` is any number of the dtype to compute in; it is not read.
"""

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from pareo.backends.compiled.runtime.llvm_vectors import literals

# As wide as the registers.
BYTES = 64 if llvm.get_host_cpu_features().get("avx512f") else 32
_FLAGS = ("contract", "nsz")
_I32, _I64 = ir.IntType(32), ir.IntType(64)


class _Tile:
    """Emits instructions on vectors of one register."""

    def __init__(self, builder: ir.IRBuilder, kind: Any) -> None:
        self.builder = builder
        single = kind == types.float32
        self.size = 4 if single else 8
        self.lanes = BYTES // self.size
        self.item = ir.FloatType() if single else ir.DoubleType()
        self.kind = ir.VectorType(self.item, self.lanes)
        self.name = f"v{self.lanes}{'f32' if single else 'f64'}"
        self.bits = ir.VectorType(ir.IntType(1), self.lanes)
        self.zero = ir.Constant(self.kind, [0.0] * self.lanes)

    def at(self, address: ir.Value, index: ir.Value | int) -> ir.Value:
        """The address of the number at an index."""
        if isinstance(index, int):
            return self.builder.add(address, _I64(index * self.size))
        return self.builder.add(address, self.builder.mul(index, _I64(self.size)))

    def _pointer(self, address: ir.Value, kind: Any) -> ir.Value:
        return self.builder.inttoptr(address, kind.as_pointer())

    def load(self, address: ir.Value) -> ir.Value:
        return self.builder.load(self._pointer(address, self.kind), align=self.size)

    def store(self, value: ir.Value, address: ir.Value) -> None:
        self.builder.store(value, self._pointer(address, self.kind), align=self.size)

    def everywhere(self, value: ir.Value, kind: Any = None) -> ir.Value:
        """One number in all lanes."""
        kind = kind or self.kind
        one = self.builder.insert_element(ir.Constant(kind, ir.Undefined), value, _I32(0))
        first = ir.Constant(ir.VectorType(_I32, self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), first)

    def broadcast(self, address: ir.Value) -> ir.Value:
        """The number at an address in all lanes."""
        pointer = self._pointer(address, self.item)
        return self.everywhere(self.builder.load(pointer, align=self.size))

    def mask(self, count: ir.Value) -> ir.Value:
        """The first `count` lanes."""
        kind = ir.VectorType(_I64, self.lanes)
        numbers = ir.Constant(kind, list(range(self.lanes)))
        return self.builder.icmp_signed("<", numbers, self.everywhere(count, kind))

    def _function(self, name: str, result: Any, kinds: list[Any]) -> Any:
        module = self.builder.module
        return module.globals.get(name) or ir.Function(module, ir.FunctionType(result, kinds), name)

    def load_some(self, address: ir.Value, mask: ir.Value) -> ir.Value:
        """The numbers of a mask's lanes; 0 in the others, whose memory is not read."""
        pointer = self._pointer(address, self.kind)
        kinds = [pointer.type, _I32, self.bits, self.kind]
        load = self._function(f"llvm.masked.load.{self.name}.p0", self.kind, kinds)
        return self.builder.call(load, [pointer, _I32(self.size), mask, self.zero])

    def store_some(self, value: ir.Value, address: ir.Value, mask: ir.Value) -> None:
        pointer = self._pointer(address, self.kind)
        kinds = [self.kind, pointer.type, _I32, self.bits]
        store = self._function(f"llvm.masked.store.{self.name}.p0", ir.VoidType(), kinds)
        self.builder.call(store, [value, pointer, _I32(self.size), mask])

    def multiply_add(self, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
        product = self.builder.fmul(a, b, flags=_FLAGS)
        return self.builder.fadd(product, total, flags=_FLAGS)

    def shuffle(self, a: ir.Value, b: ir.Value, lanes: list[int]) -> ir.Value:
        return self.builder.shuffle_vector(
            a, b, ir.Constant(ir.VectorType(_I32, len(lanes)), lanes)
        )


@intrinsic(prefer_literal=True)
def copy_row(typingctx, kind, target, source, count):  # type: ignore[no-untyped-def]
    """Copy `count` numbers; zeros follow, up to a whole vector."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, target, source, count = arguments
        code = _Tile(builder, signature.args[0])
        lanes = _I64(code.lanes)
        steps = builder.sdiv(builder.add(count, _I64(code.lanes - 1)), lanes)
        with cgutils.for_range(builder, steps) as loop:
            start = builder.mul(loop.index, lanes)
            mask = code.mask(builder.sub(count, start))
            code.store(code.load_some(code.at(source, start), mask), code.at(target, start))
        return context.get_dummy_value()

    return types.void(kind, target, source, count), generate


@intrinsic(prefer_literal=True)
def copy_row_by_parity(typingctx, kind, even, odd, source, count):  # type: ignore[no-untyped-def]
    """Copy `count` numbers, every second one to `even`, the others to `odd`; zeros follow."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, even, odd, source, count = arguments
        code = _Tile(builder, signature.args[0])
        both = _I64(2 * code.lanes)
        steps = builder.sdiv(builder.add(count, _I64(2 * code.lanes - 1)), both)
        with cgutils.for_range(builder, steps) as loop:
            start = builder.mul(loop.index, both)
            left = builder.sub(count, start)
            first = code.load_some(code.at(source, start), code.mask(left))
            after = builder.sub(left, _I64(code.lanes))
            second = code.load_some(code.at(code.at(source, start), code.lanes), code.mask(after))
            target = builder.mul(loop.index, _I64(code.lanes))
            for parity, place in enumerate((even, odd)):
                picked = list(range(parity, 2 * code.lanes, 2))
                code.store(code.shuffle(first, second, picked), code.at(place, target))
        return context.get_dummy_value()

    return types.void(kind, even, odd, source, count), generate


@intrinsic(prefer_literal=True)
def convolve_rows(  # type: ignore[no-untyped-def]
    typingctx, kind, out, across, x, pitch, phase, w, bias, width, rows, kh, kw, stride, adds
):
    """`rows` rows of outputs, `width` wide and `across` numbers apart, from the buffer at x.

    With `adds`, they are added to what is there; otherwise to the number at `bias`.
    """
    sizes = literals(rows, kh, kw, stride, adds)
    signature = types.void(
        kind, out, across, x, pitch, phase, w, bias, width, rows, kh, kw, stride, adds
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, kh, kw, stride, adds = sizes
        _, out, across, x, pitch, phase, w, bias, width = arguments[:9]
        code = _Tile(builder, signature.args[0])
        lanes = _I64(code.lanes)
        lines = [code.at(x, builder.mul(pitch, _I64(q))) for q in range((rows - 1) * stride + kh)]
        targets = [code.at(out, builder.mul(across, _I64(r))) for r in range(rows)]
        steps = builder.sdiv(builder.add(width, _I64(code.lanes - 1)), lanes)
        with cgutils.for_range(builder, steps) as loop:
            start = builder.mul(loop.index, lanes)
            mask = code.mask(builder.sub(width, start))
            places = [code.at(target, start) for target in targets]
            if adds:
                sums = [code.load_some(place, mask) for place in places]
            else:
                sums = [code.broadcast(bias)] * rows
            for q, line in enumerate(lines):
                here = code.at(line, start)
                for v in range(kw):
                    taps = [(r, q - r * stride) for r in range(rows) if 0 <= q - r * stride < kh]
                    if not taps:
                        continue
                    shifted = code.at(here, phase) if v % stride else here
                    pixels = code.load(code.at(shifted, v // stride))
                    for r, u in taps:
                        weight = code.broadcast(code.at(w, u * kw + v))
                        sums[r] = code.multiply_add(weight, pixels, sums[r])
            for total, place in zip(sums, places, strict=True):
                code.store_some(total, place, mask)
        return context.get_dummy_value()

    return signature, generate


@intrinsic(prefer_literal=True)
def spread_rows(typingctx, kind, out, across, g, pitch, w, width, rows, kh, kw, top, left, adds):  # type: ignore[no-untyped-def]
    """One or two rows of the images' gradient for stride 2, from the buffer of gradients at g."""
    sizes = literals(rows, kh, kw, top, left, adds)
    signature = types.void(kind, out, across, g, pitch, w, width, rows, kh, kw, top, left, adds)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, kh, kw, top, left, adds = sizes
        _, out, across, g, pitch, w, width = arguments[:7]
        code = _Tile(builder, signature.args[0])
        both = _I64(2 * code.lanes)
        steps = builder.sdiv(builder.add(width, _I64(2 * code.lanes - 1)), both)
        with cgutils.for_range(builder, steps) as loop:
            start = builder.mul(loop.index, both)
            here = code.at(g, builder.mul(loop.index, _I64(code.lanes)))
            remaining = builder.sub(width, start)
            masks = [
                code.mask(remaining), code.mask(builder.sub(remaining, _I64(code.lanes)))
            ]  # fmt: skip
            for r in range(rows):
                sums = [code.zero, code.zero]  # of even and of odd columns
                for u in range(kh):
                    if (r + top - u) % 2:
                        continue
                    line = code.at(here, builder.mul(pitch, _I64((r + top - u) // 2)))
                    for v in range(kw):
                        parity = (left + v) % 2
                        values = code.load(code.at(line, (parity + left - v) // 2))
                        weight = code.broadcast(code.at(w, u * kw + v))
                        sums[parity] = code.multiply_add(weight, values, sums[parity])
                target = code.at(code.at(out, builder.mul(across, _I64(r))), start)
                for half, mask in enumerate(masks):
                    first = half * code.lanes // 2
                    picked = [first + k // 2 + (k % 2) * code.lanes for k in range(code.lanes)]
                    place = code.at(target, half * code.lanes)
                    value = code.shuffle(sums[0], sums[1], picked)
                    if adds:
                        value = builder.fadd(value, code.load_some(place, mask), flags=_FLAGS)
                    code.store_some(value, place, mask)
        return context.get_dummy_value()

    return signature, generate


@intrinsic(prefer_literal=True)
def sum_rows(typingctx, kind, sums, g, across, x, pitch, phase, width, rows, kh, kw, stride):  # type: ignore[no-untyped-def]
    """Add the products of `rows` rows of gradients with their pixels to a vector for each tap."""
    sizes = literals(rows, kh, kw, stride)
    signature = types.void(kind, sums, g, across, x, pitch, phase, width, rows, kh, kw, stride)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, kh, kw, stride = sizes
        _, sums, g, across, x, pitch, phase, width = arguments[:8]
        code = _Tile(builder, signature.args[0])
        lanes = _I64(code.lanes)
        lines = [code.at(x, builder.mul(pitch, _I64(q))) for q in range((rows - 1) * stride + kh)]
        gradients = [code.at(g, builder.mul(across, _I64(r))) for r in range(rows)]
        places = [code.at(sums, tap * code.lanes) for tap in range(kh * kw)]
        totals = [cgutils.alloca_once_value(builder, code.load(place)) for place in places]
        steps = builder.sdiv(builder.add(width, _I64(code.lanes - 1)), lanes)
        with cgutils.for_range(builder, steps) as loop:
            start = builder.mul(loop.index, lanes)
            mask = code.mask(builder.sub(width, start))
            values = [code.load_some(code.at(line, start), mask) for line in gradients]
            for q, line in enumerate(lines):
                here = code.at(line, start)
                for v in range(kw):
                    taps = [(r, q - r * stride) for r in range(rows) if 0 <= q - r * stride < kh]
                    if not taps:
                        continue
                    shifted = code.at(here, phase) if v % stride else here
                    pixels = code.load(code.at(shifted, v // stride))
                    for r, u in taps:
                        place = totals[u * kw + v]
                        before = builder.load(place)
                        after = code.multiply_add(values[r], pixels, before)
                        # Pixels beyond the width may be infinite, and 0 times that is NaN.
                        builder.store(builder.select(mask, after, before), place)
        for place, total in zip(places, totals, strict=True):
            code.store(builder.load(total), place)
        return context.get_dummy_value()

    return signature, generate
