"""ATen's operators that pool pixels, or reduce other axes."""

import math
from dataclasses import replace
from typing import Any

from pareo.nn import layers
from pareo.nn.layers import Layer, Shape
from pareo.nn.pooling import AdaptiveAveragePool
from pareo.nn.shapes import Permute, Reshape
from pareo.nn.torch_import import views
from pareo.nn.torch_import.arranged import arranged
from pareo.nn.torch_import.joins import scaled
from pareo.nn.torch_import.operands import images, pair, square
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


def max_pool1d(
    reader: Reader, self: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool,
) -> Value:  # fmt: skip
    """Max pooling along one axis."""
    if list(dilation) != [1]:
        raise Unsupported("with dilation")
    size, step = kernel_size[0], (stride or kernel_size)[0]
    return _of_rows(reader, self, layers.MaxPool((1, size), (1, step), (0, padding[0]), ceil_mode))


def avg_pool1d(
    reader: Reader, self: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
    count_include_pad: bool,
) -> Value:  # fmt: skip
    """Average pooling along one axis."""
    size, step = kernel_size[0], (stride or kernel_size)[0]
    counted = bool(padding[0]) and count_include_pad
    pool = layers.AveragePool((1, size), (1, step), (0, padding[0]), ceil_mode, counted)
    return _of_rows(reader, self, pool)


def adaptive_avg_pool1d(reader: Reader, self: Any, output_size: Any) -> Value:
    """Average pooling of one axis to a size."""
    return _of_rows(reader, self, AdaptiveAveragePool((1, output_size[0])))


def _of_rows(reader: Reader, x: Any, pool: Layer) -> Value:
    """A pooling of (N, C, L), as that of images of one row."""
    x = views.plain(reader, value(x))
    if len(x.shape) != 2:
        raise Unsupported("its input is not (N, C, L)")
    y = reader.layer(pool, reader.layer(Reshape((x.shape[0], 1, x.shape[1])), x))
    return reader.layer(Reshape((y.shape[0], y.shape[2])), y)


def adaptive_max_pool2d(reader: Reader, self: Any, output_size: Any) -> list[Any]:
    """Max pooling to a size that divides that of the image."""
    x, sizes = images(self), pair(output_size)
    if any(pixels % size for pixels, size in zip(x.shape[1:], sizes, strict=True)):
        raise Unsupported(f"to {sizes}, which does not divide {x.shape[1:]}")
    windows = tuple(pixels // size for pixels, size in zip(x.shape[1:], sizes, strict=True))
    return [reader.layer(layers.MaxPool(windows, windows), x), None]


def mean(reader: Reader, self: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    """The mean along some axes; of all pixels, a pooling."""
    if isinstance(self, Value):
        x, axes = self, views.axes_of(self, dim)
        if len(x.shape) == 3 and axes == ([1, 2] if x.last else [2, 3]):
            pooled = reader.layer(layers.GlobalAveragePool(), replace(x, last=False))
            if keepdim:
                return replace(pooled, last=x.last)
            return reader.layer(layers.Flatten(), pooled)
    return _along(reader, self, dim, keepdim, layers.GlobalAveragePool())


def sum_(reader: Reader, self: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    """The sum along some axes."""
    shape = views.shape_of(reader, self)
    count = math.prod(shape[axis] for axis in views.axes_of(self, dim))
    found = _along(reader, self, dim, keepdim, layers.GlobalAveragePool())
    return scaled(reader, found, float(count), 0.0)


def amax(reader: Reader, self: Any, dim: Any = (), keepdim: bool = False) -> Any:
    """The largest element along some axes."""
    return _along(reader, self, dim, keepdim, None)


def amin(reader: Reader, self: Any, dim: Any = (), keepdim: bool = False) -> Any:
    """The smallest element along some axes."""
    turned = scaled(reader, self, -1.0, 0.0)
    return scaled(reader, amax(reader, turned, dim, keepdim), -1.0, 0.0)


def max_(reader: Reader, self: Any, dim: Any = None, keepdim: bool = False) -> list[Any]:
    """The largest element along an axis; its place is not known."""
    return [amax(reader, self, dim, keepdim), None]


def min_(reader: Reader, self: Any, dim: Any = None, keepdim: bool = False) -> list[Any]:
    """The smallest element along an axis; its place is not known."""
    return [amin(reader, self, dim, keepdim), None]


def _along(reader: Reader, x: Any, dim: Any, keepdim: bool, pool: Layer | None) -> Any:
    """The elements along some axes pooled to one; by default, the largest."""
    found, axes = arranged(reader, x), views.axes_of(x, dim)
    own = sorted(found.axis(axis) for axis in axes)  # refused if one is the batch
    if not keepdim and found.place == 0 and not found.own:
        rest = tuple(n for axis, n in enumerate(found.value.shape, 1) if axis not in own)
        return reduced(reader, found.value, own, pool, rest)
    kept = tuple(1 if axis in own else n for axis, n in enumerate(found.value.shape, 1))
    y = found.moved(reader, reduced(reader, found.value, own, pool, kept))
    return y if keepdim else views.squeezed(reader, y, axes)


def reduced(reader: Reader, x: Value, axes: list[int], pool: Layer | None, wanted: Shape) -> Value:
    """The elements along some axes as one: these axes are moved to the end, and pooled.

    wanted: the shape of the result, with or without the axes.
    """
    kept = [axis for axis in range(1, len(x.shape) + 1) if axis not in axes]
    if not kept:
        raise Unsupported("along all axes")
    order = (0, *kept, *axes)
    if order != tuple(range(len(order))):
        x = reader.layer(Permute(order), x)
    inner = x.shape[: len(kept)], x.shape[len(kept) :]
    count = math.prod(inner[1])
    columns = reader.layer(Reshape((math.prod(inner[0]), count, 1)), x)
    pooled = reader.layer(pool or layers.MaxPool((count, 1), (1, 1)), columns)
    return reader.layer(layers.Flatten() if len(wanted) == 1 else Reshape(wanted), pooled)
