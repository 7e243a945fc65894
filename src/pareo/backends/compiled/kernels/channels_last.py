"""Images with their channels last, in buffers with zeros around them: there and back."""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.kernels.activations import NONE, RELU, SIGMOID
from pareo.backends.compiled.kernels.elementwise_loops import sigmoid_in_place, tanh_in_place
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.lanes import LANES, pixels_to_vectors, vectors_to_pixels


@jit
def offsets(height: int, width: int, padded: int, pitch: int) -> Array:
    """Where the pixels of an image lie, in bytes: in rows of `padded` pixels of `pitch` floats."""
    made = np.empty(height * width, np.int64)
    for row in range(height):
        for column in range(width):
            made[row * width + column] = 4 * pitch * (row * padded + column)
    return made


@jit
def load(
    buffer: Array, pitch: int, padded: int, rows: int, planes: Array, p: int, channels: int,
    top: int, left: int, places: Array,
) -> None:  # fmt: skip
    """The rows from `top` on of planes p to p + channels, `left` columns into the buffer.

    Pixels are `pitch` floats apart; if that is more than the channels, what is between is not 0.
    """
    height, width = planes.shape[1], planes.shape[2]
    first, last = max(0, -top), min(rows, height - top)
    line = padded * pitch
    if first >= last:
        buffer[: rows * line] = 0
        return
    buffer[: first * line] = 0
    buffer[last * line : rows * line] = 0
    for row in range(first, last):
        buffer[row * line : row * line + left * pitch] = 0
        buffer[row * line + (left + width) * pitch : (row + 1) * line] = 0
    start, count = (top + first) * width, (last - first) * width
    begin = (first * padded + left) * pitch
    if count < LANES or pitch < LANES:
        size, numbers = height * width, planes.reshape(planes.size)
        for row in range(first, last):
            for column in range(width):
                into = row * line + (left + column) * pitch
                source = p * size + (top + row) * width + column
                for c in range(channels):
                    buffer[into + c] = numbers[source + c * size]
        return
    gap, table = 4 * height * width, places.ctypes.data
    for block in range(0, channels, LANES):
        # The last channels once more where a vector would write over the next pixel's.
        c = min(block, max(0, pitch - LANES))
        own = min(LANES, channels - c)
        into = buffer.ctypes.data + 4 * (begin + c)
        source = planes.ctypes.data + (p + c) * gap + 4 * start
        for q in range(0, count - LANES + 1, LANES):
            pixels_to_vectors(into, table + 8 * q, source + 4 * q, gap, own)
        if count % LANES:
            q = count - LANES
            pixels_to_vectors(into, table + 8 * q, source + 4 * q, gap, own)


@jit
def activate_rows(
    planes: Array, p: int, channels: int, top: int, rows: int, activation: int
) -> None:
    """Sigmoid or tanh of the rows from `top` on of planes p to p + channels, in place.

    They are taken in the longest runs there are, because a short one is computed number by number.
    """
    height, width = planes.shape[1], planes.shape[2]
    numbers = planes.reshape(planes.size)
    runs, length = (1, channels * height * width) if rows == height else (channels, rows * width)
    for c in range(runs):
        start = ((p + c) * height + top) * width
        run = numbers[start : start + length]
        sigmoid_in_place(run) if activation == SIGMOID else tanh_in_place(run)


@jit
def store(
    planes: Array, p: int, channels: int, top: int, rows: int, buffer: Array, pitch: int,
    bias: Array, activation: int, places: Array,
) -> None:  # fmt: skip
    """The rows from `top` on of planes p to p + channels, with bias and activation.

    The buffer has as many columns as the planes, and pixels of `pitch` floats, as has bias.
    """
    height, width = planes.shape[1], planes.shape[2]
    start, count = top * width, rows * width
    is_relu = activation == RELU
    if count < LANES:
        size, numbers = height * width, planes.reshape(planes.size)
        for q in range(count):
            into = p * size + start + q
            for c in range(channels):
                z = buffer[q * pitch + c] + bias[c]
                if is_relu and z <= 0:
                    z = buffer.dtype.type(0)
                numbers[into + c * size] = z
    else:
        gap, table = 4 * height * width, places.ctypes.data
        for c in range(0, channels, LANES):
            own, shift = min(LANES, channels - c), bias.ctypes.data + 4 * c
            given = buffer.ctypes.data + 4 * c
            target = planes.ctypes.data + (p + c) * gap + 4 * start
            for q in range(0, count - LANES + 1, LANES):
                vectors_to_pixels(target + 4 * q, gap, own, given, table + 8 * q, shift, is_relu)
            if count % LANES:
                q = count - LANES
                vectors_to_pixels(target + 4 * q, gap, own, given, table + 8 * q, shift, is_relu)
    if activation not in (NONE, RELU):
        activate_rows(planes, p, channels, top, rows, activation)
