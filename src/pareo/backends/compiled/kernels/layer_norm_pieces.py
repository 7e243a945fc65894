"""Rows of a matrix for layer normalisation, as vectors of which the last is masked.

The compiler would leave most of a row of 13 or 40 numbers to scalar code. Rows lie one after
another and have at most LONGEST numbers, so that a lane adds up few of them. Several rows at a time
do not wait for each other's sums. float32 only.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from pareo.backends.compiled.kernels.vectors_of_columns import (
    clear,
    each_group,
    each_row,
    places,
    store_row,
)
from pareo.backends.compiled.runtime.jit import llvm_intrinsic
from pareo.backends.compiled.runtime.lanes import LANES, VECTOR, call_on_vectors
from pareo.backends.compiled.runtime.llvm_vectors import FLOAT, MaskedVectors, VectorBuilder

LONGEST = 1 << 13
CHAINS = 4  # sums at a time, of several rows or of parts of one
_I64, _DOUBLE = ir.IntType(64), ir.DoubleType()
_Body = Callable[[VectorBuilder, ir.Value, int], None]  # vectors, bytes before them, a chain


@llvm_intrinsic
def normalise_rows(typingctx, out, x, scale, shift, rows, count, epsilon):  # type: ignore[no-untyped-def]
    """out = each row of x, normalised, times scale, plus shift."""
    signature = types.void(*[types.int64] * 6, types.float64)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        call_on_vectors(builder, "layer_norm rows", arguments, _normalise)
        return context.get_dummy_value()

    return signature, generate


@llvm_intrinsic
def row_gradients(typingctx, gx, statistics, g, x, scale, rows, count, epsilon):  # type: ignore[no-untyped-def]
    """gx = the gradient of each row of x; statistics = three numbers for each row."""
    signature = types.void(*[types.int64] * 7, types.float64)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        call_on_vectors(builder, "layer_norm row_gradients", arguments, _gradients)
        return context.get_dummy_value()

    return signature, generate


@llvm_intrinsic
def column_products(typingctx, by_scale, by_shift, statistics, g, x, gap, rows, count):  # type: ignore[no-untyped-def]
    """The sums over rows, `gap` bytes apart, of g times the normalised x, and of g."""
    signature = types.void(*[types.int64] * 8)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        call_on_vectors(builder, "layer_norm column_products", arguments, _products)
        return context.get_dummy_value()

    return signature, generate


class _Rows:
    """Writes loops over the vectors of some rows of `count` numbers, at addresses."""

    def __init__(self, code: VectorBuilder, count: ir.Value, height: int) -> None:
        self.code, self.builder, self.height = code, code.builder, height
        builder = self.builder
        self.left = builder.and_(count, _I64(LANES - 1))
        self.whole = builder.udiv(count, _I64(LANES))
        self.unrolled = CHAINS // height  # vectors of a row, one after another
        self.groups = builder.udiv(self.whole, _I64(self.unrolled))
        self.masked = MaskedVectors(builder, LANES, self.left)
        self.size = builder.uitofp(count, _DOUBLE)

    def each(self, body: _Body) -> None:
        """Write body for each vector of each row."""
        builder = self.builder
        with cgutils.for_range(builder, self.groups) as group:
            first = builder.mul(group.index, _I64(self.unrolled * VECTOR))
            for chain in range(self.unrolled):
                body(self.code, builder.add(first, _I64(chain * VECTOR)), chain)
        done = builder.mul(self.groups, _I64(self.unrolled))
        with cgutils.for_range(builder, builder.sub(self.whole, done)) as single:
            body(self.code, builder.mul(builder.add(done, single.index), _I64(VECTOR)), 0)
        with builder.if_then(builder.icmp_signed(">", self.left, _I64(0))):
            body(self.masked, builder.mul(self.whole, _I64(VECTOR)), 0)

    def sums(self) -> list[list[ir.Value]]:
        """Places for the sums of each row, of nothing so far."""
        return [places(self.code, self.unrolled) for _ in range(self.height)]

    def add(self, value: ir.Value, place: ir.Value) -> None:
        self.builder.store(self.code.add(self.builder.load(place), value), place)

    def total(self, sums: Sequence[ir.Value]) -> ir.Value:
        """All lanes of a row's sums, in double precision."""
        both = self.builder.load(sums[0])
        for place in sums[1:]:
            both = self.code.add(both, self.builder.load(place))
        number = self.code.reduce_add(both, ir.Constant(FLOAT, 0.0))
        return self.builder.fpext(number, _DOUBLE)

    def means(self, sums: Sequence[Sequence[ir.Value]]) -> list[ir.Value]:
        """The mean of each row, in double precision."""
        return [self.builder.fdiv(self.total(row), self.size) for row in sums]

    def narrow(self, numbers: Sequence[ir.Value]) -> list[ir.Value]:
        return [self.builder.fptrunc(number, FLOAT) for number in numbers]

    def statistics(self, rows: Sequence[ir.Value], epsilon: ir.Value) -> list[list[ir.Value]]:
        """Of each row, its mean in two parts, and 1 / sqrt(variance + epsilon)."""
        builder, first, second = self.builder, self.sums(), self.sums()
        for row in (*first, *second):
            clear(self.code, row)

        def add_up(vectors: VectorBuilder, before: ir.Value, chain: int) -> None:
            for row, into in zip(rows, first, strict=True):
                self.add(vectors.load(builder.add(row, before)), into[chain])

        self.each(add_up)
        near = self.narrow(self.means(first))
        centres = [self.code.broadcast(number) for number in near]
        for row in first:
            clear(self.code, row)

        def add_distances(vectors: VectorBuilder, before: ir.Value, chain: int) -> None:
            for row, centre, one, two in zip(rows, centres, first, second, strict=True):
                distance = vectors.subtract(vectors.load(builder.add(row, before)), centre)
                distance = vectors.kept(distance)
                self.add(distance, one[chain])
                self.add(vectors.multiply(distance, distance), two[chain])

        self.each(add_distances)
        rest, inverses, zero = self.means(first), [], ir.Constant(_DOUBLE, 0.0)
        root = builder.module.declare_intrinsic("llvm.sqrt", [_DOUBLE])
        for mean, square in zip(rest, self.means(second), strict=True):
            variance = builder.fsub(square, builder.fmul(mean, mean))
            kept = builder.fcmp_unordered(">", variance, zero)  # true for NaN
            variance = builder.fadd(builder.select(kept, variance, zero), epsilon)
            inverses.append(builder.fdiv(ir.Constant(_DOUBLE, 1.0), builder.call(root, [variance])))
        parts = near, self.narrow(rest), self.narrow(inverses)
        return [list(numbers) for numbers in zip(*parts, strict=True)]

    def broadcast(self, numbers: Sequence[Sequence[ir.Value]]) -> list[list[ir.Value]]:
        return [[self.code.broadcast(number) for number in row] for row in numbers]


