"""Products of a small batch with weights, a tile of the result in registers at a time.

BLAS first copies the weights into an order that pays off when they are read often. With a small
batch they are read once, and the copy takes up to half of the time. Here they are read where they
are. The tiles are written as LLVM instructions; all matrices are given by the address of an
element and by the bytes from row to row. float32 only.

A tile is a function of its number of rows, at most `ROWS`, of the columns that a narrow tile has,
of three matrices, of the length of the sums and of a factor.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from pareo.backends.compiled.runtime import native, registers
from pareo.backends.compiled.runtime.jit import llvm_intrinsic
from pareo.backends.compiled.runtime.llvm_vectors import MaskedVectors, VectorBuilder

ROWS = 4  # of a tile, at most
QUAD = 4  # floats of Arm's registers, whose products can take one lane of a vector
COLUMNS_AT_ONCE = 4 if registers.COUNT == 32 else 2  # of d @ w.T
PANEL_VECTORS = 4 if registers.HAS_AVX512 else 2
CHAINS, LONG = 8, 64  # sums that a processor adds to at the same time; numbers of a long one
LINE = 64  # bytes of a cache line
_I64 = ir.IntType(64)


@dataclass(frozen=True)
class _Tile:
    """The arguments of a tile, of which the number of rows is known."""

    builder: Any
    rows: int
    tail: Any
    out: Any
    out_row: Any
    a: Any
    a_row: Any
    b: Any
    b_row: Any
    count: Any
    factor: Any

    def vectors(self, lanes: int, is_narrow: bool) -> VectorBuilder:
        """Instructions on vectors, of which a narrow tile uses the first few lanes."""
        if is_narrow:
            return MaskedVectors(self.builder, lanes, self.tail)
        return VectorBuilder(self.builder, lanes)

    def add_bytes(self, address: Any, row: Any, number: int) -> Any:
        """An address, some rows further."""
        if not number:
            return address
        return self.builder.add(address, self.builder.mul(row, _I64(number)))

    def sums(self, code: VectorBuilder, columns: int) -> list[list[Any]]:
        """Places for a tile of sums, set to 0."""
        zero = code.constant(0.0)
        return [
            [cgutils.alloca_once_value(self.builder, zero) for _ in range(columns)]
            for _ in range(self.rows)
        ]

    def clear(self, places: list[list[Any]], code: VectorBuilder) -> None:
        """Set sums to 0 again."""
        for place in (place for row in places for place in row):
            self.builder.store(code.constant(0.0), place)

    def add_to(self, place: Any, code: VectorBuilder, a: Any, b: Any) -> None:
        """Add a product to a sum."""
        self.builder.store(code.multiply_add(a, b, self.builder.load(place)), place)

    def prefetch(self, address: Any) -> None:
        """Have the line of an address read into the fastest cache."""
        pointer, module = ir.IntType(8).as_pointer(), self.builder.module
        kind = ir.FunctionType(ir.VoidType(), [pointer, *[ir.IntType(32)] * 3])
        name = "llvm.prefetch.p0"
        function = module.globals.get(name) or ir.Function(module, kind, name)
        numbers = [ir.IntType(32)(number) for number in (0, 3, 1)]  # to read, often, data
        self.builder.call(function, [self.builder.inttoptr(address, pointer), *numbers])

    def in_groups(
        self, size: int, group: Callable[[Any], None], rest: Callable[[Any, Any], None]
    ) -> None:
        """Emit group(index) for whole groups of `count` items; rest(index, number) for others."""
        builder = self.builder
        with cgutils.for_range(builder, builder.sdiv(self.count, _I64(size))) as loop:
            group(builder.mul(loop.index, _I64(size)))
        left = builder.srem(self.count, _I64(size))
        with builder.if_then(builder.icmp_signed(">", left, _I64(0))):
            rest(builder.sub(self.count, left), left)


def _function(emit: Callable[[_Tile], None], *name: object) -> Any:
    """A function that runs one of the codes that `emit` writes for 1 to ROWS rows."""
    full = "_".join(map(str, (*name, registers.LANES)))

    @llvm_intrinsic
    def tile(typingctx, rows, tail, out, out_row, a, a_row, b, b_row, count, factor):  # type: ignore[no-untyped-def]
        signature = types.void(*[types.int64] * 9, types.float32)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            native.call(builder, full, arguments, lambda inner, own: _write(inner, own, emit))
            return context.get_dummy_value()

        return signature, generate

    return tile


def _write(builder: Any, arguments: Sequence[Any], emit: Callable[[_Tile], None]) -> None:
    """The body of a tile's function."""
    done = builder.append_basic_block("done")
    choice = builder.switch(arguments[0], done)
    for rows in range(1, ROWS + 1):
        block = builder.append_basic_block(f"rows{rows}")
        choice.add_case(_I64(rows), block)
        builder.position_at_end(block)
        emit(_Tile(builder, rows, *arguments[1:]))
        builder.branch(done)
    builder.position_at_end(done)


