"""Loops of batch normalisation over some channels of images (N, C, pixels), one after the other.

A channel is read several times, but it stays in the cache between: memory is read once. The inner
functions take slices: loops over three indices are not vectorised, and take four times as long.
"""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.kernels.activation_loops import silu_in_place
from pareo.backends.compiled.kernels.activations import CLIP, HARD_SWISH, RELU, SILU
from pareo.backends.compiled.runtime.jit import jit, jit_in_order, jit_strict
from pareo.backends.compiled.runtime.vector_activations import silu_gradient_of

# Elements that are summed in the precision of the array; such sums are added in double precision.
BLOCK = 1024


# Separate functions, because sums may be reassociated in the loops below.
@jit_strict
def _difference(a: float, b: float) -> float:
    return a - b


@jit_strict
def merged(
    count: float, mean: float, squares: float, size: int, near: float, first: float, second: float
) -> tuple[float, float, float]:
    """Count, mean and sum of squared distances, with a block of `size` elements more.

    `first` and `second` are the block's sums of distances from `near`, and of their squares.
    """
    own = np.float64(near) + np.float64(first) / size
    own_squares = np.float64(second) - np.float64(first) * np.float64(first) / size
    total = count + size
    step = own - mean
    mean = mean + step * (size / total)
    return total, mean, squares + own_squares + step * step * (count * size / total)


@jit
def _total(x: Array) -> float:
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i]
    return total


@jit
def _moments(x: Array, near: float) -> tuple[float, float]:
    """The sums of the distances from a number, and of their squares."""
    first, second = x.dtype.type(0), x.dtype.type(0)
    for i in range(x.size):
        d = _difference(x[i], near)
        first += d
        second += d * d
    return first, second


