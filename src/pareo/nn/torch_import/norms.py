"""ATen's operators that normalise."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from pareo.nn.activations import Power
from pareo.nn.normalisation import BatchNorm, GroupNorm, LayerNorm
from pareo.nn.shapes import Reshape
from pareo.nn.torch_import import views
from pareo.nn.torch_import.arithmetic import add, mul, square, sub
from pareo.nn.torch_import.arranged import arranged
from pareo.nn.torch_import.joins import applied, scaled
from pareo.nn.torch_import.operands import weight_of
from pareo.nn.torch_import.pools import mean, sum_
from pareo.nn.torch_import.reader import Reader
from pareo.nn.torch_import.values import Unsupported, Value
from pareo.nn.torch_import.views import value

TINY = 1e-30  # under a root, so that its gradient is finite where all that it is of is 0
EPSILON = float(np.finfo(np.float32).eps)  # PyTorch's of float32, which is what is trained


def trained(reader: Reader, x: Any, scale: Any, shift: Any) -> Any:
    """What was normalised, with one of a trained scale and shift."""
    return mul(reader, x, scale) if shift is None else add(reader, x, shift)


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
        untrained = layer_norm(reader, input, normalized_shape, None, None, eps, cudnn_enable)
        return trained(reader, untrained, weight, bias)
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
        untrained = group_norm(reader, x, num_groups, None, None, eps, cudnn_enabled)
        wide = (x.shape[0], *[1] * (len(x.shape) - 1))
        scale, shift = (one and replace(one, viewed=wide) for one in (weight, bias))
        return value(trained(reader, untrained, scale, shift))
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


def rms_norm(
    reader: Reader, input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None
) -> Any:
    """Values divided by the root of their mean square along the last axes."""
    axes = list(range(-len(normalized_shape), 0))
    squares = mean(reader, square(reader, input), axes, True)
    shifted = scaled(reader, squares, 1.0, EPSILON if eps is None else float(eps))
    y = mul(reader, input, applied(reader, Power(-0.5), shifted))
    return y if weight is None else mul(reader, y, weight)


def var(
    reader: Reader, self: Any, dim: Any = None, correction: Any = 1, keepdim: bool = False,
    unbiased: Any = None,
) -> Any:  # fmt: skip
    """The variance along some axes."""
    axes = views.axes_of(self, dim)
    less = sub(reader, self, mean(reader, self, axes, True))
    count = math.prod(views.shape_of(reader, self)[axis] for axis in axes)
    given = correction if unbiased is None else unbiased
    rest = count - (1 if given is None else int(given))
    if rest <= 0:
        raise Unsupported(f"of {count} elements, less {count - rest}")
    return scaled(reader, mean(reader, square(reader, less), axes, keepdim), count / rest, 0.0)


def std(reader: Reader, self: Any, *given: Any, **more: Any) -> Any:
    """The standard deviation along some axes."""
    return applied(reader, Power(0.5), scaled(reader, var(reader, self, *given, **more), 1.0, TINY))


def var_mean(reader: Reader, self: Any, dim: Any = None, *given: Any, **more: Any) -> list[Any]:
    """The variance and the mean along some axes."""
    kept = bool(more.get("keepdim"))
    axes = views.axes_of(self, dim)
    return [var(reader, self, dim, *given, **more), mean(reader, self, axes, kept)]


def vector_norm(
    reader: Reader, self: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False,
    dtype: Any = None, p: Any = None,
) -> Any:  # fmt: skip
    """The root of the sum of squares along some axes."""
    if (ord if p is None else p) != 2 or dtype is not None:
        raise Unsupported(f"of the order {ord if p is None else p}")
    squares = sum_(reader, square(reader, self), views.axes_of(self, dim), keepdim)
    return applied(reader, Power(0.5), scaled(reader, squares, 1.0, TINY))