def _normalised(vectors: VectorBuilder, address: ir.Value, numbers: Sequence[ir.Value]) -> ir.Value:
    """A vector of a row, by its statistics."""
    near, rest, by = numbers
    distance = vectors.subtract(vectors.subtract(vectors.load(address), near), rest)
    return vectors.multiply(distance, by)


def _in_groups(
    code: VectorBuilder, rows: ir.Value, count: ir.Value,
    write: Callable[[_Rows, list[ir.Value]], None],
) -> None:  # fmt: skip
    """Write code for CHAINS rows at a time and for single ones, given their numbers."""
    builder = code.builder
    together = builder.udiv(rows, _I64(CHAINS))
    done = builder.mul(together, _I64(CHAINS))
    with cgutils.for_range(builder, together) as group:
        first = builder.mul(group.index, _I64(CHAINS))
        write(_Rows(code, count, CHAINS), [builder.add(first, _I64(i)) for i in range(CHAINS)])
    with cgutils.for_range(builder, builder.sub(rows, done)) as single:
        write(_Rows(code, count, 1), [builder.add(done, single.index)])


def _normalise(code: VectorBuilder, arguments: Sequence[ir.Value]) -> None:
    out, x, scale, shift, rows, count, epsilon = arguments
    builder = code.builder
    length = builder.mul(count, _I64(4))

    def write(some: _Rows, numbers: list[ir.Value]) -> None:
        targets, own = (
            [builder.add(array, builder.mul(n, length)) for n in numbers] for array in (out, x)
        )
        statistics = some.broadcast(some.statistics(own, epsilon))

        def each(vectors: VectorBuilder, before: ir.Value, chain: int) -> None:
            by, level = (vectors.load(builder.add(a, before)) for a in (scale, shift))
            for target, row, found in zip(targets, own, statistics, strict=True):
                value = _normalised(vectors, builder.add(row, before), found)
                vectors.store(vectors.multiply_add(value, by, level), builder.add(target, before))

        some.each(each)

    _in_groups(code, rows, count, write)


