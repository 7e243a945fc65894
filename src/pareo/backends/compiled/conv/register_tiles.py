"""Convolution of one small image in tiles that stay in registers, written as LLVM instructions.

The loops of `shifted_rows` read and write their sums at every tap. Here a row of three filters'
outputs stays in registers for all taps, and its gradient for all rows. No compiler does that to a
loop, so the instructions are written out, for whatever processor LLVM compiles for. All sizes are
literals. float32 only, one input channel, rows that are a multiple of a register.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from pareo.backends.compiled.runtime import registers
from pareo.backends.compiled.runtime.llvm_vectors import VectorBuilder, literals

LANES = min(registers.LANES, 8)  # rows of 24 are no multiple of more
FILTERS = 3


def suits(out: tuple[int, ...], w: tuple[int, ...]) -> bool:
    """Whether outputs (N, K, H, W) and filters (K, C, kh, kw) can be cut into these tiles."""
    return (
        w[1] == 1
        and out[3] % LANES == 0
        and out[1] % FILTERS == 0
        and out[3] <= 24  # the sums must fit into the registers
        and w[2] * w[3] <= 49
    )


def _weight(code: VectorBuilder, w: ir.Value, start: int, tap: int, taps: int) -> ir.Value:
    """One weight of a filter in all lanes.

    Arm's multiply-add can take one lane of a vector, so weights are loaded four at a time there. To
    broadcast a single weight would cost an instruction.
    """
    if LANES != 4 or taps < LANES:
        return code.load_broadcast(w, start + tap)
    first = min(tap // LANES * LANES, taps - LANES)
    return code.broadcast_lane(code.load(w, start + first), tap - first)


@intrinsic(prefer_literal=True)
def forward_row(typingctx, y, x, w, b, plane, width, wide, kh, kw):  # type: ignore[no-untyped-def]
    """One row of three filters' outputs: y[r, :width] = b[r] + the taps of w[r] on x.

    y, x, w, b are addresses; planes of y are `plane` floats apart, rows of x `wide` floats.
    """
    sizes = literals(plane, width, wide, kh, kw)
    signature = types.void(y, x, w, b, plane, width, wide, kh, kw)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        plane, width, wide, kh, kw = sizes
        y, x, w, b = arguments[:4]
        code = VectorBuilder(builder, LANES)
        across = range(width // LANES)
        sums = [[code.load_broadcast(b, r)] * len(across) for r in range(FILTERS)]
        for u in range(kh):
            for v in range(kw):
                pixels = [code.load(x, u * wide + v + LANES * i) for i in across]
                for r in range(FILTERS):
                    weight = _weight(code, w, r * kh * kw, u * kw + v, kh * kw)
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
    are kh * kw floats apart, d's planes height * width.
    """
    sizes = literals(height, width, wide, kh, kw)
    signature = types.void(gw, x, d, height, width, wide, kh, kw)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        height, width, wide, kh, kw = sizes
        gw, x, d = arguments[:3]
        code = VectorBuilder(builder, LANES)
        zero = code.constant(0.0)
        sums = [
            [cgutils.alloca_once_value(builder, zero) for _ in range(kw)] for _ in range(FILTERS)
        ]
        with cgutils.for_range(builder, ir.IntType(64)(height)) as loop:
            line, gradients = code.advance(x, loop.index, wide), code.advance(d, loop.index, width)
            for i in range(width // LANES):
                values = [
                    code.load(gradients, r * height * width + LANES * i) for r in range(FILTERS)
                ]
                for v in range(kw):
                    pixels = code.load(line, LANES * i + v)
                    for r in range(FILTERS):
                        total = code.multiply_add(values[r], pixels, builder.load(sums[r][v]))
                        builder.store(total, sums[r][v])
        for r in range(FILTERS):
            for v in range(kw):
                at = r * kh * kw + v
                before = code.load_scalar(gw, at)
                code.store_scalar(code.reduce_add(builder.load(sums[r][v]), before), gw, at)
        return context.get_dummy_value()

    return signature, generate
