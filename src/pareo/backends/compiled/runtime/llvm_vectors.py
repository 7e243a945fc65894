"""LLVM's instructions for vectors of floats at addresses."""

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

    def load(self, address: ir.Value, offset: int = 0) -> ir.Value:
        return self.builder.load(self._at(address, offset, self.kind), align=4)

    def store(self, value: ir.Value, address: ir.Value, offset: int = 0) -> None:
        self.builder.store(value, self._at(address, offset, self.kind), align=4)

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


def literals(*kinds: types.Literal) -> list[Any]:
    """The values of literal arguments, which an intrinsic receives as types."""
    return [kind.literal_value for kind in kinds]
