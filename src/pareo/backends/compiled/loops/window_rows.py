"""Subsampling by windows that do not overlap, forward and backward, a window's row as one vector.

It is written as LLVM instructions, like `register_tiles`: windows are so short that a loop over
their elements would cost more than the elements. All sizes are literals. float32 only.
"""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from pareo.backends.compiled.runtime.llvm_vectors import VectorBuilder, literals


def _derivative(code: VectorBuilder, y: ir.Value, activation: str) -> ir.Value:
    """The derivative of an activation whose result is y."""
    if activation == "sigmoid":
        return code.subtract(y, code.multiply(y, y))
    if activation == "tanh":
        return code.subtract(code.constant(1.0), code.multiply(y, y))
    below = code.builder.fcmp_ordered("<=", y, code.constant(0.0))
    return code.builder.select(below, code.constant(0.0), code.constant(1.0))


@intrinsic(prefer_literal=True)
def subsample_row(typingctx, y, x, w, b, width, kh, kw):  # type: ignore[no-untyped-def]
    """One row of windows: y[j] = b + the sum of w * (window j of x), for `width` windows.

    y, x, w, b are addresses; x has kh rows of width * kw floats.
    """
    sizes = literals(width, kh, kw)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        width, kh, kw = sizes
        y, x, w, b = arguments[:4]
        code = VectorBuilder(builder, kw)
        weights = [code.load(w, u * kw) for u in range(kh)]
        bias = code.load_scalar(b, 0)
        for j in range(width):
            total = code.multiply(weights[0], code.load(x, j * kw))
            for u in range(1, kh):
                total = code.multiply_add(weights[u], code.load(x, (u * width + j) * kw), total)
            code.store_scalar(code.reduce_add(total, bias), y, j)
        return context.get_dummy_value()

    return types.void(y, x, w, b, width, kh, kw), generate


@intrinsic(prefer_literal=True)
def subsample_gradient_row(typingctx, d, gw, gb, x, g, w, width, kh, kw, activation):  # type: ignore[no-untyped-def]
    """The backward pass of one row of windows, from their gradients g.

    d = g * w in every window, and gw (kh, kw) += the sum of g * (window of x). If x is the result
    of an activation, d is multiplied by its derivative, and gb (kw) += the sum of d's window rows.
    """
    sizes = literals(width, kh, kw, activation)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        width, kh, kw, activation = sizes
        d, gw, gb, x, g, w = arguments[:6]
        code = VectorBuilder(builder, kw)
        weights = [code.load(w, u * kw) for u in range(kh)]
        sums = [code.load(gw, u * kw) for u in range(kh)]
        bias = code.load(gb, 0) if activation else None
        for j in range(width):
            gradient = code.broadcast(code.load_scalar(g, j))
            for u in range(kh):
                at = (u * width + j) * kw
                pixels = code.load(x, at)
                sums[u] = code.multiply_add(gradient, pixels, sums[u])
                back = code.multiply(gradient, weights[u])
                if activation:
                    back = code.multiply(back, _derivative(code, pixels, activation))
                    bias = code.add(bias, back)
                code.store(back, d, at)
        for u in range(kh):
            code.store(sums[u], gw, u * kw)
        if activation:
            code.store(bias, gb, 0)
        return context.get_dummy_value()

    return types.void(d, gw, gb, x, g, w, width, kh, kw, activation), generate
