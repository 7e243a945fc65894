"""ATen's operators as layers: each function takes the arguments of the operator by name."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pareo.nn import activations, layers
from pareo.nn.containers import joined_shape
from pareo.nn.layers import Layer
from pareo.nn.normalisation import BatchNorm, GroupNorm, LayerNorm, Normalise
from pareo.nn.shapes import Part, Permute, Reshape
from pareo.nn.tokens import ClassToken, PositionEmbedding
from pareo.nn.torch_import import views
from pareo.nn.torch_import.arranged import arranged, origin_of, with_origin
from pareo.nn.torch_import.convolutions import addcmul, conv1d, conv2d, linear, pad
from pareo.nn.torch_import.folded import Known, Picked, number_of, summed
from pareo.nn.torch_import.moved import Moved, moved_operators
from pareo.nn.torch_import.operands import affine, stripped, weight_of
from pareo.nn.torch_import.pools import (
    adaptive_avg_pool2d,
    avg_pool2d,
    max_pool2d,
    mean,
    reduced,
    sum_,
)
from pareo.nn.torch_import.products import along, attention, einsum, matmul, softmax
from pareo.nn.torch_import.reader import Reader
from pareo.nn.torch_import.values import Noise, Unsupported, Value, Weight
from pareo.nn.torch_import.views import value

__all__ = ["MOVED", "OPERATORS"]


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
) -> Any:  # fmt: skip
    """Layer normalisation of features, of the channels of images that are last, or of any axes."""
    if (weight is None) != (bias is None):
        raise Unsupported("with a trained scale but no shift, or the other way round")
    if isinstance(input, Value) and input.last and weight is not None:
        named = {"scale": (weight_of(weight), "same"), "shift": (weight_of(bias), "same")}
        return reader.layer(LayerNorm(1, eps), input, named)
    found = arranged(reader, input)
    x, size = found.value, math.prod(normalized_shape)
    if found.place >= found.axes - len(normalized_shape):
        raise Unsupported("along the batch")
    if weight is not None and len(normalized_shape) == 1 and len(x.shape) <= 2:
        named = {"scale": (weight_of(weight), "same"), "shift": (weight_of(bias), "same")}
        return found.moved(reader, reader.layer(LayerNorm(-1, eps), x, named))
    rows = math.prod(x.shape) // size
    flat = reader.layer(Reshape((rows, size)), x)
    if weight is None:
        y = reader.layer(GroupNorm(rows, eps, trained=False), flat)
    else:
        named = {"scale": (weight_of(weight), "reshaped"), "shift": (weight_of(bias), "reshaped")}
        y = reader.layer(LayerNorm(-1, eps), flat, named)
    return found.moved(reader, reader.layer(Reshape(x.shape), y))


def group_norm(
    reader: Reader, input: Any, num_groups: int, weight: Any, bias: Any, eps: float,
    cudnn_enabled: bool,
) -> Value:  # fmt: skip
    """Group normalisation."""
    x = views.plain(reader, value(input))
    if (weight is None) != (bias is None):
        raise Unsupported("with a trained scale but no shift, or the other way round")
    if weight is None:
        return reader.layer(GroupNorm(num_groups, eps, trained=False), x)
    named = {"scale": (weight_of(weight), "same"), "shift": (weight_of(bias), "same")}
    return reader.layer(GroupNorm(num_groups, eps), x, named)


def instance_norm(
    reader: Reader, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
    use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Value:  # fmt: skip
    """Instance normalisation, which is that of groups of one channel."""
    if running_mean is not None or not use_input_stats:
        raise Unsupported("with running statistics")
    channels = value(input).seen[0]
    return group_norm(reader, input, channels, weight, bias, eps, cudnn_enabled)


def same(reader: Reader, self: Any, **_: Any) -> Value:
    """The input itself."""
    return value(self)


def dropout(reader: Reader, input: Any, p: float, train: bool) -> Value:
    """Dropout; nothing for a share of 0."""
    x = value(input)
    return reader.layer(layers.Dropout(p), x) if train and p > 0 else x


def scaled(reader: Reader, x: Any, factor: float, shift: float) -> Any:
    """factor * x + shift, of values in any order."""
    return with_origin(x, affine(reader, value(origin_of(x)), factor, shift))


def add(reader: Reader, self: Any, other: Any, alpha: Any = 1) -> Any:
    """A sum of two values; that of a weight for each position, a position embedding."""
    if isinstance(self, Weight) and self.name.endswith("num_batches_tracked"):
        return self  # the counter of batch normalisation, which nothing uses
    if isinstance(self, Weight | Known | Picked | int | float) and alpha == 1:
        self, other = other, self
    other = number_of(other)
    if isinstance(other, int | float):
        return scaled(reader, self, 1.0, alpha * other)
    if isinstance(other, Weight) and reader.is_buffer(other):
        other = Known(reader.program.state_dict[other.name].reshape(other.seen))
    if isinstance(other, Known | Picked):
        return summed(reader, self, other, alpha)
    if alpha != 1:
        other = scaled(reader, other, alpha, 0.0)
    if isinstance(self, Moved) or isinstance(other, Moved):
        return _joined_in_order(reader, "add", self, other)
    x = value(self)
    if isinstance(other, Weight) and len(x.shape) == 2 and other.shape == (1, *x.shape):
        return reader.layer(PositionEmbedding(), x, {"w": (other, "same")})
    if isinstance(other, Weight):
        places = np.arange(math.prod(other.shape)).reshape(other.seen)
        return summed(reader, x, Picked(other, places))
    return _joined(reader, "add", [x, other])


def sub(reader: Reader, self: Any, other: Any, alpha: Any = 1) -> Any:
    """A value less another, less a number, or less a buffer with a number for each channel."""
    if alpha == 1 and isinstance(other, Weight):
        x = value(self)
        mean = _each_channel(reader, x, other)
        return reader.layer(Normalise(mean, (1.0,) * len(mean)), x)
    if isinstance(self, int | float):
        return scaled(reader, other, -alpha, self)
    return add(reader, self, other, -alpha)


def _each_channel(reader: Reader, x: Value, buffer: Weight) -> tuple[float, ...]:
    """The numbers of a buffer that has one for each channel."""
    found, size = reader.constant(buffer), x.shape[0]
    wide = (size, *[1] * (len(x.shape) - 1))
    if found is None or x.last or stripped(buffer.seen) != stripped(wide):
        raise Unsupported(f"with a weight of shape {buffer.seen}")
    return found


def mul(reader: Reader, self: Any, other: Any) -> Any:
    """A product of two values, of values and a weight for each channel, or stochastic depth."""
    if isinstance(self, Weight | Noise | Known | int | float):
        self, other = other, self
    other = number_of(other)
    if isinstance(other, int | float):
        return scaled(reader, self, float(other), 0.0)
    if isinstance(self, Moved) or isinstance(other, Moved):
        return _joined_in_order(reader, "multiply", self, other)
    x = value(self)
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
    count = len(parts[0].shape) + 1
    axis = dim % count
    if axis == 0:
        raise Unsupported("along the batch")
    if len(parts) == 1:
        return parts[0]
    if axis == (3 if parts[0].last else 1):
        return _joined(reader, "concat", parts)
    # Other axes take the place of the channels for a while.
    order = (0, axis, *(one for one in range(1, count) if one != axis))
    back = tuple(order.index(one) for one in range(count))
    turned = [reader.layer(Permute(order), views.plain(reader, part)) for part in parts]
    return reader.layer(Permute(back), _joined(reader, "concat", turned))


def stack(reader: Reader, tensors: Any, dim: int = 0) -> Value:
    """Values one after another along a new axis."""
    parts = [views.plain(reader, value(part)) for part in tensors]
    axis = dim % (len(parts[0].shape) + 2)
    if axis == 0:
        raise Unsupported("along the batch")
    wide = [
        reader.layer(Reshape((*one.shape[: axis - 1], 1, *one.shape[axis - 1 :])), one)
        for one in parts
    ]
    return cat(reader, wide, axis)


def glu(reader: Reader, self: Any, dim: int = -1) -> Value:
    """One half of the values times the sigmoid of the other."""
    first, second = views.chunk(reader, self, 2, dim)
    return _joined(reader, "multiply", [first, reader.layer(activations.Sigmoid(), second)])


def square(reader: Reader, self: Any, exponent: Any = 2) -> Value:
    """The square of each element."""
    if exponent != 2:
        raise Unsupported(f"with the exponent {exponent}")
    return _joined(reader, "multiply", [value(self), value(self)])


def _joined_in_order(reader: Reader, how: str, one: Any, two: Any) -> Any:
    """A join of values whose batch is not the first axis, but at the same place in both."""
    first, second = arranged(reader, one), arranged(reader, two)
    if not first.alike(second):
        raise Unsupported("of values whose batch is not at the same place")
    return first.moved(reader, _joined(reader, how, [first.value, second.value]))


def _joined(reader: Reader, how: str, parts: list[Any]) -> Value:
    if not all(isinstance(part, Value) for part in parts):
        other = next(part for part in parts if not isinstance(part, Value))
        what = f"a weight of shape {other.shape}" if isinstance(other, Weight) else f"{other!r}"
        raise Unsupported(f"with {what}")
    if how != "concat" and len({part.last for part in parts}) > 1:
        parts = [views.plain(reader, part) for part in parts]
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


def div(reader: Reader, self: Any, other: Any) -> Any:
    """Values divided by a number, or the numbers of stochastic depth divided by their mean."""
    other = number_of(other)
    if isinstance(self, Value | Moved) and isinstance(other, int | float) and other:
        return scaled(reader, self, 1 / other, 0.0)
    if isinstance(self, Value) and isinstance(other, Weight):
        deviation = _each_channel(reader, self, other)
        if min(deviation) <= 0:
            raise Unsupported("by numbers that are not above 0")
        return reader.layer(Normalise((0.0,) * len(deviation), deviation), self)
    if not isinstance(self, Noise) or self.kept != other or self.divided:
        raise Unsupported("of other values than those of stochastic depth")
    return Noise(self.kept, divided=True)


def elementwise(make: Callable[..., Layer]) -> Callable[..., Any]:
    """An operator that changes each element by itself; `make` takes its other arguments."""

    def read(reader: Reader, self: Any, **how: Any) -> Any:
        return with_origin(self, reader.layer(make(**how), value(origin_of(self))))

    return read


def _clip(min: Any = None, max: Any = None) -> Layer:
    if not isinstance(min, int | float) or not isinstance(max, int | float):
        raise Unsupported("without both limits as numbers")
    return activations.Clip(float(min), float(max))


def moved_linear(reader: Reader, input: Any, weight: Any, bias: Any = None) -> Any:
    """A dense layer of values whose batch is not the first axis."""
    try:
        return moved_operators(linear)["linear"](reader, input, weight, bias)
    except Unsupported:
        found = arranged(reader, input)
        found.axis(-1)  # refused if it is the batch
        return found.moved(reader, linear(reader, found.value, weight, bias))


def moved_slice(
    reader: Reader, self: Moved, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    """x[start:end:step] of values whose batch is not the first axis."""
    size = self.index.shape[dim]
    first, last, _ = slice(start, end, step).indices(size)
    if step != 1 or last <= first or (size % (last - first) == 0 and first % (last - first) == 0):
        return moved_operators(linear)["slice"](reader, self, dim, start, end, step)
    found = arranged(reader, self)
    return found.moved(reader, reader.layer(Part(found.axis(dim), first, last), found.value))


def moved_mean(reader: Reader, self: Moved, dim: Any) -> Any:
    """The mean along some axes of values whose batch is not the first axis."""
    found = arranged(reader, self)
    axes = sorted(found.axis(axis) for axis in dim or [0])
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(found.value.shape, 1))
    y = found.moved(reader, reduced(reader, found.value, axes, 1.0, kept))
    return views.reshaped(reader, y) if isinstance(y, Value) else MOVED["view"](reader, y)


def roll(reader: Reader, self: Any, shifts: Any, dims: Any = ()) -> Value:
    """Values moved along axes; what leaves at one end comes back at the other."""
    x = views.plain(reader, value(self))
    shifts, dims = ([one] if isinstance(one, int) else list(one) for one in (shifts, dims))
    if len(dims) != len(shifts):
        raise Unsupported("of all elements")
    for shift, dim in zip(shifts, dims, strict=True):
        axis = dim % (len(x.shape) + 1)
        if axis == 0:
            raise Unsupported("along the batch")
        size = x.shape[axis - 1]
        cut = -shift % size
        if cut:
            ends = [(cut, size), (0, cut)]
            x = cat(reader, [views.part(reader, x, axis, *end) for end in ends], axis)
    return x


ELEMENTWISE: Mapping[str, Callable[..., Any]] = {
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
    "negative": elementwise(lambda: activations.Affine(-1.0)),
    "neg": elementwise(lambda: activations.Affine(-1.0)),
}
# Those that read values in any order themselves.
ANY_ORDER: Mapping[str, Callable[..., Any]] = {
    **ELEMENTWISE,
    "softmax": softmax,
    "log_softmax": lambda reader, self, dim, dtype=None: along(
        reader, self, dim, dtype, activations.LogSoftmax
    ),
    "einsum": einsum,
    "movedim": views.movedim,
    "moveaxis": views.movedim,
    "mT": lambda reader, self: views.movedim(reader, self, -1, -2),
    "matmul": matmul,
    "bmm": lambda reader, self, mat2: matmul(reader, self, mat2),
    "scaled_dot_product_attention": attention,
    "layer_norm": layer_norm,
    "add": add,
    "sub": sub,
    "rsub": lambda reader, self, other, alpha=1: sub(reader, other, self, alpha),
    "mul": mul,
    "div": div,
}
OPERATORS: Mapping[str, Callable[..., Any]] = {
    **ANY_ORDER,
    "conv2d": conv2d,
    "conv1d": conv1d,
    "pad": pad,
    "linear": linear,
    "batch_norm": batch_norm,
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "max_pool2d": max_pool2d,
    "avg_pool2d": avg_pool2d,
    "adaptive_avg_pool2d": adaptive_avg_pool2d,
    "mean": mean,
    "sum": sum_,
    "addcmul": addcmul,
    "view": views.reshaped,
    "reshape": views.reshaped,
    "reshape_as": views.reshaped,
    "view_as": views.reshaped,
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
    "cat": cat,
    "stack": stack,
    "roll": roll,
    "glu": glu,
    "square": square,
    "pow": square,
    "empty": empty,
    "new_empty": lambda reader, self, size, **more: empty(reader, size),
    "bernoulli": bernoulli,
}
MOVED: Mapping[str, Callable[..., Any]] = {
    **moved_operators(linear),
    **ANY_ORDER,
    "linear": moved_linear,
    "slice": moved_slice,
    "mean": lambda reader, self, dim=None, keepdim=False, **_: moved_mean(reader, self, dim),
}
