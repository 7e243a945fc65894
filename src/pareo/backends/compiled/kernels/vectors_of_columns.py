"""Loops over rows of a matrix whose sums stay in registers: a vector holds neighbouring columns.

The compiler would keep the sums in memory, and test before each row whether arrays overlap.
"""

from collections.abc import Callable, Sequence

from llvmlite import ir
from numba.core import cgutils

from pareo.backends.compiled.runtime.lanes import LANES, VECTOR
from pareo.backends.compiled.runtime.llvm_vectors import MaskedVectors, VectorBuilder

TOGETHER = 4  # vectors, at most
_I64 = ir.IntType(64)
WriteColumns = Callable[[Sequence[VectorBuilder], ir.Value], None]


def each_group(code: VectorBuilder, count: ir.Value, write: WriteColumns) -> None:
    """Write some vectors of columns at a time, given the bytes before them; the last is masked."""
    builder = code.builder
    left = builder.and_(count, _I64(LANES - 1))
    end = builder.sub(count, left)
    groups = builder.udiv(end, _I64(TOGETHER * LANES))
    with cgutils.for_range(builder, groups) as group:
        write([code] * TOGETHER, builder.mul(group.index, _I64(TOGETHER * VECTOR)))
    done = builder.mul(groups, _I64(TOGETHER))
    single = builder.sub(builder.udiv(end, _I64(LANES)), done)
    with cgutils.for_range(builder, single) as one:
        write([code], builder.mul(builder.add(done, one.index), _I64(VECTOR)))
    with builder.if_then(builder.icmp_signed(">", left, _I64(0))):
        write([MaskedVectors(builder, LANES, left)], builder.mul(end, _I64(4)))


def load_row(
    columns: Sequence[VectorBuilder], address: ir.Value, offset: ir.Value
) -> list[ir.Value]:
    """One number a column."""
    place = columns[0].builder.add(address, offset)
    return [each.load(place, LANES * j) for j, each in enumerate(columns)]


def each_row(
    code: VectorBuilder,
    rows: ir.Value,
    offset: ir.Value,
    arrays: Sequence[tuple[ir.Value, ir.Value]],
    body: Callable[[list[ir.Value]], None],
) -> None:
    """Write body for each row, with its address in each array."""
    builder = code.builder
    with cgutils.for_range(builder, rows) as row:
        body(
            [
                builder.add(builder.add(first, offset), builder.mul(row.index, gap))
                for first, gap in arrays
            ]
        )


def places(code: VectorBuilder, count: int) -> list[ir.Value]:
    """Vectors of sums, of nothing so far."""
    return [cgutils.alloca_once_value(code.builder, code.constant(0.0)) for _ in range(count)]


def clear(code: VectorBuilder, places: Sequence[ir.Value]) -> None:
    for place in places:
        code.builder.store(code.constant(0.0), place)


def store_row(
    columns: Sequence[VectorBuilder], places: Sequence[ir.Value], address: ir.Value,
    offset: ir.Value,
) -> None:  # fmt: skip
    builder = columns[0].builder
    for j, (each, place) in enumerate(zip(columns, places, strict=True)):
        each.store(builder.load(place), builder.add(address, offset), LANES * j)