@jit
def statistics(x: Array, c: int) -> tuple[float, float]:
    """Mean and variance of a channel, in double precision, accurate where the mean is large."""
    images, _, pixels = x.shape
    count, mean, squares = 0.0, 0.0, 0.0
    together = max(1, BLOCK // max(1, pixels))  # small planes that make one block
    for n in range(0, images, together):
        end = min(n + together, images)
        for low in range(0, pixels, BLOCK):
            high = min(low + BLOCK, pixels)
            size = (end - n) * (high - low)
            near = x.dtype.type(0)
            for m in range(n, end):
                near += _total(x[m, c, low:high])
            near = x.dtype.type(near / size)
            first, second = x.dtype.type(0), x.dtype.type(0)
            for m in range(n, end):
                one, two = _moments(x[m, c, low:high], near)
                first += one
                second += two
            count, mean, squares = merged(count, mean, squares, size, near, first, second)
    return mean, squares / count


@jit
def _activate(out: Array, activation: int, low: float, high: float) -> None:
    """In place."""
    zero = out.dtype.type(0)
    if activation == RELU:
        for i in range(out.size):
            out[i] = zero if out[i] <= 0 else out[i]
    elif activation == CLIP:
        for i in range(out.size):
            y = low if out[i] < low else out[i]
            out[i] = high if y > high else y
    elif activation == SILU:
        silu_in_place(out)
    elif activation == HARD_SWISH:
        for i in range(out.size):
            y = (out[i] + out.dtype.type(3)) / out.dtype.type(6)
            y = zero if y < 0 else y
            out[i] = out[i] * (out.dtype.type(1) if y > 1 else y)


@jit
def normalise(out: Array, x: Array, mean: float, factor: float, offset: float) -> None:
    for i in range(x.size):
        out[i] = _difference(x[i], mean) * factor + offset


@jit
def _normalise_relu(out: Array, x: Array, mean: float, factor: float, offset: float) -> None:
    for i in range(x.size):
        y = _difference(x[i], mean) * factor + offset
        out[i] = x.dtype.type(0) if y <= 0 else y


@jit
def _normalise_clip(
    out: Array, x: Array, mean: float, factor: float, offset: float, low: float, high: float
) -> None:
    for i in range(x.size):
        y = _difference(x[i], mean) * factor + offset
        y = low if y < low else y
        out[i] = high if y > high else y


@jit
def _normalise_add(
    out: Array, x: Array, rest: Array, mean: float, factor: float, offset: float, relu: bool
) -> None:
    if relu:
        for i in range(x.size):
            y = _difference(x[i], mean) * factor + offset + rest[i]
            out[i] = x.dtype.type(0) if y <= 0 else y
    else:
        for i in range(x.size):
            out[i] = _difference(x[i], mean) * factor + offset + rest[i]


@jit
def apply_channel(
    out: Array, x: Array, rest: Array, c: int, mean: float, factor: float, shift: float,
    activation: int, low: float, high: float,
) -> None:  # fmt: skip
    """out = activation((x - mean) * factor + shift + rest) for one channel.

    Without anything to add, `rest` has no images. The mean is in double precision.
    """
    kind = x.dtype.type
    near = kind(mean)
    by = kind(factor)
    offset = kind(shift - (mean - np.float64(near)) * factor)
    for n in range(x.shape[0]):
        for start in range(0, x.shape[2], BLOCK):
            stop = min(start + BLOCK, x.shape[2])
            target, source = out[n, c, start:stop], x[n, c, start:stop]
            if rest.shape[0]:
                relu = activation == RELU
                _normalise_add(target, source, rest[n, c, start:stop], near, by, offset, relu)
                if not relu:
                    _activate(target, activation, low, high)
            elif activation == RELU:
                _normalise_relu(target, source, near, by, offset)
            elif activation == CLIP:
                _normalise_clip(target, source, near, by, offset, low, high)
            else:
                normalise(target, source, near, by, offset)
                _activate(target, activation, low, high)


@jit
def forward(
    out: Array, means: Array, variances: Array, x: Array, scale: Array, shift: Array, rest: Array,
    epsilon: float, activation: int, low: float, high: float, lo: int, hi: int,
) -> None:  # fmt: skip
    """Channels lo to hi, normalised by their own statistics, which are stored."""
    for c in range(lo, hi):
        mean, variance = statistics(x, c)
        means[c] = mean
        variances[c] = variance
        factor = np.float64(scale[c]) / np.sqrt(variance + epsilon)
        apply_channel(out, x, rest, c, mean, factor, np.float64(shift[c]), activation, low, high)


@jit
def forward_inference(
    out: Array, x: Array, scale: Array, shift: Array, means: Array, variances: Array, rest: Array,
    epsilon: float, activation: int, low: float, high: float, lo: int, hi: int,
) -> None:  # fmt: skip
    """Channels lo to hi, normalised by given statistics."""
    for c in range(lo, hi):
        factor = np.float64(scale[c]) / np.sqrt(np.float64(variances[c]) + epsilon)
        mean = np.float64(means[c])
        apply_channel(out, x, rest, c, mean, factor, np.float64(shift[c]), activation, low, high)


@jit
def sums(g: Array, x: Array, mean: float) -> tuple[float, float]:
    """The sum of g, and that of g times x's distance from the mean."""
    total, inner = x.dtype.type(0), x.dtype.type(0)
    for i in range(x.size):
        total += g[i]
        inner += g[i] * _difference(x[i], mean)
    return total, inner


@jit
def _masked(
    d: Array, x: Array, mean: float, factor: float, shift: float,
    activation: int, low: float, high: float,
) -> None:  # fmt: skip
    """d times the derivative of the activation at (x - mean) * factor + shift, in place."""
    zero = d.dtype.type(0)
    if activation == RELU:
        for i in range(x.size):
            given = d[i]  # read unconditionally, so that the loop is vectorised
            y = _difference(x[i], mean) * factor + shift
            d[i] = zero if y <= 0 else given
    elif activation == CLIP:
        for i in range(x.size):
            given = d[i]
            y = _difference(x[i], mean) * factor + shift
            above = given if y > low else zero
            d[i] = above if y < high else zero
    elif activation == SILU:
        for i in range(x.size):
            d[i] = silu_gradient_of(d[i], _difference(x[i], mean) * factor + shift)
    elif activation == HARD_SWISH:
        for i in range(x.size):
            given = d[i]
            y = _difference(x[i], mean) * factor + shift
            sloped = given * (y / d.dtype.type(3) + d.dtype.type(0.5))
            bent = zero if y <= -3 else sloped
            d[i] = given if y >= 3 else bent


@jit
def _masked_by_result(d: Array, y: Array) -> None:
    for i in range(d.size):
        given = d[i]
        d[i] = d.dtype.type(0) if y[i] <= 0 else given


@jit
def _copy(out: Array, a: Array) -> None:
    for i in range(a.size):
        out[i] = a[i]


@jit
def _add_to(out: Array, a: Array) -> None:
    for i in range(a.size):
        out[i] += a[i]


@jit_in_order
def slope(
    out: Array, d: Array, x: Array, mean: float, by: float, level: float, tilt: float
) -> None:
    for i in range(x.size):
        out[i] = by * (d[i] - level - _difference(x[i], mean) * tilt)


@jit_in_order
def slope_in_place(d: Array, x: Array, mean: float, by: float, level: float, tilt: float) -> None:
    for i in range(x.size):
        d[i] = by * (d[i] - level - _difference(x[i], mean) * tilt)


@jit
def backward(
    gx: Array, d: Array, by_scale: Array, by_shift: Array, g: Array, more: Array, y: Array,
    x: Array, scale: Array, shift: Array, means: Array, variances: Array, epsilon: float,
    activation: int, low: float, high: float, lo: int, hi: int,
) -> None:  # fmt: skip
    """Channels lo to hi of the gradients.

    g:          the gradient that arrives, plus `more` where that has images
    d:          receives that gradient through the activation; it may be the memory of g or of gx.
                Without `more` and activation it is g, and nothing is written there.
    y:          the result of relu, where the activation cannot be computed from x; else no images
    activation: of (x - mean) * factor + shift
    """
    kind = x.dtype.type
    images, _, pixels = x.shape
    is_copy = d.ctypes.data != g.ctypes.data
    for c in range(lo, hi):
        mean = means[c]
        inverse = 1 / np.sqrt(np.float64(variances[c]) + epsilon)
        factor = kind(scale[c] * inverse)
        total, inner = 0.0, 0.0
        for n in range(images):
            for start in range(0, pixels, BLOCK):
                stop = min(start + BLOCK, pixels)
                part, source = d[n, c, start:stop], x[n, c, start:stop]
                if is_copy:
                    _copy(part, g[n, c, start:stop])
                if more.shape[0]:
                    _add_to(part, more[n, c, start:stop])
                if y.shape[0]:
                    _masked_by_result(part, y[n, c, start:stop])
                elif activation:
                    _masked(part, source, mean, factor, shift[c], activation, low, high)
                one, two = sums(part, source, mean)
                total += one
                inner += two
        by_scale[c] = inner * inverse
        by_shift[c] = total
        count = images * pixels
        level = kind(total / count)
        tilt = kind(inner * inverse * inverse / count)
        for n in range(images):
            for start in range(0, pixels, BLOCK):
                stop = min(start + BLOCK, pixels)
                part, source = d[n, c, start:stop], x[n, c, start:stop]
                if gx.ctypes.data == d.ctypes.data:
                    slope_in_place(part, source, mean, factor, level, tilt)
                else:
                    slope(gx[n, c, start:stop], part, source, mean, factor, level, tilt)
