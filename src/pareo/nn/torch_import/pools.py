"""ATen's operators that pool pixels, or reduce other axes."""

import math
from dataclasses import replace
from typing import Any

from pareo.nn import layers
from pareo.nn.layers import Shape
from pareo.nn.pooling import AdaptiveAveragePool
from pareo.nn.shapes import Permute, Reshape
from pareo.nn.torch_import import views
from pareo.nn.torch_import.operands import affine, images, square
from pareo.nn.torch_import.reader import Reader
from pareo.nn.torch_import.values import Unsupported, Value
from pareo.nn.torch_import.views import value


def max_pool2d(
    reader: Reader, self: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool,
) -> Value:  # fmt: skip
    """Max pooling without dilation."""
    if square(dilation) != 1:
        raise Unsupported("with dilation")
    size = square(kernel_size)
    pool = layers.MaxPool(size, square(stride or kernel_size), square(padding), ceil_mode)
    return reader.layer(pool, images(self))


def avg_pool2d(
    reader: Reader, self: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
    count_include_pad: bool, divisor_override: Any,
) -> Value:  # fmt: skip
    """Average pooling that divides by the number of pixels in a window."""
    if divisor_override is not None:
        raise Unsupported("with divisor_override")
    counted = square(padding) != 0 and count_include_pad
    size, step = square(kernel_size), square(stride or kernel_size)
    pool = layers.AveragePool(size, step, square(padding), ceil_mode, counted)
    return reader.layer(pool, images(self))


def adaptive_avg_pool2d(reader: Reader, self: Any, output_size: Any) -> Value:
    """Average pooling to a size; to one pixel, the mean."""
    x, size = images(self), square(output_size)
    return reader.layer(layers.GlobalAveragePool() if size == 1 else AdaptiveAveragePool(size), x)


def mean(reader: Reader, self: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Value:
    """The mean along some axes; of all pixels, a pooling."""
    x = value(self)
    axes = sorted(axis % (len(x.shape) + 1) for axis in dim or [])
    if len(x.shape) != 3 or axes != ([1, 2] if x.last else [2, 3]):
        return reduced(reader, x, axes, 1.0, reader.expected()[1:])
    pooled = reader.layer(layers.GlobalAveragePool(), replace(x, last=False))
    if keepdim:
        return replace(pooled, last=x.last)
    return reader.layer(layers.Flatten(), pooled)


def sum_(reader: Reader, self: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Value:
    """The sum along some axes."""
    x = value(self)
    axes = sorted(axis % (len(x.shape) + 1) for axis in dim or [])
    count = float(math.prod((0, *x.seen)[axis] for axis in axes))
    return reduced(reader, x, axes, count, reader.expected()[1:])


def reduced(reader: Reader, x: Value, axes: list[int], factor: float, wanted: Shape) -> Value:
    """The mean along some axes times a factor: these axes are moved to the end, and pooled.

    wanted: the shape of the result, with or without the axes.
    """
    x = views.plain(reader, x)
    kept = [axis for axis in range(1, len(x.shape) + 1) if axis not in axes]
    if not axes or axes[0] == 0 or not kept:
        raise Unsupported("along the batch, or along all axes")
    order = (0, *kept, *axes)
    if order != tuple(range(len(order))):
        x = reader.layer(Permute(order), x)
    inner = x.shape[: len(kept)], x.shape[len(kept) :]
    columns = Reshape((math.prod(inner[0]), math.prod(inner[1]), 1))
    pooled = reader.layer(layers.GlobalAveragePool(), reader.layer(columns, x))
    if factor != 1:
        pooled = affine(reader, pooled, factor, 0.0)
    return reader.layer(layers.Flatten() if len(wanted) == 1 else Reshape(wanted), pooled)