def _gradients(code: VectorBuilder, arguments: Sequence[ir.Value]) -> None:
    gx, statistics, g, x, scale, rows, count, epsilon = arguments
    builder = code.builder
    length = builder.mul(count, _I64(4))

    def write(some: _Rows, numbers: list[ir.Value]) -> None:
        targets, given, own = (
            [builder.add(array, builder.mul(n, length)) for n in numbers] for array in (gx, g, x)
        )
        found = some.statistics(own, epsilon)
        for number, row in zip(numbers, found, strict=True):
            for i, one in enumerate(row):
                place = builder.add(statistics, builder.mul(number, _I64(12)))
                code.store_scalar(one, place, i)
        known = some.broadcast(found)
        totals, inners = some.sums(), some.sums()
        for row in (*totals, *inners):
            clear(code, row)

        def slope(vectors: VectorBuilder, before: ir.Value, i: int) -> ir.Value:
            steep = vectors.load(builder.add(scale, before))
            return vectors.multiply(vectors.load(builder.add(given[i], before)), steep)

        def add_up(vectors: VectorBuilder, before: ir.Value, chain: int) -> None:
            for i, row in enumerate(own):
                value = _normalised(vectors, builder.add(row, before), known[i])
                steep = slope(vectors, before, i)
                some.add(steep, totals[i][chain])
                some.add(vectors.multiply(steep, value), inners[i][chain])

        some.each(add_up)
        levels, tilts = (
            [code.broadcast(number) for number in some.narrow(some.means(sums))]
            for sums in (totals, inners)
        )

        def each(vectors: VectorBuilder, before: ir.Value, chain: int) -> None:
            for i, row in enumerate(own):
                value = _normalised(vectors, builder.add(row, before), known[i])
                lowered = vectors.subtract(slope(vectors, before, i), levels[i])
                lowered = vectors.subtract(lowered, vectors.multiply(value, tilts[i]))
                result = vectors.multiply(known[i][2], lowered)
                vectors.store(result, builder.add(targets[i], before))

        some.each(each)

    _in_groups(code, rows, count, write)


def _products(code: VectorBuilder, arguments: Sequence[ir.Value]) -> None:
    by_scale, by_shift, statistics, g, x, gap, rows, count = arguments
    builder = code.builder

    def write(columns: Sequence[VectorBuilder], offset: ir.Value) -> None:
        scales, shifts = places(code, len(columns)), places(code, len(columns))
        clear(code, [*scales, *shifts])

        def add(addresses: list[ir.Value]) -> None:
            # The first array has one row of three numbers, whatever the columns.
            own = builder.sub(addresses[0], offset)
            numbers = [code.load_broadcast(own, i) for i in range(3)]
            for j, each in enumerate(columns):
                value = _normalised(each, builder.add(addresses[2], _I64(j * VECTOR)), numbers)
                given = each.load(addresses[1], LANES * j)
                total = each.multiply_add(given, value, builder.load(scales[j]))
                builder.store(total, scales[j])
                builder.store(each.add(builder.load(shifts[j]), given), shifts[j])

        each_row(code, rows, offset, [(statistics, _I64(12)), (g, gap), (x, gap)], add)
        store_row(columns, scales, by_scale, offset)
        store_row(columns, shifts, by_shift, offset)

    each_group(code, count, write)
