"""ATen's operators as layers: each function takes the arguments of the operator by name."""

from collections.abc import Callable, Mapping
from typing import Any

from pareo.nn import activations, layers
from pareo.nn.layers import Layer
from pareo.nn.shapes import Part, Permute, Reshape
from pareo.nn.tokens import ClassToken
from pareo.nn.torch_import import arithmetic, norms, pools, resampled, views
from pareo.nn.torch_import.arranged import arranged
from pareo.nn.torch_import.convolutions import addcmul, conv1d, conv2d, linear, pad
from pareo.nn.torch_import.joins import applied, joined
from pareo.nn.torch_import.moved import Moved, moved_operators
from pareo.nn.torch_import.products import along, attention, einsum, matmul, softmax
from pareo.nn.torch_import.reader import Reader
from pareo.nn.torch_import.values import Unsupported, Value, Weight
from pareo.nn.torch_import.views import value

SELU = (1.6732632423543772, 1.0507009873554805)  # PyTorch's
LARGEST = 3.4e38  # the limit of a clamp that has none, in float32

__all__ = ["MOVED", "OPERATORS"]


def same(reader: Reader, self: Any, *_: Any, **__: Any) -> Any:
    """The input itself."""
    return self if isinstance(self, Weight) else value(self)


def nothing(reader: Reader, *_: Any, **__: Any) -> None:
    """What only checks, and has no result."""


def dropout(reader: Reader, input: Any, p: float, train: bool) -> Value:
    """Dropout; nothing for a share of 0."""
    x = value(input)
    return reader.layer(layers.Dropout(p), x) if train and p > 0 else x


def feature_dropout(reader: Reader, input: Any, p: float, train: bool) -> Value:
    """Dropout of whole channels: that of a number for each, which is 1."""
    x = value(input)
    if not train or not p:
        return x
    means = pools.mean(reader, x, list(range(2, len(x.shape) + 1)), True)
    ones = reader.layer(activations.Affine(0.0, 1.0), means)
    return joined(reader, "multiply", [x, reader.layer(layers.Dropout(p), ones)])


def cat(reader: Reader, tensors: Any, dim: int = 0) -> Value:
    """Values one after another along the channels; after a weight, tokens."""
    if _is_class_token(reader, tensors, dim):
        return reader.layer(ClassToken(), tensors[1], {"w": (tensors[0], "same")})
    parts = [reader.as_value(part) for part in tensors]
    count = len(parts[0].shape) + 1
    axis = dim % count
    if axis == 0:
        raise Unsupported("along the batch")
    if len(parts) == 1:
        return parts[0]
    if axis == (3 if parts[0].last else 1):
        return joined(reader, "concat", parts)
    # Other axes take the place of the channels for a while.
    order = (0, axis, *(one for one in range(1, count) if one != axis))
    back = tuple(order.index(one) for one in range(count))
    turned = [reader.layer(Permute(order), views.plain(reader, part)) for part in parts]
    return reader.layer(Permute(back), joined(reader, "concat", turned))


def _is_class_token(reader: Reader, tensors: Any, dim: int) -> bool:
    """Whether values are a weight that nothing else reads, and tokens."""
    if len(tensors) != 2 or not isinstance(tensors[0], Weight) or dim != 1:
        return False
    first, x = tensors
    fits = isinstance(x, Value) and len(x.shape) == 2 and first.shape == (1, 1, x.shape[1])
    return fits and not first.viewed and len(reader.here.args[0][0].users) == 1


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
    return joined(reader, "multiply", [first, reader.layer(activations.Sigmoid(), second)])


def elementwise(make: Callable[..., Layer]) -> Callable[..., Any]:
    """An operator that changes each element by itself; `make` takes its other arguments."""

    def read(reader: Reader, self: Any, **how: Any) -> Any:
        return applied(reader, make(**how), self)

    return read


