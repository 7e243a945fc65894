"""Subsampling by windows that do not overlap, forth and back, a row of a window as one vector.

Written as LLVM's own instructions, like `tiles`: windows are so short that a loop over their
elements costs more than the elements. All sizes are literals. float32 only.
"""

from typing import Any

from numba.core import types
from numba.extending import intrinsic

from pareo.backends.compiled.runtime.llvm_vectors import Vectors, literals


def _slope(code: Vectors, y: Any, activation: str) -> Any:
    """The slope of an activation whose result was y."""
    if activation == "sigmoid":
        return code.less(y, code.multiply(y, y))
    if activation == "tanh":
        return code.less(code.number(1.0), code.multiply(y, y))
    below = code.builder.fcmp_ordered("<=", y, code.number(0.0))
    return code.builder.select(below, code.number(0.0), code.number(1.0))


@intrinsic(prefer_literal=True)
def shrink_row(typingctx, y, x, w, b, width, kh, kw):  # type: ignore[no-untyped-def]
    """One row of windows: y[j] = b + the sum of w * (window j of x), for `width` windows.

    y, x, w, b are addresses; x has kh rows of width * kw floats.
    """
    sizes = literals(width, kh, kw)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        width, kh, kw = sizes
        y, x, w, b = arguments[:4]
        code = Vectors(builder, kw)
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
    sizes = literals(width, kh, kw, activation)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        width, kh, kw, activation = sizes
        d, gw, gb, x, g, w = arguments[:6]
        code = Vectors(builder, kw)
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
                    back = code.multiply(back, _slope(code, pixels, activation))
                    bias = code.add(bias, back)
                code.store(back, d, at)
        for u in range(kh):
            code.store(sums[u], gw, u * kw)
        if activation:
            code.store(bias, gb, 0)
        return context.get_dummy_value()

    return types.void(d, gw, gb, x, g, w, width, kh, kw, activation), generate
