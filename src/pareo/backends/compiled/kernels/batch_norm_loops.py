"""Loops of batch normalisation over some channels of images (N, C, pixels), one after the other.

A channel is read several times, but it stays in the cache between: memory is read once. Functions
take pixels start to stop of plane (n, c); to slice an array would take as long as a small plane.
"""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.kernels.activation_loops import silu_in_place
from pareo.backends.compiled.kernels.activations import CLIP, HARD_SWISH, RELU, SILU
from pareo.backends.compiled.runtime.jit import jit, jit_strict
from pareo.backends.compiled.runtime.vector_activations import silu_gradient_of

# Elements that are summed in the precision of the array; such sums are added in double precision.
BLOCK = 1024


# Separate functions, because sums may be reassociated in the loops below.
@jit_strict
def _difference(a: float, b: float) -> float:
    return a - b


@jit_strict
def _merged(
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
def _total(x: Array, n: int, c: int, start: int, stop: int) -> float:
    total = x.dtype.type(0)
    for i in range(start, stop):
        total += x[n, c, i]
    return total


@jit
def _moments(x: Array, n: int, c: int, start: int, stop: int, near: float) -> tuple[float, float]:
    """The sums of the distances from a number, and of their squares."""
    first, second = x.dtype.type(0), x.dtype.type(0)
    for i in range(start, stop):
        d = _difference(x[n, c, i], near)
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
                near += _total(x, m, c, low, high)
            near = x.dtype.type(near / size)
            first, second = x.dtype.type(0), x.dtype.type(0)
            for m in range(n, end):
                one, two = _moments(x, m, c, low, high, near)
                first += one
                second += two
            count, mean, squares = _merged(count, mean, squares, size, near, first, second)
    return mean, squares / count


@jit
def _activate(
    out: Array, n: int, c: int, start: int, stop: int, activation: int, low: float, high: float
) -> None:
    """In place."""
    zero = out.dtype.type(0)
    if activation == RELU:
        for i in range(start, stop):
            out[n, c, i] = zero if out[n, c, i] <= 0 else out[n, c, i]
    elif activation == CLIP:
        for i in range(start, stop):
            y = low if out[n, c, i] < low else out[n, c, i]
            out[n, c, i] = high if y > high else y
    elif activation == SILU:
        silu_in_place(out[n, c, start:stop])
    elif activation == HARD_SWISH:
        for i in range(start, stop):
            y = (out[n, c, i] + out.dtype.type(3)) / out.dtype.type(6)
            y = zero if y < 0 else y
            out[n, c, i] = out[n, c, i] * (out.dtype.type(1) if y > 1 else y)


@jit
def _normalise(
    out: Array,
    x: Array,
    n: int,
    c: int,
    start: int,
    stop: int,
    mean: float,
    factor: float,
    offset: float,
) -> None:
    for i in range(start, stop):
        out[n, c, i] = _difference(x[n, c, i], mean) * factor + offset


@jit
def _normalise_relu(
    out: Array,
    x: Array,
    n: int,
    c: int,
    start: int,
    stop: int,
    mean: float,
    factor: float,
    offset: float,
) -> None:
    for i in range(start, stop):
        y = _difference(x[n, c, i], mean) * factor + offset
        out[n, c, i] = x.dtype.type(0) if y <= 0 else y


@jit
def _normalise_clip(
    out: Array,
    x: Array,
    n: int,
    c: int,
    start: int,
    stop: int,
    mean: float,
    factor: float,
    offset: float,
    low: float,
    high: float,
) -> None:
    for i in range(start, stop):
        y = _difference(x[n, c, i], mean) * factor + offset
        y = low if y < low else y
        out[n, c, i] = high if y > high else y


@jit
def _normalise_add(
    out: Array,
    x: Array,
    rest: Array,
    n: int,
    c: int,
    start: int,
    stop: int,
    mean: float,
    factor: float,
    offset: float,
    relu: bool,
) -> None:
    if relu:
        for i in range(start, stop):
            y = _difference(x[n, c, i], mean) * factor + offset + rest[n, c, i]
            out[n, c, i] = x.dtype.type(0) if y <= 0 else y
    else:
        for i in range(start, stop):
            out[n, c, i] = _difference(x[n, c, i], mean) * factor + offset + rest[n, c, i]


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
            if rest.shape[0]:
                relu = activation == RELU
                _normalise_add(out, x, rest, n, c, start, stop, near, by, offset, relu)
                if not relu:
                    _activate(out, n, c, start, stop, activation, low, high)
            elif activation == RELU:
                _normalise_relu(out, x, n, c, start, stop, near, by, offset)
            elif activation == CLIP:
                _normalise_clip(out, x, n, c, start, stop, near, by, offset, low, high)
            else:
                _normalise(out, x, n, c, start, stop, near, by, offset)
                _activate(out, n, c, start, stop, activation, low, high)


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
def _sums(
    g: Array, x: Array, n: int, c: int, start: int, stop: int, mean: float
) -> tuple[float, float]:
    """The sum of g, and that of g times x's distance from the mean."""
    total, inner = x.dtype.type(0), x.dtype.type(0)
    for i in range(start, stop):
        total += g[n, c, i]
        inner += g[n, c, i] * _difference(x[n, c, i], mean)
    return total, inner


@jit
def _masked(
    d: Array, x: Array, n: int, c: int, start: int, stop: int, mean: float, factor: float,
    shift: float, activation: int, low: float, high: float,
) -> None:  # fmt: skip
    """d times the derivative of the activation at (x - mean) * factor + shift, in place."""
    zero = d.dtype.type(0)
    if activation == RELU:
        for i in range(start, stop):
            given = d[n, c, i]  # read unconditionally, so that the loop is vectorised
            y = _difference(x[n, c, i], mean) * factor + shift
            d[n, c, i] = zero if y <= 0 else given
    elif activation == CLIP:
        for i in range(start, stop):
            given = d[n, c, i]
            y = _difference(x[n, c, i], mean) * factor + shift
            above = given if y > low else zero
            d[n, c, i] = above if y < high else zero
    elif activation == SILU:
        for i in range(start, stop):
            y = _difference(x[n, c, i], mean) * factor + shift
            d[n, c, i] = silu_gradient_of(d[n, c, i], y)
    elif activation == HARD_SWISH:
        for i in range(start, stop):
            given = d[n, c, i]
            y = _difference(x[n, c, i], mean) * factor + shift
            sloped = given * (y / d.dtype.type(3) + d.dtype.type(0.5))
            bent = zero if y <= -3 else sloped
            d[n, c, i] = given if y >= 3 else bent


@jit
def _masked_by_result(d: Array, y: Array, n: int, c: int, start: int, stop: int) -> None:
    for i in range(start, stop):
        given = d[n, c, i]
        d[n, c, i] = d.dtype.type(0) if y[n, c, i] <= 0 else given


@jit
def _copy(out: Array, a: Array, n: int, c: int, start: int, stop: int) -> None:
    for i in range(start, stop):
        out[n, c, i] = a[n, c, i]


@jit
def _add_to(out: Array, a: Array, n: int, c: int, start: int, stop: int) -> None:
    for i in range(start, stop):
        out[n, c, i] += a[n, c, i]


@jit
def _slope(
    out: Array,
    d: Array,
    x: Array,
    n: int,
    c: int,
    start: int,
    stop: int,
    mean: float,
    by: float,
    level: float,
    tilt: float,
) -> None:
    for i in range(start, stop):
        out[n, c, i] = by * (d[n, c, i] - level - _difference(x[n, c, i], mean) * tilt)


@jit
def _slope_in_place(
    d: Array,
    x: Array,
    n: int,
    c: int,
    start: int,
    stop: int,
    mean: float,
    by: float,
    level: float,
    tilt: float,
) -> None:
    for i in range(start, stop):
        d[n, c, i] = by * (d[n, c, i] - level - _difference(x[n, c, i], mean) * tilt)


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
    is_in_place = gx.ctypes.data == d.ctypes.data
    for c in range(lo, hi):
        mean = means[c]
        inverse = 1 / np.sqrt(np.float64(variances[c]) + epsilon)
        factor = kind(scale[c] * inverse)
        total, inner = 0.0, 0.0
        for n in range(images):
            for start in range(0, pixels, BLOCK):
                stop = min(start + BLOCK, pixels)
                if is_copy:
                    _copy(d, g, n, c, start, stop)
                if more.shape[0]:
                    _add_to(d, more, n, c, start, stop)
                if y.shape[0]:
                    _masked_by_result(d, y, n, c, start, stop)
                elif activation:
                    _masked(d, x, n, c, start, stop, mean, factor, shift[c], activation, low, high)
                one, two = _sums(d, x, n, c, start, stop, mean)
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
                if is_in_place:
                    _slope_in_place(d, x, n, c, start, stop, mean, factor, level, tilt)
                else:
                    _slope(gx, d, x, n, c, start, stop, mean, factor, level, tilt)
