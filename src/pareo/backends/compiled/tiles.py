"""Convolution of one small image, tile by tile in registers, written as LLVM's own instructions.

The loops of `rows` read and write their sums at every tap. Here a row of three filters' outputs
stays in registers for all taps, and its gradient for all rows; no compiler does that to a loop, so
the instructions are laid out by hand, for whatever processor LLVM compiles for. All sizes are
literals. float32 only, one input channel, rows that are a multiple of a register.
"""

import platform
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

# As wide as the registers: with 15 sums in flight, wider vectors would not fit into them.
LANES = 8 if platform.machine().lower() in ("x86_64", "amd64") else 4
FILTERS = 3
_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, LANES)
_FLAGS = ("contract", "nsz")


def suits(out: tuple[int, ...], w: tuple[int, ...]) -> bool:
    """Whether outputs (N, K, H, W) and filters (K, C, kh, kw) can be cut into these tiles."""
    return (
        w[1] == 1
        and out[3] % LANES == 0
        and out[1] % FILTERS == 0
        and out[3] <= 24  # its sums fit into registers
        and w[2] * w[3] <= 49
    )


class _Code:
    """An instruction builder that thinks in floats at addresses."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.i64 = ir.IntType(64)

    def at(self, address: Any, offset: int, kind: Any) -> Any:
        """A pointer `offset` floats behind an address."""
        moved = self.builder.add(address, self.i64(4 * offset))
        return self.builder.inttoptr(moved, kind.as_pointer())

    def load(self, address: Any, offset: int) -> Any:
        return self.builder.load(self.at(address, offset, _VECTOR), align=4)

    def store(self, value: Any, address: Any, offset: int) -> None:
        self.builder.store(value, self.at(address, offset, _VECTOR), align=4)

    def spread(self, address: Any, offset: int) -> Any:
        """One float in all lanes."""
        return self.spread_value(self.builder.load(self.at(address, offset, _FLOAT)))

    def spread_value(self, value: Any) -> Any:
        empty = ir.Constant(_VECTOR, ir.Undefined)
        first = self.builder.insert_element(empty, value, ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return self.builder.shuffle_vector(first, empty, zeros)

    def multiply_add(self, a: Any, b: Any, total: Any) -> Any:
        product = self.builder.fmul(a, b, flags=_FLAGS)
        return self.builder.fadd(product, total, flags=_FLAGS)

    def total(self, value: Any) -> Any:
        """The sum of all lanes."""
        result = self.builder.extract_element(value, ir.IntType(32)(0))
        for lane in range(1, LANES):
            one = self.builder.extract_element(value, ir.IntType(32)(lane))
            result = self.builder.fadd(result, one)
        return result


@intrinsic(prefer_literal=True)
def forward_row(typingctx, y, x, w, b, plane, width, wide, kh, kw):  # type: ignore[no-untyped-def]
    """One row of three filters' outputs: y[r, :width] = b[r] + the taps of w[r] on x.

    y, x, w, b are addresses; planes of y lie `plane` floats apart, rows of x `wide` floats.
    """
    sizes = [t.literal_value for t in (plane, width, wide, kh, kw)]
    signature = types.void(y, x, w, b, plane, width, wide, kh, kw)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        plane, width, wide, kh, kw = sizes
        y, x, w, b = arguments[:4]
        code = _Code(builder)
        across = range(width // LANES)
        sums = [[code.spread(b, r)] * len(across) for r in range(FILTERS)]
        for u in range(kh):
            for v in range(kw):
                pixels = [code.load(x, u * wide + v + LANES * i) for i in across]
                for r in range(FILTERS):
                    weight = code.spread(w, r * kh * kw + u * kw + v)
                    for i in across:
                        sums[r][i] = code.multiply_add(weight, pixels[i], sums[r][i])
        for r in range(FILTERS):
            for i in across:
                code.store(sums[r][i], y, r * plane + LANES * i)
        return context.get_dummy_value()

    return signature, generate


@intrinsic(prefer_literal=True)
def gradient_row(typingctx, gw, x, d, height, width, wide, kh, kw):  # type: ignore[no-untyped-def]
    """One row of taps of three filters' gradients, summed over a whole image.

    gw[r, :kw] += the sum over rows i and columns j of d[r, i, j] * x[i, j : j + kw]; gw's filters
    lie kh * kw floats apart, d's planes height * width.
    """
    sizes = [t.literal_value for t in (height, width, wide, kh, kw)]
    signature = types.void(gw, x, d, height, width, wide, kh, kw)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        height, width, wide, kh, kw = sizes
        gw, x, d = arguments[:3]
        code = _Code(builder)
        zero = ir.Constant(_VECTOR, [0.0] * LANES)
        sums = [
            [cgutils.alloca_once_value(builder, zero) for _ in range(kw)] for _ in range(FILTERS)
        ]
        with cgutils.for_range(builder, code.i64(height)) as loop:
            line = builder.add(x, builder.mul(loop.index, code.i64(4 * wide)))
            errors = builder.add(d, builder.mul(loop.index, code.i64(4 * width)))
            for i in range(width // LANES):
                slopes = [code.load(errors, r * height * width + LANES * i) for r in range(FILTERS)]
                for v in range(kw):
                    pixels = code.load(line, LANES * i + v)
                    for r in range(FILTERS):
                        total = code.multiply_add(slopes[r], pixels, builder.load(sums[r][v]))
                        builder.store(total, sums[r][v])
        for r in range(FILTERS):
            for v in range(kw):
                place = code.at(gw, r * kh * kw + v, _FLOAT)
                total = code.total(builder.load(sums[r][v]))
                builder.store(builder.fadd(builder.load(place), total), place)
        return context.get_dummy_value()

    return signature, generate
