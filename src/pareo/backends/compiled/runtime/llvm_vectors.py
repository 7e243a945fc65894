"""LLVM's instructions for floats at addresses, as vectors: what `tiles` and its like write with."""

from typing import Any

from llvmlite import ir

FLOAT = ir.FloatType()
_FLAGS = ("contract", "nsz")


class Vectors:
    """An instruction builder that thinks in vectors of so many floats."""

    def __init__(self, builder: Any, lanes: int) -> None:
        self.builder, self.lanes = builder, lanes
        self.kind = ir.VectorType(FLOAT, lanes)

    def _at(self, address: Any, offset: int, kind: Any) -> Any:
        """A pointer `offset` floats behind an address."""
        moved = self.builder.add(address, ir.IntType(64)(4 * offset))
        return self.builder.inttoptr(moved, kind.as_pointer())

    def behind(self, address: Any, index: Any, step: int) -> Any:
        """The address `index` times `step` floats further on."""
        return self.builder.add(address, self.builder.mul(index, ir.IntType(64)(4 * step)))

    def load(self, address: Any, offset: int = 0) -> Any:
        return self.builder.load(self._at(address, offset, self.kind), align=4)

    def store(self, value: Any, address: Any, offset: int = 0) -> None:
        self.builder.store(value, self._at(address, offset, self.kind), align=4)

    def load_one(self, address: Any, offset: int = 0) -> Any:
        return self.builder.load(self._at(address, offset, FLOAT), align=4)

    def store_one(self, value: Any, address: Any, offset: int = 0) -> None:
        self.builder.store(value, self._at(address, offset, FLOAT), align=4)

    def number(self, value: float) -> Any:
        return ir.Constant(self.kind, [value] * self.lanes)

    def spread(self, value: Any) -> Any:
        """One float in all lanes."""
        empty = ir.Constant(self.kind, ir.Undefined)
        return self.spread_lane(self.builder.insert_element(empty, value, ir.IntType(32)(0)), 0)

    def spread_lane(self, value: Any, lane: int) -> Any:
        """One lane of a vector in all lanes."""
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [lane] * self.lanes)
        return self.builder.shuffle_vector(value, ir.Constant(self.kind, ir.Undefined), everywhere)

    def spread_at(self, address: Any, offset: int = 0) -> Any:
        """The float at an address in all lanes."""
        return self.spread(self.load_one(address, offset))

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=_FLAGS)

    def less(self, a: Any, b: Any) -> Any:
        return self.builder.fsub(a, b, flags=_FLAGS)

    def multiply(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(a, b, flags=_FLAGS)

    def multiply_add(self, a: Any, b: Any, total: Any) -> Any:
        return self.add(self.multiply(a, b), total)

    def total(self, value: Any, start: Any) -> Any:
        """start plus the sum of all lanes."""
        name, module = f"llvm.vector.reduce.fadd.v{self.lanes}f32", self.builder.module
        kind = ir.FunctionType(FLOAT, [FLOAT, self.kind])
        reduce = module.globals.get(name) or ir.Function(module, kind, name)
        return self.builder.call(reduce, [start, value], fastmath=(*_FLAGS, "reassoc"))


def literals(*kinds: Any) -> list[Any]:
    """The values of literal arguments, which an intrinsic gets as types."""
    return [kind.literal_value for kind in kinds]
