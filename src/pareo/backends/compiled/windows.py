"""Subsampling by windows that do not overlap, forth and back, a row of a window as one vector.

Written as LLVM's own instructions, like `tiles`: windows are so short that a loop over their
elements costs more than the elements. All sizes are literals. float32 only.
"""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

_FLOAT = ir.FloatType()
_FLAGS = ("contract", "nsz", "reassoc")


class _Rows:
    """An instruction builder that thinks in rows of a window, at addresses."""

    def __init__(self, builder: Any, kw: int) -> None:
        self.builder, self.kw = builder, kw
        self.row = ir.VectorType(_FLOAT, kw)

    def _at(self, address: Any, offset: int, kind: Any) -> Any:
        moved = self.builder.add(address, ir.IntType(64)(4 * offset))
        return self.builder.inttoptr(moved, kind.as_pointer())

    def load(self, address: Any, offset: int) -> Any:
        return self.builder.load(self._at(address, offset, self.row), align=4)

    def store(self, value: Any, address: Any, offset: int) -> None:
        self.builder.store(value, self._at(address, offset, self.row), align=4)

    def load_one(self, address: Any, offset: int) -> Any:
        return self.builder.load(self._at(address, offset, _FLOAT))

    def store_one(self, value: Any, address: Any, offset: int) -> None:
        self.builder.store(value, self._at(address, offset, _FLOAT))

    def number(self, value: float) -> Any:
        return ir.Constant(self.row, [value] * self.kw)

    def spread(self, value: Any) -> Any:
        """One float in all lanes."""
        empty = ir.Constant(self.row, ir.Undefined)
        first = self.builder.insert_element(empty, value, ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), self.kw), [0] * self.kw)
        return self.builder.shuffle_vector(first, empty, zeros)

    def multiply(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(a, b, flags=_FLAGS)

    def multiply_add(self, a: Any, b: Any, total: Any) -> Any:
        return self.builder.fadd(self.multiply(a, b), total, flags=_FLAGS)

    def total(self, row: Any, start: Any) -> Any:
        """start plus the sum of a row."""
        name, module = f"llvm.vector.reduce.fadd.v{self.kw}f32", self.builder.module
        kind = ir.FunctionType(_FLOAT, [_FLOAT, self.row])
        reduce = module.globals.get(name) or ir.Function(module, kind, name)
        return self.builder.call(reduce, [start, row], fastmath=_FLAGS)

    def slope(self, y: Any, activation: str) -> Any:
        """The slope of an activation whose result was y."""
        one = self.number(1.0)
        if activation == "sigmoid":
            return self.builder.fsub(y, self.multiply(y, y), flags=_FLAGS)
        if activation == "tanh":
            return self.builder.fsub(one, self.multiply(y, y), flags=_FLAGS)
        below = self.builder.fcmp_ordered("<=", y, self.number(0.0))
        return self.builder.select(below, self.number(0.0), one)


def _literals(*given: Any) -> list[Any]:
    return [kind.literal_value for kind in given]


@intrinsic(prefer_literal=True)
def shrink_row(typingctx, y, x, w, b, width, kh, kw):  # type: ignore[no-untyped-def]
    """One row of windows: y[j] = b + the sum of w * (window j of x), for `width` windows.

    y, x, w, b are addresses; x has kh rows of width * kw floats.
    """
    sizes = _literals(width, kh, kw)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        width, kh, kw = sizes
        y, x, w, b = arguments[:4]
        code = _Rows(builder, kw)
        weights = [code.load(w, u * kw) for u in range(kh)]
        bias = code.load_one(b, 0)
        for j in range(width):
            total = code.multiply(weights[0], code.load(x, j * kw))
            for u in range(1, kh):
                total = code.multiply_add(weights[u], code.load(x, (u * width + j) * kw), total)
            code.store_one(code.total(total, bias), y, j)
        return context.get_dummy_value()

    return types.void(y, x, w, b, width, kh, kw), generate


@intrinsic(prefer_literal=True)
def grow_row(typingctx, d, gw, gb, x, g, w, width, kh, kw, activation):  # type: ignore[no-untyped-def]
    """The way back for one row of windows, from their errors g to the pixels x and the filter w.

    d = g * w in every window; gw (kh, kw) += the sum of g * (window of x). Where x is the result of
    an activation, d is multiplied by its slope, and gb (kw) += the sum of d's window rows.
    """
    sizes = _literals(width, kh, kw, activation)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        width, kh, kw, activation = sizes
        d, gw, gb, x, g, w = arguments[:6]
        code = _Rows(builder, kw)
        weights = [code.load(w, u * kw) for u in range(kh)]
        sums = [code.load(gw, u * kw) for u in range(kh)]
        bias = code.load(gb, 0) if activation else None
        for j in range(width):
            error = code.spread(code.load_one(g, j))
            for u in range(kh):
                at = (u * width + j) * kw
                pixels = code.load(x, at)
                sums[u] = code.multiply_add(error, pixels, sums[u])
                back = code.multiply(error, weights[u])
                if activation:
                    back = code.multiply(back, code.slope(pixels, activation))
                    bias = builder.fadd(bias, back, flags=_FLAGS)
                code.store(back, d, at)
        for u in range(kh):
            code.store(sums[u], gw, u * kw)
        if activation:
            code.store(bias, gb, 0)
        return context.get_dummy_value()

    return types.void(d, gw, gb, x, g, w, width, kh, kw, activation), generate
