"""Convolution by plain loops, tap by tap, for filters too small to be worth a matrix product.

Pixels in the padding are skipped. They are 0, so they matter only where they meet a number that is
not finite, since 0 times infinity is NaN: the functions `padding_times_...` add that.
"""

from pareo.array import Array
from pareo.backends.compiled.conv.columns import valid_range
from pareo.backends.compiled.runtime.arrays import is_finite
from pareo.backends.compiled.runtime.jit import jit

# With no more multiply-adds for each output pixel of all filters, BLAS is mostly overhead.
MAX_PRODUCTS = 64


def suits(filters: tuple[int, ...], groups: int) -> bool:
    """Whether filters (K, C / groups, kh, kw) are small enough for these loops."""
    return filters[0] // groups * filters[1] * filters[2] * filters[3] <= MAX_PRODUCTS


@jit
def forward(
    out: Array, x: Array, w: Array, groups: int,
    sh: int, sw: int, top: int, left: int, dh: int, dw: int,
) -> None:  # fmt: skip
    out[:] = 0
    share = w.shape[0] // groups
    for n in range(x.shape[0]):
        for k in range(w.shape[0]):
            for c in range(w.shape[1]):
                image = x[n, k // share * w.shape[1] + c]
                for u in range(w.shape[2]):
                    low, high = valid_range(out.shape[2], x.shape[2], sh, u * dh - top)
                    for v in range(w.shape[3]):
                        start, stop = valid_range(out.shape[3], x.shape[3], sw, v * dw - left)
                        weight = w[k, c, u, v]
                        for i in range(low, high):
                            line = image[i * sh + u * dh - top]
                            for j in range(start, stop):
                                out[n, k, i, j] += weight * line[j * sw + v * dw - left]


@jit
def input_gradient(
    out: Array, g: Array, w: Array, groups: int,
    sh: int, sw: int, top: int, left: int, dh: int, dw: int,
) -> None:  # fmt: skip
    out[:] = 0
    share = w.shape[0] // groups
    for n in range(g.shape[0]):
        for k in range(w.shape[0]):
            for c in range(w.shape[1]):
                image = out[n, k // share * w.shape[1] + c]
                for u in range(w.shape[2]):
                    low, high = valid_range(g.shape[2], out.shape[2], sh, u * dh - top)
                    for v in range(w.shape[3]):
                        start, stop = valid_range(g.shape[3], out.shape[3], sw, v * dw - left)
                        weight = w[k, c, u, v]
                        for i in range(low, high):
                            line = image[i * sh + u * dh - top]
                            for j in range(start, stop):
                                line[j * sw + v * dw - left] += weight * g[n, k, i, j]


@jit
def weight_gradient(
    sums: Array, x: Array, g: Array, groups: int,
    sh: int, sw: int, top: int, left: int, dh: int, dw: int,
) -> None:  # fmt: skip
    """Sets sums (K, C / groups, kh, kw), in double precision."""
    sums[:] = 0
    share = sums.shape[0] // groups
    for n in range(x.shape[0]):
        for k in range(sums.shape[0]):
            for c in range(sums.shape[1]):
                image = x[n, k // share * sums.shape[1] + c]
                for u in range(sums.shape[2]):
                    low, high = valid_range(g.shape[2], x.shape[2], sh, u * dh - top)
                    for v in range(sums.shape[3]):
                        start, stop = valid_range(g.shape[3], x.shape[3], sw, v * dw - left)
                        total = 0.0
                        for i in range(low, high):
                            line = image[i * sh + u * dh - top]
                            part = x.dtype.type(0)
                            for j in range(start, stop):
                                part += g[n, k, i, j] * line[j * sw + v * dw - left]
                            total += part
                        sums[k, c, u, v] += total


@jit
def padding_times_filters(
    out: Array, x: Array, w: Array, sh: int, sw: int, top: int, left: int, dh: int, dw: int
) -> None:
    """Add what `forward` omits: NaN where a weight that is not finite meets the padding's 0."""
    if is_finite(w.reshape(-1)):
        return
    for k in range(w.shape[0]):
        for c in range(w.shape[1]):
            for u in range(w.shape[2]):
                low, high = valid_range(out.shape[2], x.shape[2], sh, u * dh - top)
                for v in range(w.shape[3]):
                    start, stop = valid_range(out.shape[3], x.shape[3], sw, v * dw - left)
                    zero_or_nan = w.dtype.type(0) * w[k, c, u, v]
                    for n in range(out.shape[0]):
                        for i in range(out.shape[2]):
                            for j in range(out.shape[3]):
                                if not (low <= i < high and start <= j < stop):
                                    out[n, k, i, j] += zero_or_nan


@jit
def padding_times_gradients(
    sums: Array, x: Array, g: Array, sh: int, sw: int, top: int, left: int, dh: int, dw: int
) -> None:
    """Add what `weight_gradient` omits: NaN where a gradient that is not finite meets padding."""
    if is_finite(g.reshape(-1)):
        return
    for n in range(g.shape[0]):
        for k in range(g.shape[1]):
            for u in range(sums.shape[2]):
                low, high = valid_range(g.shape[2], x.shape[2], sh, u * dh - top)
                for v in range(sums.shape[3]):
                    start, stop = valid_range(g.shape[3], x.shape[3], sw, v * dw - left)
                    for i in range(g.shape[2]):
                        for j in range(g.shape[3]):
                            if not (low <= i < high and start <= j < stop):
                                zero_or_nan = g.dtype.type(0) * g[n, k, i, j]
                                for c in range(sums.shape[1]):
                                    sums[k, c, u, v] += zero_or_nan
