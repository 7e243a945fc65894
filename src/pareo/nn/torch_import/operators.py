"""ATen's operators as layers: each function takes the arguments of the operator by name."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pareo.nn import activations, layers
from pareo.nn.containers import joined_shape
from pareo.nn.layers import Layer, Shape
from pareo.nn.normalisation import BatchNorm, LayerNorm, Normalise
from pareo.nn.pooling import AdaptiveAveragePool
from pareo.nn.tokens import ClassToken, PositionEmbedding
from pareo.nn.torch_import import views
from pareo.nn.torch_import.moved import attention, moved_operators
from pareo.nn.torch_import.reader import Reader
from pareo.nn.torch_import.values import Noise, Unsupported, Value, Weight
from pareo.nn.torch_import.views import value


def images(x: Any) -> Value:
    """A value that is images with channels first; others are refused."""
    if not isinstance(x, Value) or len(x.shape) != 3 or x.last:
        raise Unsupported("its input is not images (N, C, H, W)")
    return x


def weight(given: Any) -> Weight:
    """A parameter or buffer of the module itself; others are refused."""
    if not isinstance(given, Weight):
        raise Unsupported("its weight is not a parameter of the module itself")
    return given


def square(sizes: Any) -> Any:
    """A pair of sizes, as one number if they are the same."""
    sizes = [sizes, sizes] if isinstance(sizes, int) else list(sizes)
    if len(sizes) == 1:
        sizes *= 2
    return sizes[0] if sizes[0] == sizes[1] else tuple(sizes)


def conv2d(
    reader: Reader, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    groups: int,
) -> Value:  # fmt: skip
    """A convolution; padding by a word is 'valid', or 'same' if that is the same on both sides."""
    filters = _weight(weight)
    size = filters.shape[2:]
    if isinstance(padding, str):
        apart = (
            [dilation] * 2 if isinstance(dilation, int) else list(dilation) * (3 - len(dilation))
        )
        around = [d * (k - 1) * (padding == "same") for d, k in zip(apart, size, strict=True)]
        if any(whole % 2 for whole in around):
            raise Unsupported("padding differs between the sides")
        padding = [whole // 2 for whole in around]
    layer = layers.Conv(
        filters.shape[0], square(size), square(stride), square(padding), groups,
        bias=bias is not None, dilation=square(dilation),
    )  # fmt: skip
    return reader.layer(layer, images(input), _named(filters, bias))


_weight = weight  # conv2d has an argument of that name


def _named(w: Weight, b: Any, how: str = "same") -> dict[str, tuple[Weight, str]]:
    found = {"w": (w, how)}
    return found if b is None else {**found, "b": (weight(b), "same")}


def linear(reader: Reader, input: Any, weight: Any, bias: Any) -> Value:
    """A dense layer; of images with channels last, a 1x1 convolution."""
    x, w = value(input), _weight(weight)
    if x.last:
        conv = layers.Conv(w.shape[0], 1, bias=bias is not None)
        return reader.layer(conv, x, _named(w, bias, "reshaped"))
    if len(x.shape) > 2:
        raise Unsupported(f"its input has the shape (N, {', '.join(map(str, x.shape))})")
    dense = layers.Dense(w.shape[0], bias=bias is not None)
    return reader.layer(dense, x, _named(w, bias, "transposed"))


def batch_norm(
    reader: Reader, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
    training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Value:  # fmt: skip
    """Batch normalisation in training, with its running statistics."""
    x = value(input)
    if x.last:
        raise Unsupported("its channels are last")
    if not training:
        raise Unsupported("it uses running statistics in training, too")
    given = {"scale": weight, "shift": bias, "mean": running_mean, "variance": running_var}
    if None in given.values():
        missing = "trained scale and shift" if weight is None else "running statistics"
        raise Unsupported(f"without {missing}")
    named = {name: (_weight(a), "same") for name, a in given.items()}
    return reader.layer(BatchNorm(momentum, eps), x, named)


def layer_norm(
    reader: Reader, input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float,
    cudnn_enable: bool,
) -> Value:  # fmt: skip
    """Layer normalisation of features, or of the channels of images with channels last."""
    x = value(input)
    if weight is None or bias is None:
        raise Unsupported("without trained scale and shift")
    if len(normalized_shape) != 1 or (len(x.shape) == 3 and not x.last):
        raise Unsupported("it normalises along other axes than features or channels")
    named = {"scale": (_weight(weight), "same"), "shift": (_weight(bias), "same")}
    return reader.layer(LayerNorm(1 if x.last else -1, eps), x, named)


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
    """The mean of all pixels."""
    x = value(self)
    axes = sorted(axis % (len(x.shape) + 1) for axis in dim or [])
    if len(x.shape) != 3 or axes != ([1, 2] if x.last else [2, 3]):
        raise Unsupported(f"along other axes than height and width: {dim}")
    pooled = reader.layer(layers.GlobalAveragePool(), replace(x, last=False))
    if keepdim:
        return replace(pooled, last=x.last)
    return reader.layer(layers.Flatten(), pooled)


def same(reader: Reader, self: Any, **_: Any) -> Value:
    """The input itself."""
    return value(self)


def dropout(reader: Reader, input: Any, p: float, train: bool) -> Value:
    """Dropout; nothing for a share of 0."""
    x = value(input)
    return reader.layer(layers.Dropout(p), x) if train and p > 0 else x


def add(reader: Reader, self: Any, other: Any, alpha: Any = 1) -> Any:
    """A sum of two values; that of a weight for each position, a position embedding."""
    if isinstance(self, Weight) and self.name.endswith("num_batches_tracked"):
        return self  # the counter of batch normalisation, which nothing uses
    if alpha != 1:
        raise Unsupported("with alpha")
    if isinstance(self, Weight | int | float):
        self, other = other, self
    x = value(self)
    if isinstance(other, int | float):
        return _affine(reader, x, 1.0, other)
    if isinstance(other, Weight) and len(x.shape) == 2 and other.shape == (1, *x.shape):
        return reader.layer(PositionEmbedding(), x, {"w": (other, "same")})
    return _joined(reader, "add", [x, other])


def sub(reader: Reader, self: Any, other: Any, alpha: Any = 1) -> Value:
    """A value less a number, or less a buffer with a number for each channel."""
    x = value(self)
    if alpha == 1 and isinstance(other, int | float):
        return _affine(reader, x, 1.0, -other)
    if alpha == 1 and isinstance(other, Weight):
        mean = _each_channel(reader, x, other)
        return reader.layer(Normalise(mean, (1.0,) * len(mean)), x)
    raise Unsupported("of other values than a number or a buffer")


def _each_channel(reader: Reader, x: Value, buffer: Weight) -> tuple[float, ...]:
    """The numbers of a buffer that has one for each channel."""
    found, size = reader.constant(buffer), x.shape[0]
    wide = (size, *[1] * (len(x.shape) - 1))
    if found is None or x.last or _stripped(buffer.seen) != _stripped(wide):
        raise Unsupported(f"with a weight of shape {buffer.seen}")
    return found


def _affine(reader: Reader, x: Value, factor: float, shift: float) -> Value:
    """x * factor + shift, as a normalisation by fixed numbers."""
    if factor <= 0 or x.last:
        raise Unsupported(f"with {factor}" if not x.last else "of images with channels last")
    channels = x.shape[0]
    layer = Normalise((-shift / factor,) * channels, (1 / factor,) * channels)
    return reader.layer(layer, x)


def mul(reader: Reader, self: Any, other: Any) -> Value:
    """A product of two values, of values and a weight for each channel, or stochastic depth."""
    if isinstance(self, Weight | Noise | int | float):
        self, other = other, self
    x = value(self)
    if isinstance(other, int | float):
        return _affine(reader, x, float(other), 0.0)
    if isinstance(other, Noise):
        if other.kept is None or not other.divided:
            raise Unsupported("with numbers that are not those of stochastic depth")
        return reader.layer(layers.StochasticDepth(1 - other.kept), x)
    if isinstance(other, Weight):
        size = x.shape[0] if len(x.shape) == 3 else x.shape[-1]
        wide = (size, 1, 1) if len(x.shape) == 3 and not x.last else (size,)
        if _stripped(other.seen) != _stripped(wide) or len(other.seen) > len(x.shape) + 1:
            raise Unsupported(f"with a weight of shape {other.seen}")
        return reader.layer(layers.Scale(), x, {"w": (other, "reshaped")})
    return _joined(reader, "multiply", [x, other])


def _stripped(shape: Shape) -> Shape:
    """A shape without the ones at its start, as broadcasting reads it."""
    first = next((place for place, size in enumerate(shape) if size != 1), len(shape))
    return shape[first:]


def cat(reader: Reader, tensors: Any, dim: int = 0) -> Value:
    """Values one after another along the channels; after a weight, tokens."""
    if len(tensors) == 2 and isinstance(tensors[0], Weight):
        first, x = tensors[0], value(tensors[1])
        if dim != 1 or len(x.shape) != 2 or first.shape != (1, 1, x.shape[1]):
            raise Unsupported(f"of a weight of shape {first.shape}")
        return reader.layer(ClassToken(), x, {"w": (first, "same")})
    parts = [value(part) for part in tensors]
    axis = dim % (len(parts[0].shape) + 1)
    if axis != (3 if parts[0].last else 1):
        raise Unsupported(f"along the axis {dim}")
    return parts[0] if len(parts) == 1 else _joined(reader, "concat", parts)


def _joined(reader: Reader, how: str, parts: list[Any]) -> Value:
    if not all(isinstance(part, Value) for part in parts):
        other = next(part for part in parts if not isinstance(part, Value))
        what = f"a weight of shape {other.shape}" if isinstance(other, Weight) else f"{other!r}"
        raise Unsupported(f"with {what}")
    if len({(part.last, len(part.shape)) for part in parts}) > 1:
        raise Unsupported("of values whose axes do not correspond")
    if how == "concat" and any(part.wide for part in parts):
        raise Unsupported("of values that are repeated by expand")
    return reader.join(how, parts, joined_shape(how, how, [part.shape for part in parts]))


def empty(reader: Reader, size: Any, **_: Any) -> Noise:
    """Memory for a number for each image, which stochastic depth draws."""
    if list(size[:1]) != [reader.batch] or math.prod(size[1:]) != 1:
        raise Unsupported(f"of shape {tuple(size)}")
    return Noise()


def bernoulli(reader: Reader, self: Any, p: float, **_: Any) -> Noise:
    """The numbers of stochastic depth."""
    if not isinstance(self, Noise) or not isinstance(p, float):
        raise Unsupported("of other values than those of stochastic depth")
    return Noise(p)


def div(reader: Reader, self: Any, other: Any) -> Noise | Value:
    """Values divided by a number, or the numbers of stochastic depth divided by their mean."""
    if isinstance(self, Value) and isinstance(other, int | float) and other > 0:
        return _affine(reader, self, 1 / other, 0.0)
    if isinstance(self, Value) and isinstance(other, Weight):
        deviation = _each_channel(reader, self, other)
        if min(deviation) <= 0:
            raise Unsupported("by numbers that are not above 0")
        return reader.layer(Normalise((0.0,) * len(deviation), deviation), self)
    if not isinstance(self, Noise) or self.kept != other or self.divided:
        raise Unsupported("of other values than those of stochastic depth")
    return Noise(self.kept, divided=True)


def elementwise(make: Callable[..., Layer]) -> Callable[..., Value]:
    """An operator that changes each element by itself; `make` takes its other arguments."""

    def read(reader: Reader, self: Any, **how: Any) -> Value:
        return reader.layer(make(**how), value(self))

    return read


def _clip(min: Any = None, max: Any = None) -> Layer:
    if not isinstance(min, int | float) or not isinstance(max, int | float):
        raise Unsupported("without both limits as numbers")
    return activations.Clip(float(min), float(max))


def _softmax(reader: Reader, self: Any, dim: int, dtype: Any) -> Value:
    x = value(self)
    if len(x.shape) != 1 or dim not in (1, -1) or dtype is not None:
        raise Unsupported("of other values than (N, classes) along the classes")
    return reader.layer(activations.Softmax(), x)


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "conv2d": conv2d,
    "linear": linear,
    "batch_norm": batch_norm,
    "layer_norm": layer_norm,
    "max_pool2d": max_pool2d,
    "avg_pool2d": avg_pool2d,
    "adaptive_avg_pool2d": adaptive_avg_pool2d,
    "mean": mean,
    "relu": elementwise(activations.ReLU),
    "relu6": elementwise(activations.Clip),
    "hardtanh": elementwise(lambda min_val, max_val: _clip(min_val, max_val)),
    "clamp": elementwise(_clip),
    "sigmoid": elementwise(activations.Sigmoid),
    "tanh": elementwise(activations.Tanh),
    "silu": elementwise(activations.SiLU),
    "gelu": elementwise(lambda approximate: activations.GELU(approximate == "tanh")),
    "hardswish": elementwise(activations.HardSwish),
    "hardsigmoid": elementwise(activations.HardSigmoid),
    "leaky_relu": elementwise(lambda negative_slope: activations.LeakyReLU(negative_slope)),
    "softmax": _softmax,
    "scaled_dot_product_attention": attention,
    "view": views.reshaped,
    "reshape": views.reshaped,
    "flatten": views.reshaped,
    "squeeze": views.reshaped,
    "unsqueeze": views.reshaped,
    "unflatten": views.reshaped,
    "expand": views.expand,
    "expand_as": views.expand,
    "permute": views.permute,
    "transpose": views.transpose,
    "chunk": views.chunk,
    "split": views.split,
    "split_with_sizes": lambda reader, self, split_sizes, dim=0: views.parts(
        reader, self, split_sizes, dim
    ),
    "slice": views.sliced,
    "narrow": lambda reader, self, dim, start, length: views.part(
        reader, value(self), dim, start, start + length
    ),
    "select": views.select,
    "unbind": views.unbind,
    "getitem": views.getitem,
    "contiguous": same,
    "clone": same,
    "alias": same,
    "to": same,
    "dropout": dropout,
    "add": add,
    "sub": sub,
    "mul": mul,
    "cat": cat,
    "empty": empty,
    "new_empty": lambda reader, self, size, **more: empty(reader, size),
    "bernoulli": bernoulli,
    "div": div,
}
MOVED = moved_operators(linear)
