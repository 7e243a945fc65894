"""Tiles of depthwise convolutions, written as LLVM instructions.

A tile is some rows of one vector each. Its sums stay in registers for all taps, and every pixel is
loaded once for all rows. The last vector of a row ends where the row ends, so that it overlaps the
one before; only rows shorter than a vector are masked, because many processors have no masks.
Images are read from buffers with padding, where rows are `pitch` numbers apart; for stride 2, a row
of the buffer has the even columns first, and the odd ones `phase` numbers after them.

All functions take addresses. `kind` is any number of the dtype to compute in; it is not read.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from pareo.backends.compiled.runtime.llvm_vectors import literals

_FEATURES = llvm.get_host_cpu_features()
# As wide as the registers.
BYTES = 64 if _FEATURES.get("avx512f") else 32 if _FEATURES.get("avx") else 16
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

    def along(
        self, width: ir.Value, step: int, body: Callable[[ir.Value, ir.Value | None], None],
        whole: bool = True,
    ) -> None:  # fmt: skip
        """Call body(start, remaining) for every `step` numbers of a row of `width`.

        `remaining` is None where all numbers are there: everywhere, unless the row is shorter than
        a step, or the step is even and the row is not. Without `whole`, it is always given.
        """
        builder, size = self.builder, _I64(step)
        steps = builder.sdiv(builder.add(width, _I64(step - 1)), size)

        def masked() -> None:
            with cgutils.for_range(builder, steps) as loop:
                start = builder.mul(loop.index, size)
                body(start, builder.sub(width, start))

        if not whole:
            masked()
            return
        last = builder.sub(width, size)
        is_whole = builder.icmp_signed(">=", last, _I64(0))
        if step > self.lanes:  # pairs of columns stay together
            is_even = builder.icmp_signed("==", builder.and_(width, _I64(1)), _I64(0))
            is_whole = builder.and_(is_whole, is_even)
        with builder.if_else(is_whole) as (then, otherwise):
            with then, cgutils.for_range(builder, steps) as loop:
                start = builder.mul(loop.index, size)
                is_last = builder.icmp_signed(">", start, last)
                body(builder.select(is_last, last, start), None)
            with otherwise:
                masked()

    def load_up_to(self, address: ir.Value, remaining: ir.Value | None) -> ir.Value:
        """A vector, or with a number of them its first lanes."""
        if remaining is None:
            return self.load(address)
        return self.load_some(address, self.mask(remaining))

    def store_up_to(self, value: ir.Value, address: ir.Value, remaining: ir.Value | None) -> None:
        if remaining is None:
            self.store(value, address)
        else:
            self.store_some(value, address, self.mask(remaining))

    def shuffle(self, a: ir.Value, b: ir.Value, lanes: list[int]) -> ir.Value:
        return self.builder.shuffle_vector(
            a, b, ir.Constant(ir.VectorType(_I32, len(lanes)), lanes)
        )


@intrinsic(prefer_literal=True)
def copy_row(typingctx, kind, target, source, count):  # type: ignore[no-untyped-def]
    """Copy `count` numbers; what follows is not changed, or becomes zero up to a whole vector."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, target, source, count = arguments
        code = _Tile(builder, signature.args[0])

        def copy(start: ir.Value, remaining: ir.Value | None) -> None:
            code.store(code.load_up_to(code.at(source, start), remaining), code.at(target, start))

        code.along(count, code.lanes, copy)
        return context.get_dummy_value()

    return types.void(kind, target, source, count), generate


