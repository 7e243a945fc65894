"""ATen's operators that are convolutions or products with weights."""

import math
from typing import Any

from pareo.nn import layers
from pareo.nn.shapes import Pad, Permute, Reshape
from pareo.nn.torch_import import views
from pareo.nn.torch_import.arranged import plain
from pareo.nn.torch_import.operands import affine, images, named, pair, square, stripped, weight_of
from pareo.nn.torch_import.reader import Reader
from pareo.nn.torch_import.resampled import padded_by
from pareo.nn.torch_import.values import Padded, Unsupported, Value, Weight
from pareo.nn.torch_import.views import value


def conv2d(
    reader: Reader, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    groups: int,
) -> Value:  # fmt: skip
    """A convolution; zeros around its images may differ between the sides."""
    filters = weight_of(weight)
    x = input.origin if isinstance(input, Padded) else images(input)
    given = input.around if isinstance(input, Padded) else ((0, 0), (0, 0))
    apart, steps = pair(dilation), pair(stride)
    if isinstance(padding, str):
        whole = [d * (k - 1) for d, k in zip(apart, filters.shape[2:], strict=True)]
        own = [(n // 2, n - n // 2) if padding == "same" else (0, 0) for n in whole]
    else:
        own = [(n, n) for n in pair(padding)]
    around = [(a + c, b + d) for (a, b), (c, d) in zip(given, own, strict=True)]
    # More zeros on both sides, and then only the results that would have been there.
    extra = [-(min(a - b, 0) // step) for (a, b), step in zip(around, steps, strict=True)]
    both = [a + m * step for (a, _), m, step in zip(around, extra, steps, strict=True)]
    layer = layers.Conv(
        filters.shape[0], square(filters.shape[2:]), square(steps), square(both), groups,
        bias=bias is not None, dilation=square(apart),
    )  # fmt: skip
    y = reader.layer(layer, x, named(filters, bias))
    for axis, (first, size) in enumerate(zip(extra, reader.expected()[2:], strict=True), start=2):
        y = views.part(reader, y, axis, first, first + size)
    return y


def conv1d(
    reader: Reader, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    groups: int,
) -> Value:  # fmt: skip
    """A convolution along one axis, as that of images of one row."""
    x, filters = value(input), weight_of(weight)
    if len(x.shape) != 2:
        raise Unsupported("its input is not (N, C, L)")
    (step, *_), (apart, *_) = (pair(n) for n in (stride, dilation))
    if isinstance(padding, str):
        whole = apart * (filters.shape[2] - 1) if padding == "same" else 0
        x = _padded(reader, x, (whole // 2, whole - whole // 2), 0)
        around = 0
    else:
        around = pair(padding)[0]
    layer = layers.Conv(
        filters.shape[0], (1, filters.shape[2]), (1, step), (0, around), groups,
        bias=bias is not None, dilation=(1, apart),
    )  # fmt: skip
    row = reader.layer(Reshape((x.shape[0], 1, x.shape[1])), x)
    y = reader.layer(layer, row, named(filters, bias, "reshaped"))
    return reader.layer(Reshape(reader.expected()[1:]), y)


def pad(reader: Reader, self: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """Zeros around images, for a convolution; around other values, a layer."""
    if not any(pad):
        return self
    if mode != "constant":
        return padded_by(reader, self, pad, mode)
    if isinstance(self, Value) and (self.last or len(self.shape) != 3 or len(pad) != 4):
        return _padded(reader, plain(reader, self), pad, value)
    x = images(self)
    if value or min(pad) < 0:
        return _padded(reader, x, pad, value)
    left, right, top, bottom = pad
    return Padded(x, ((top, bottom), (left, right)))


def _padded(reader: Reader, x: Value, pad: Any, value: Any) -> Value:
    """Zeros around values along the last axes; where there are fewer than none, a part."""
    count = len(x.shape)
    if len(pad) > 2 * count:
        raise Unsupported(f"with {list(pad)}")
    if value:
        inside = _padded(reader, affine(reader, x, 1.0, -float(value)), pad, 0)
        return affine(reader, inside, 1.0, float(value))
    sides = [*zip(pad[::2], pad[1::2], strict=True)][::-1]
    sides = [(0, 0)] * (count - len(sides)) + sides
    for axis, (before, after) in enumerate(sides, 1):
        stop = x.shape[axis - 1] + min(after, 0)
        x = views.part(reader, x, axis, -min(before, 0), stop)
    zeros = [(max(before, 0), max(after, 0)) for before, after in sides]
    if not any(map(any, zeros)):
        return x
    return reader.layer(Pad(tuple(a for a, _ in zeros), tuple(b for _, b in zeros)), x)


def linear(reader: Reader, input: Any, weight: Any, bias: Any = None) -> Value:
    """A dense layer; of images with channels last, a 1x1 convolution."""
    x, w = value(input), weight_of(weight)
    if x.last:
        conv = layers.Conv(w.shape[0], 1, bias=bias is not None)
        return reader.layer(conv, x, named(w, bias, "reshaped"))
    return dense(reader, x, w.shape[0], named(w, bias, "transposed"))


def dense(reader: Reader, x: Value, units: int, weights: dict[str, tuple[Weight, str]]) -> Value:
    """A dense layer along the last axis of any number of axes."""
    layer = layers.Dense(units, bias="b" in weights)
    if len(x.shape) <= 2:
        return reader.layer(layer, x, weights)
    rows = reader.layer(Reshape((math.prod(x.shape[:-1]), x.shape[-1])), x)
    return reader.layer(Reshape((*x.shape[:-1], units)), reader.layer(layer, rows, weights))


def addcmul(reader: Reader, self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Value:
    """A trained factor and a trained shift for each feature, as a convolution of single pixels."""
    factor, x = (tensor1, tensor2) if isinstance(tensor1, Weight) else (tensor2, tensor1)
    if value != 1 or not isinstance(x, Value) or len(x.shape) not in (2, 3):
        raise Unsupported("of other values than features, a factor and a shift")
    scale, shift = weight_of(factor), weight_of(self)
    pixels = len(x.shape) == 3
    size = x.shape[0] if pixels else x.shape[1]
    wide = (size, 1, 1) if pixels and not x.last else (size,)
    if any(stripped(one.seen) != stripped(wide) for one in (scale, shift)):
        raise Unsupported(f"with weights of shapes {scale.seen} and {shift.seen}")
    conv = layers.Conv(size, 1, groups=size)
    weights = {"w": (scale, "reshaped"), "b": (shift, "reshaped")}
    if pixels:
        return reader.layer(conv, x, weights)
    turned = reader.layer(Permute((0, 2, 1)), x)
    column = reader.layer(Reshape((size, x.shape[0], 1)), turned)
    y = reader.layer(Reshape((size, x.shape[0])), reader.layer(conv, column, weights))
    return reader.layer(Permute((0, 2, 1)), y)