def forward_tile(vectors: int, lanes: int, is_narrow: bool = False) -> Any:
    """A function for a tile of out += a @ b, of some vectors of columns."""

    def emit(t: _Tile) -> None:
        # A sum waits for the one before, so long ones of few results are added up in parts.
        parts = min(QUAD, CHAINS // (t.rows * vectors))
        if parts < 2:
            multiply(t, 1)
            return
        is_long = t.builder.icmp_signed(">=", t.count, _I64(LONG))
        with t.builder.if_else(is_long) as (then, otherwise):
            with then:
                multiply(t, parts)
            with otherwise:
                multiply(t, 1)

    def multiply(t: _Tile, parts: int) -> None:
        builder, code = t.builder, t.vectors(lanes, is_narrow)
        quad = VectorBuilder(builder, QUAD)
        sums = [t.sums(code, vectors) for _ in range(parts)]
        for part in sums:
            t.clear(part, code)

        def add(k: Any, factors: Sequence[Any], into: list[list[Any]]) -> None:
            place = builder.add(t.b, builder.mul(t.b_row, k))
            if vectors > 1:
                next_tile = builder.add(place, _I64(4 * lanes * vectors))
                for line in range(0, 4 * lanes * vectors, LINE):
                    t.prefetch(builder.add(next_tile, _I64(line)))
            given = [code.load(place, lanes * j) for j in range(vectors)]
            for i in range(t.rows):
                for j in range(vectors):
                    t.add_to(into[i][j], code, given[j], factors[i])

        def own(k: Any) -> list[Any]:
            shift = builder.mul(k, _I64(4))
            return [builder.add(t.add_bytes(t.a, t.a_row, i), shift) for i in range(t.rows)]

        def four(k: Any) -> None:
            if lanes == QUAD:
                loaded = [quad.load(place) for place in own(k)]
            for n in range(QUAD):
                at = builder.add(k, _I64(n))
                if lanes == QUAD:
                    factors = [code.broadcast_lane(vector, n) for vector in loaded]
                else:
                    factors = [code.load_broadcast(place) for place in own(at)]
                add(at, factors, sums[n % parts])

        def others(k: Any, number: Any) -> None:
            with cgutils.for_range(builder, number) as loop:
                at = builder.add(k, loop.index)
                add(at, [code.load_broadcast(place) for place in own(at)], sums[0])

        t.in_groups(QUAD, four, others)
        for i in range(t.rows):
            place = t.add_bytes(t.out, t.out_row, i)
            for j in range(vectors):
                total = code.load(place, lanes * j)
                for part in sums:
                    total = code.add(total, builder.load(part[i][j]))
                code.store(total, place, lanes * j)

    return _function(emit, "forward", vectors, lanes, is_narrow)


def panel(depth: int) -> Any:
    """A function for rows of out += a @ b, for `depth` rows of b from one end to the other.

    `count` is the number of groups of PANEL_VECTORS vectors of columns.
    """
    lanes, vectors = registers.LANES, PANEL_VECTORS

    def emit(t: _Tile) -> None:
        builder, code = t.builder, t.vectors(lanes, False)
        rows = [t.add_bytes(t.a, t.a_row, i) for i in range(t.rows)]
        # Arm keeps the factors in registers; elsewhere each would take a register of its own.
        kept = [
            [code.load(row, k) for k in range(0, depth, lanes)] for row in rows if lanes == QUAD
        ]
        with cgutils.for_range(builder, t.count) as loop:
            shift = builder.mul(loop.index, _I64(4 * lanes * vectors))
            target, given = builder.add(t.out, shift), builder.add(t.b, shift)
            places = [t.add_bytes(target, t.out_row, i) for i in range(t.rows)]
            sums = [[code.load(place, lanes * j) for j in range(vectors)] for place in places]
            for k in range(depth):
                place = t.add_bytes(given, t.b_row, k)
                loaded = [code.load(place, lanes * j) for j in range(vectors)]
                for i in range(t.rows):
                    if lanes == QUAD:
                        by = code.broadcast_lane(kept[i][k // lanes], k % lanes)
                    else:
                        by = code.load_broadcast(rows[i], k)
                    for j in range(vectors):
                        sums[i][j] = code.multiply_add(loaded[j], by, sums[i][j])
            for i in range(t.rows):
                for j in range(vectors):
                    code.store(sums[i][j], places[i], lanes * j)

    return _function(emit, "panel", depth)


def transposed_tile(columns: int) -> Any:
    """A function for a tile of out = a @ b.T: the products of some rows of a with some of b."""
    lanes = registers.LANES

    def emit(t: _Tile) -> None:
        builder, code = t.builder, t.vectors(lanes, False)
        sums = t.sums(code, columns)
        t.clear(sums, code)

        def add(of: VectorBuilder, into: list[list[Any]], k: Any) -> None:
            shift = builder.mul(k, _I64(4))
            left, right = builder.add(t.a, shift), builder.add(t.b, shift)
            given = [of.load(t.add_bytes(right, t.b_row, j)) for j in range(columns)]
            for i in range(t.rows):
                own = of.load(t.add_bytes(left, t.a_row, i))
                for j in range(columns):
                    t.add_to(into[i][j], of, own, given[j])

        def others(k: Any, number: Any) -> None:
            if registers.IS_X86:
                add(MaskedVectors(builder, lanes, number), sums, k)
                return
            single = VectorBuilder(builder, 1)
            rest = t.sums(single, columns)
            t.clear(rest, single)
            with cgutils.for_range(builder, number) as loop:
                add(single, rest, builder.add(k, loop.index))
            first = ir.Constant(code.kind, [1.0] + [0.0] * (lanes - 1))
            for row, places in zip(rest, sums, strict=True):
                for one, place in zip(row, places, strict=True):
                    scalar = builder.extract_element(builder.load(one), ir.IntType(32)(0))
                    t.add_to(place, code, code.broadcast(scalar), first)

        t.in_groups(lanes, lambda k: add(code, sums, k), others)
        for i in range(t.rows):
            place = t.add_bytes(t.out, t.out_row, i)
            totals = [builder.load(one) for one in sums[i]]
            if columns == QUAD:
                VectorBuilder(builder, QUAD).store(code.sums_of_four(totals), place)
                continue
            for j, total in enumerate(totals):
                code.store_scalar(code.reduce_add(total, ir.FloatType()(0.0)), place, j)

    return _function(emit, "transposed", columns)


def update_tile(vectors: int, lanes: int, is_narrow: bool = False) -> Any:
    """A function for a tile of out += factor * a.T @ b, of some vectors of columns."""

    def emit(t: _Tile) -> None:
        builder, code = t.builder, t.vectors(lanes, is_narrow)
        sums = t.sums(code, vectors)
        t.clear(sums, code)
        with cgutils.for_range(builder, t.count) as loop:
            left = builder.add(t.a, builder.mul(t.a_row, loop.index))
            place = builder.add(t.b, builder.mul(t.b_row, loop.index))
            given = [code.load(place, lanes * j) for j in range(vectors)]
            own = VectorBuilder(builder, t.rows)
            quad = own.load(left) if t.rows == lanes else None
            for i in range(t.rows):
                by = code.load_broadcast(left, i) if quad is None else code.broadcast_lane(quad, i)
                for j in range(vectors):
                    t.add_to(sums[i][j], code, given[j], by)
        by = code.broadcast(t.factor)
        places = [t.add_bytes(t.out, t.out_row, i) for i in range(t.rows)]
        # All rows are read before any is written: narrow ones share lines of the cache.
        old = [[code.load(place, lanes * j) for j in range(vectors)] for place in places]
        for i, place in enumerate(places):
            for j in range(vectors):
                new = code.multiply_add(by, builder.load(sums[i][j]), old[i][j])
                code.store(new, place, lanes * j)

    return _function(emit, "update", vectors, lanes, is_narrow)


def few_tile(vectors: int, lanes: int) -> Any:
    """The same for all rows of out, `count` of them, and as many rows of b as are a tile's."""

    def emit(t: _Tile) -> None:
        builder, code = t.builder, t.vectors(lanes, False)
        rows = [t.add_bytes(t.b, t.b_row, k) for k in range(t.rows)]
        given = [[code.load(row, lanes * j) for j in range(vectors)] for row in rows]
        by = code.broadcast(t.factor)
        with cgutils.for_range(builder, t.count) as loop:
            place = builder.add(t.out, builder.mul(t.out_row, loop.index))
            left = builder.add(t.a, builder.mul(_I64(4), loop.index))
            factors = [code.load_broadcast(t.add_bytes(left, t.a_row, k)) for k in range(t.rows)]
            for j in range(vectors):
                total = code.multiply(given[0][j], factors[0])
                for row, factor in zip(given[1:], factors[1:], strict=True):
                    total = code.multiply_add(row[j], factor, total)
                code.store(
                    code.multiply_add(by, total, code.load(place, lanes * j)), place, lanes * j
                )

    return _function(emit, "few", vectors, lanes)