@intrinsic(prefer_literal=True)
def copy_row_by_parity(typingctx, kind, even, odd, source, count):  # type: ignore[no-untyped-def]
    """Copy `count` numbers likewise, every second one to `even`, the others to `odd`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, even, odd, source, count = arguments
        code = _Tile(builder, signature.args[0])
        lanes = code.lanes

        def copy(start: ir.Value, remaining: ir.Value | None) -> None:
            after = None if remaining is None else builder.sub(remaining, _I64(lanes))
            here = code.at(source, start)
            first = code.load_up_to(here, remaining)
            second = code.load_up_to(code.at(here, lanes), after)
            target = builder.ashr(start, _I64(1))
            for parity, place in enumerate((even, odd)):
                picked = list(range(parity, 2 * lanes, 2))
                code.store(code.shuffle(first, second, picked), code.at(place, target))

        code.along(count, 2 * lanes, copy)
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
        lines = [code.at(x, builder.mul(pitch, _I64(q))) for q in range((rows - 1) * stride + kh)]
        targets = [code.at(out, builder.mul(across, _I64(r))) for r in range(rows)]

        def convolve(start: ir.Value, remaining: ir.Value | None) -> None:
            places = [code.at(target, start) for target in targets]
            if adds:
                sums = [code.load_up_to(place, remaining) for place in places]
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
                code.store_up_to(total, place, remaining)

        code.along(width, code.lanes, convolve, whole=not adds)
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

        def spread(r: int, start: ir.Value, remaining: ir.Value | None) -> None:
            here = code.at(g, builder.ashr(start, _I64(1)))
            after = None if remaining is None else builder.sub(remaining, _I64(code.lanes))
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
            for half, count in enumerate((remaining, after)):
                first = half * code.lanes // 2
                picked = [first + k // 2 + (k % 2) * code.lanes for k in range(code.lanes)]
                place = code.at(target, half * code.lanes)
                value = code.shuffle(sums[0], sums[1], picked)
                if adds:
                    value = builder.fadd(value, code.load_up_to(place, count), flags=_FLAGS)
                code.store_up_to(value, place, count)

        for r in range(rows):  # one after the other: memory is written fastest in its order
            code.along(width, 2 * code.lanes, partial(spread, r), whole=not adds)
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
        lines = [code.at(x, builder.mul(pitch, _I64(q))) for q in range((rows - 1) * stride + kh)]
        gradients = [code.at(g, builder.mul(across, _I64(r))) for r in range(rows)]
        places = [code.at(sums, tap * code.lanes) for tap in range(kh * kw)]
        totals = [cgutils.alloca_once_value(builder, code.load(place)) for place in places]

        def add_up(start: ir.Value, values: list[ir.Value], mask: ir.Value | None) -> None:
            for q, line in enumerate(lines):
                here = code.at(line, start)
                for v in range(kw):
                    taps = [(r, q - r * stride) for r in range(rows) if 0 <= q - r * stride < kh]
                    if not taps:
                        continue
                    shifted = code.at(here, phase) if v % stride else here
                    pixels = code.load(code.at(shifted, v // stride))
                    if mask is not None:  # they may be infinite, and 0 times that is NaN
                        pixels = builder.select(mask, pixels, code.zero)
                    for r, u in taps:
                        place = totals[u * kw + v]
                        total = code.multiply_add(values[r], pixels, builder.load(place))
                        builder.store(total, place)

        lanes = _I64(code.lanes)
        count = builder.sdiv(width, lanes)
        with cgutils.for_range(builder, count) as loop:
            start = builder.mul(loop.index, lanes)
            add_up(start, [code.load(code.at(line, start)) for line in gradients], None)
        done = builder.mul(count, lanes)
        with builder.if_then(builder.icmp_signed("<", done, width)):
            _add_up_rest(code, gradients, width, done, add_up)
        for place, total in zip(places, totals, strict=True):
            code.store(builder.load(total), place)
        return context.get_dummy_value()

    return signature, generate


def _add_up_rest(
    code: _Tile, gradients: list[ir.Value], width: ir.Value, done: ir.Value,
    add_up: Callable[[ir.Value, list[ir.Value], ir.Value], None],
) -> None:  # fmt: skip
    """Add the end of a row: with a vector that ends there, where it has a whole one."""
    builder, lanes = code.builder, _I64(code.lanes)
    is_long = builder.icmp_signed(">", done, _I64(0))
    start = builder.select(is_long, builder.sub(width, lanes), _I64(0))
    values = [cgutils.alloca_once(builder, code.kind) for _ in gradients]
    with builder.if_else(is_long) as (then, otherwise):
        with then:
            for place, line in zip(values, gradients, strict=True):
                builder.store(code.load(code.at(line, start)), place)
        with otherwise:
            mask = code.mask(width)
            for place, line in zip(values, gradients, strict=True):
                builder.store(code.load_some(line, mask), place)
    # The lanes from `done` on, and before the end of a short row.
    seen = code.mask(builder.sub(done, start))
    mask = builder.and_(builder.not_(seen), code.mask(builder.sub(width, start)))
    loaded = [builder.select(mask, builder.load(place), code.zero) for place in values]
    add_up(start, loaded, mask)
