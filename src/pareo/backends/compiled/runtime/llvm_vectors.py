"""LLVM's instructions for vectors of floats at addresses."""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import types

FLOAT = ir.FloatType()
_FLAGS = ("contract", "nsz")


class VectorBuilder:
    """Emits instructions on vectors of `lanes` floats."""

    def __init__(self, builder: ir.IRBuilder, lanes: int) -> None:
        self.builder, self.lanes = builder, lanes
        self.kind = ir.VectorType(FLOAT, lanes)

    def _at(self, address: ir.Value, offset: int, kind: ir.Type) -> ir.Value:
        """A pointer to `offset` floats after an address."""
        moved = self.builder.add(address, ir.IntType(64)(4 * offset))
        return self.builder.inttoptr(moved, kind.as_pointer())

    def advance(self, address: ir.Value, index: ir.Value, step: int) -> ir.Value:
        """The address `index` times `step` floats after an address."""
        return self.builder.add(address, self.builder.mul(index, ir.IntType(64)(4 * step)))

    def opaque(self, value: ir.Value) -> ir.Value:
        """An int64 whose origin the compiler does not see, so that it keeps it in a register."""
        kind = ir.FunctionType(value.type, [value.type])
        return self.builder.call(ir.InlineAsm(kind, "", "=r,0"), [value])

    def prefetch(self, address: ir.Value) -> None:
        """Begin to load a cache line; any address will do."""
        byte, number, module = ir.IntType(8).as_pointer(), ir.IntType(32), self.builder.module
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        name = "llvm.prefetch.p0"
        function = module.globals.get(name) or ir.Function(module, kind, name)
        read, keep, data = number(0), number(3), number(1)
        self.builder.call(function, [self.builder.inttoptr(address, byte), read, keep, data])

    def load(self, address: ir.Value, offset: int = 0) -> ir.Value:
        return self.builder.load(self._at(address, offset, self.kind), align=4)

    def store(self, value: ir.Value, address: ir.Value, offset: int = 0) -> None:
        self.builder.store(value, self._at(address, offset, self.kind), align=4)

    def kept(self, value: ir.Value) -> ir.Value:
        """A value, with 0 in the lanes that are not used."""
        return value

    def load_scalar(self, address: ir.Value, offset: int = 0) -> ir.Value:
        return self.builder.load(self._at(address, offset, FLOAT), align=4)

    def store_scalar(self, value: ir.Value, address: ir.Value, offset: int = 0) -> None:
        self.builder.store(value, self._at(address, offset, FLOAT), align=4)

    def constant(self, value: float) -> ir.Value:
        return ir.Constant(self.kind, [value] * self.lanes)

    def broadcast(self, value: ir.Value) -> ir.Value:
        """One float in all lanes."""
        empty = ir.Constant(self.kind, ir.Undefined)
        return self.broadcast_lane(self.builder.insert_element(empty, value, ir.IntType(32)(0)), 0)

    def broadcast_lane(self, value: ir.Value, lane: int) -> ir.Value:
        """One lane of a vector in all lanes."""
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [lane] * self.lanes)
        return self.builder.shuffle_vector(value, ir.Constant(self.kind, ir.Undefined), everywhere)

    def load_broadcast(self, address: ir.Value, offset: int = 0) -> ir.Value:
        """The float at an address in all lanes."""
        return self.broadcast(self.load_scalar(address, offset))

    def add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.fadd(a, b, flags=_FLAGS)

    def subtract(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.fsub(a, b, flags=_FLAGS)

    def multiply(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.fmul(a, b, flags=_FLAGS)

    def multiply_add(self, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
        return self.add(self.multiply(a, b), total)

    def reduce_add(self, value: ir.Value, start: ir.Value) -> ir.Value:
        """start plus the sum of all lanes."""
        name, module = f"llvm.vector.reduce.fadd.v{self.lanes}f32", self.builder.module
        kind = ir.FunctionType(FLOAT, [FLOAT, self.kind])
        reduce = module.globals.get(name) or ir.Function(module, kind, name)
        return self.builder.call(reduce, [start, value], fastmath=(*_FLAGS, "reassoc"))

    def sums_of_four(self, vectors: list[ir.Value]) -> ir.Value:
        """The sums of four vectors' lanes, as a vector of four."""
        size = self.lanes
        while size > 4:  # the upper half of each is added to its lower half
            size //= 2
            halves = [range(size), range(size, 2 * size)]
            vectors = [
                self.add(*(self._chosen(vector, vector, half) for half in halves))
                for vector in vectors
            ]
        while len(vectors) > 1:  # neighbours are added in pairs, of two vectors at a time
            vectors = [
                self.add(*(self._chosen(a, b, range(first, 8, 2)) for first in range(2)))
                for a, b in zip(vectors[::2], vectors[1::2], strict=True)
            ]
        return vectors[0]

    def _chosen(self, a: ir.Value, b: ir.Value, lanes: Sequence[int]) -> ir.Value:
        """Some lanes of two vectors, one after the other."""
        where = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
        return self.builder.shuffle_vector(a, b, where)


class MaskedVectors(VectorBuilder):
    """Reads and writes only the first `count` lanes of each vector; the others are 0."""

    def __init__(self, builder: ir.IRBuilder, lanes: int, count: ir.Value) -> None:
        super().__init__(builder, lanes)
        short = ir.IntType(32)
        kind = ir.VectorType(short, lanes)
        numbers = ir.Constant(kind, list(range(lanes)))
        first = builder.insert_element(
            ir.Constant(kind, ir.Undefined), builder.trunc(count, short), short(0)
        )
        nothing = ir.Constant(kind, ir.Undefined)
        limit = builder.shuffle_vector(first, nothing, ir.Constant(kind, [0] * lanes))
        self._mask = builder.icmp_signed("<", numbers, limit)

    def _call(self, name: str, result: ir.Type, arguments: list[ir.Value]) -> ir.Value:
        full, module = f"llvm.masked.{name}.v{self.lanes}f32.p0", self.builder.module
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = module.globals.get(full) or ir.Function(module, kind, full)
        return self.builder.call(function, arguments)

    def kept(self, value: ir.Value) -> ir.Value:
        return self.builder.select(self._mask, value, self.constant(0.0))

    def load(self, address: ir.Value, offset: int = 0) -> ir.Value:
        place, align = self._at(address, offset, self.kind), ir.IntType(32)(4)
        return self._call("load", self.kind, [place, align, self._mask, self.constant(0.0)])

    def store(self, value: ir.Value, address: ir.Value, offset: int = 0) -> None:
        place, align = self._at(address, offset, self.kind), ir.IntType(32)(4)
        self._call("store", ir.VoidType(), [value, place, align, self._mask])


def literals(*kinds: types.Literal) -> list[Any]:
    """The values of literal arguments, which an intrinsic receives as types."""
    return [kind.literal_value for kind in kinds]
