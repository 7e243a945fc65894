"""ATen's operators as layers: each function takes the arguments of the operator by name."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from pareo.nn import activations, layers
from pareo.nn.containers import joined_shape
from pareo.nn.layers import Layer
from pareo.nn.normalisation import BatchNorm, LayerNorm, Normalise
from pareo.nn.tokens import ClassToken, PositionEmbedding
from pareo.nn.torch_import import views
from pareo.nn.torch_import.convolutions import addcmul, conv1d, conv2d, linear, pad
from pareo.nn.torch_import.moved import attention, moved_operators
from pareo.nn.torch_import.operands import affine, images, square, stripped, weight_of
from pareo.nn.torch_import.pools import adaptive_avg_pool2d, avg_pool2d, max_pool2d, mean, sum_
from pareo.nn.torch_import.reader import Reader
from pareo.nn.torch_import.values import Noise, Unsupported, Value, Weight
from pareo.nn.torch_import.views import value

__all__ = ["MOVED", "OPERATORS", "images", "square"]


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
    named = {name: (weight_of(a), "same") for name, a in given.items()}
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
    named = {"scale": (weight_of(weight), "same"), "shift": (weight_of(bias), "same")}
    return reader.layer(LayerNorm(1 if x.last else -1, eps), x, named)


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
        return affine(reader, x, 1.0, other)
    if isinstance(other, Weight) and len(x.shape) == 2 and other.shape == (1, *x.shape):
        return reader.layer(PositionEmbedding(), x, {"w": (other, "same")})
    return _joined(reader, "add", [x, other])


def sub(reader: Reader, self: Any, other: Any, alpha: Any = 1) -> Value:
    """A value less a number, or less a buffer with a number for each channel."""
    x = value(self)
    if alpha == 1 and isinstance(other, int | float):
        return affine(reader, x, 1.0, -other)
    if alpha == 1 and isinstance(other, Weight):
        mean = _each_channel(reader, x, other)
        return reader.layer(Normalise(mean, (1.0,) * len(mean)), x)
    raise Unsupported("of other values than a number or a buffer")


def _each_channel(reader: Reader, x: Value, buffer: Weight) -> tuple[float, ...]:
    """The numbers of a buffer that has one for each channel."""
    found, size = reader.constant(buffer), x.shape[0]
    wide = (size, *[1] * (len(x.shape) - 1))
    if found is None or x.last or stripped(buffer.seen) != stripped(wide):
        raise Unsupported(f"with a weight of shape {buffer.seen}")
    return found


def mul(reader: Reader, self: Any, other: Any) -> Value:
    """A product of two values, of values and a weight for each channel, or stochastic depth."""
    if isinstance(self, Weight | Noise | int | float):
        self, other = other, self
    x = value(self)
    if isinstance(other, int | float):
        return affine(reader, x, float(other), 0.0)
    if isinstance(other, Noise):
        if other.kept is None or not other.divided:
            raise Unsupported("with numbers that are not those of stochastic depth")
        return reader.layer(layers.StochasticDepth(1 - other.kept), x)
    if isinstance(other, Weight):
        size = x.shape[0] if len(x.shape) == 3 else x.shape[-1]
        wide = (size, 1, 1) if len(x.shape) == 3 and not x.last else (size,)
        if stripped(other.seen) != stripped(wide) or len(other.seen) > len(x.shape) + 1:
            raise Unsupported(f"with a weight of shape {other.seen}")
        return reader.layer(layers.Scale(), x, {"w": (other, "reshaped")})
    return _joined(reader, "multiply", [x, other])


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
        return affine(reader, self, 1 / other, 0.0)
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
    "conv1d": conv1d,
    "pad": pad,
    "linear": linear,
    "batch_norm": batch_norm,
    "layer_norm": layer_norm,
    "max_pool2d": max_pool2d,
    "avg_pool2d": avg_pool2d,
    "adaptive_avg_pool2d": adaptive_avg_pool2d,
    "mean": mean,
    "sum": sum_,
    "addcmul": addcmul,
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
    "swapaxes": lambda reader, self, axis0, axis1: views.transpose(reader, self, axis0, axis1),
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