def _clip(min: Any = None, max: Any = None) -> Layer:
    given = [one for one in (min, max) if one is not None]
    if not given or not all(isinstance(one, int | float) for one in given):
        raise Unsupported("without limits that are numbers")
    low, high = (-LARGEST if min is None else min), (LARGEST if max is None else max)
    return activations.Clip(float(low), float(high))


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
    "clamp_min": elementwise(_clip),
    "clamp_max": elementwise(_clip),
    "exp": elementwise(activations.Exp),
    "log": elementwise(activations.Log),
    "sqrt": elementwise(lambda: activations.Power(0.5)),
    "rsqrt": elementwise(lambda: activations.Power(-0.5)),
    "reciprocal": elementwise(lambda: activations.Power(-1.0)),
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
    "layer_norm": norms.layer_norm,
    "rms_norm": norms.rms_norm,
    "var": norms.var,
    "std": norms.std,
    "var_mean": norms.var_mean,
    "linalg_vector_norm": norms.vector_norm,
    "norm": lambda reader, self, p=2, dim=None, keepdim=False: norms.vector_norm(
        reader, self, 2 if p is None else p, dim, keepdim
    ),
    "mean": pools.mean,
    "sum": pools.sum_,
    "amax": pools.amax,
    "amin": pools.amin,
    "max": pools.max_,
    "min": pools.min_,
    "add": arithmetic.add,
    "sub": arithmetic.sub,
    "rsub": lambda reader, self, other, alpha=1: arithmetic.sub(reader, other, self, alpha),
    "mul": arithmetic.mul,
    "div": arithmetic.div,
    "square": arithmetic.square,
    "pow": arithmetic.power,
    "maximum": arithmetic.maximum,
    "minimum": arithmetic.minimum,
    "abs": arithmetic.absolute,
    "elu": arithmetic.elu,
    "selu": lambda reader, self: arithmetic.elu(reader, self, *SELU),
    "celu": arithmetic.celu,
    "softplus": arithmetic.softplus,
    "mish": arithmetic.mish,
    "log_sigmoid": arithmetic.log_sigmoid,
    "softshrink": arithmetic.softshrink,
    "prelu": arithmetic.prelu,
    "masked_fill": arithmetic.masked_fill,
    "where": arithmetic.where,
    "flip": resampled.flip,
    "repeat": resampled.repeat,
    "tile": lambda reader, self, dims: resampled.repeat(reader, self, dims),
    "repeat_interleave": resampled.repeat_interleave,
    "index_select": resampled.index_select,
    "index": resampled.index,
}
OPERATORS: Mapping[str, Callable[..., Any]] = {
    **ANY_ORDER,
    "conv2d": conv2d,
    "conv1d": conv1d,
    "pad": pad,
    "linear": linear,
    "batch_norm": norms.batch_norm,
    "group_norm": norms.group_norm,
    "instance_norm": norms.instance_norm,
    "max_pool1d": pools.max_pool1d,
    "avg_pool1d": pools.avg_pool1d,
    "adaptive_avg_pool1d": pools.adaptive_avg_pool1d,
    "max_pool2d": pools.max_pool2d,
    "avg_pool2d": pools.avg_pool2d,
    "adaptive_avg_pool2d": pools.adaptive_avg_pool2d,
    "adaptive_max_pool2d": pools.adaptive_max_pool2d,
    **dict.fromkeys(
        ("upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d"), resampled.upsample
    ),
    "im2col": resampled.im2col,
    "pixel_shuffle": resampled.pixel_shuffle,
    "pixel_unshuffle": resampled.pixel_unshuffle,
    "channel_shuffle": resampled.channel_shuffle,
    "addcmul": addcmul,
    **dict.fromkeys(
        ("view", "reshape", "reshape_as", "view_as", "flatten", "squeeze", "unsqueeze",
         "unflatten"), views.reshaped,
    ),
    "expand": views.expand,
    "expand_as": views.expand,
    "permute": views.permute,
    "transpose": views.transpose,
    "t": lambda reader, self: views.transpose(reader, self, 0, 1),
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
    **dict.fromkeys(("contiguous", "clone", "alias", "to", "type_as"), same),
    "_assert_tensor_metadata": nothing,
    "dropout": dropout,
    "feature_dropout": feature_dropout,
    "cat": cat,
    "concat": cat,
    "stack": stack,
    "roll": roll,
    "glu": glu,
    "empty": arithmetic.empty,
    "new_empty": lambda reader, self, size, **more: arithmetic.empty(reader, size),
    "bernoulli": arithmetic.bernoulli,
}  # fmt: skip
MOVED: Mapping[str, Callable[..., Any]] = {
    **moved_operators(linear),
    **ANY_ORDER,
    "linear": moved_linear,
    "slice": moved_slice,
}
