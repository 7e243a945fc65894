"""Layers: small frozen objects that know their shapes and call `op.*`.

A layer defines its parameters and the shape of its output for an input shape (both without the
batch), and what it computes. It holds no arrays itself.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.operators.attributes import padding as parse_padding
from pareo.operators.attributes import pair as parse_pair
from pareo.operators.convolution import output_sizes
from pareo.operators.core import Where
from pareo.operators.pooling import pooled_sizes

Shape = tuple[int, ...]
Size = int | tuple[int, ...]


_L = TypeVar("_L", bound="type[Layer]")
registered: dict[str, "type[Layer]"] = {}  # layers of the user's own, by name


def register(kind: _L) -> _L:
    """Let checkpoints contain a layer of your own: a decorator of a frozen dataclass.

    Whoever loads such a checkpoint imports the module of the class first.
    """
    fields = getattr(kind, "__dataclass_fields__", None)
    if not (isinstance(kind, type) and issubclass(kind, Layer)) or fields is None:
        raise ShapeError(f"register expects a dataclass that is a Layer; got {kind!r}")
    if hasattr(import_module("pareo.nn"), kind.__name__):
        raise ShapeError(f"pareo has a layer that is called {kind.__name__!r}")
    registered[kind.__name__] = kind
    return kind


@dataclass(frozen=True)
class Parameter:
    """The shape of a parameter, its fan-in and fan-out, and the name of its initialiser.

    decays:  whether weight decay applies to it by default: not to biases and normalisations
    trained: whether gradients move it; otherwise it is state, such as a running mean, which the
             layer itself replaces in training
    """

    shape: Shape
    fans: tuple[int, int]
    start: str
    decays: bool = True
    trained: bool = True


@dataclass
class Context:
    """What a forward pass needs besides parameters: whether it is training, and seeds."""

    training: bool = False
    seeds: Iterator[Any] = field(default_factory=lambda: iter(()))
    heads: list[tuple[float, Any]] = field(default_factory=list)  # weight and logits of each
    replaced: list[tuple[Any, Any]] = field(default_factory=list)  # state, before and after
    fixed: frozenset[int] = frozenset()  # the `id` of state that stays as it is

    def replaces(self, state: Any) -> bool:
        """Whether a layer replaces its state in this forward pass."""
        return self.training and id(state) not in self.fixed

    def replace(self, state: Any, new: Any) -> None:
        """Give the new value of a layer's state."""
        self.replaced.append((state, new))


class Layer(ABC):
    """The base class of layers; by default without parameters, and the shape stays the same."""

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        """The parameters by name, for an input shape without the batch."""
        return {}

    def output(self, shape: Shape) -> Shape:
        """The output shape for an input shape, both without the batch."""
        return shape

    @abstractmethod
    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        """The output for a batch."""

    def seeds(self) -> int:
        """How many seeds a forward pass in training takes."""
        return 0

    @property
    def label(self) -> str:
        return type(self).__name__


def size_pair(name: str, value: Any) -> tuple[int, int]:
    """A size along height and width."""
    return parse_pair(value, Where(name, "size or stride", (), {}))


def image_shape(name: str, shape: Shape) -> tuple[int, int, int]:
    """Channels, height and width of an image; the layer of this name refuses other shapes."""
    if len(shape) != 3:
        raise ShapeError(f"{name} expects images (C, H, W); got inputs of shape {shape}")
    return shape[0], shape[1], shape[2]


@dataclass(frozen=True)
class Conv(Layer):
    """Convolution, with a bias for each filter unless `bias` is False."""

    filters: int
    size: Size
    stride: Size = 1
    padding: Size = 0
    groups: int = 1
    start: str = "glorot"
    bias: bool = True
    dilation: Size = 1

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        channels = image_shape("Conv", shape)[0]
        if channels % self.groups or self.filters % self.groups:
            raise ShapeError(
                f"Conv expects channels and filters that {self.groups} groups divide; "
                f"got {channels} and {self.filters}"
            )
        kh, kw = size_pair("Conv", self.size)
        share = channels // self.groups
        fans = share * kh * kw, self.filters // self.groups * kh * kw
        found = {"w": Parameter((self.filters, share, kh, kw), fans, self.start)}
        if self.bias:
            found["b"] = Parameter((self.filters,), fans, "zeros", decays=False)
        return found

    def output(self, shape: Shape) -> Shape:
        _, height, width = image_shape("Conv", shape)
        padding = parse_padding(self.padding, Where("Conv", "padding", (), {}))
        stride = size_pair("Conv", self.stride)
        window = size_pair("Conv", self.size)
        dilation = size_pair("Conv", self.dilation)
        sizes = output_sizes("Conv", (height, width), window, stride, padding, dilation)
        return (self.filters, *sizes)

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        y = op.conv(
            x, parameters["w"], stride=self.stride, padding=self.padding, groups=self.groups,
            dilation=self.dilation,
        )  # fmt: skip
        return op.add_bias(y, parameters["b"]) if self.bias else y

    @property
    def label(self) -> str:
        kh, kw = size_pair("Conv", self.size)
        return f"Conv {self.filters} @ {kh}x{kw}"


@dataclass(frozen=True)
class Subsample(Layer):
    """The first paper's trainable pooling: one filter and one bias, shared by all channels."""

    size: Size
    stride: Size
    start: str = "fan_in"

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        kh, kw = size_pair("Subsample", self.size)
        fans = (kh * kw, kh * kw)
        return {
            "w": Parameter((kh, kw), fans, self.start),
            "b": Parameter((), fans, "zeros", decays=False),
        }

    def output(self, shape: Shape) -> Shape:
        channels, height, width = image_shape("Subsample", shape)
        window, stride = size_pair("Subsample", self.size), size_pair("Subsample", self.stride)
        none = (0, 0, 0, 0)
        sizes = output_sizes("Subsample", (height, width), window, stride, none, (1, 1))
        return (channels, *sizes)

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.subsample(x, parameters["w"], parameters["b"], stride=self.stride)


@dataclass(frozen=True)
class _Pool(Layer, ABC):
    size: Size
    stride: Size | None = None
    padding: Size = 0
    ceil: bool = False

    def output(self, shape: Shape) -> Shape:
        name = type(self).__name__
        channels, height, width = image_shape(name, shape)
        window = size_pair(name, self.size)
        stride = window if self.stride is None else size_pair(name, self.stride)
        padding = parse_padding(self.padding, Where(name, "padding", (), {}))
        return (channels, *pooled_sizes(name, (height, width), window, stride, padding, self.ceil))

    def how(self) -> dict[str, Any]:
        return {
            "size": self.size,
            "stride": self.stride,
            "padding": self.padding,
            "ceil": self.ceil,
        }


@dataclass(frozen=True)
class MaxPool(_Pool):
    """The largest element of each window."""

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.max_pool(x, **self.how())


@dataclass(frozen=True)
class AveragePool(_Pool):
    """The mean of each window, without the padding, or with `counts_padding` as zeros."""

    counts_padding: bool = False

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        y = op.average_pool(x, **self.how())
        if not self.counts_padding:
            return y
        inside, whole = self.counts(x.shape[2:])
        return op.hadamard(y, (inside / whole).astype(x.dtype)[None, None])

    def counts(self, image: Shape) -> tuple[Any, Any]:
        """The number of pixels in each window, without the padding and with it.

        >>> [counts.tolist() for counts in AveragePool(2, padding=1).counts((2, 1))]
        [[[1], [1]], [[4], [4]]]
        """
        window = size_pair("AveragePool", self.size)
        stride = window if self.stride is None else size_pair("AveragePool", self.stride)
        padding = parse_padding(self.padding, Where("AveragePool", "padding", (), {}))
        found = []
        for axis, count in enumerate(self.output((1, *image))[1:]):
            starts = np.arange(count) * stride[axis] - padding[axis]
            ends = np.minimum(starts + window[axis], image[axis] + padding[2 + axis])
            found.append((np.minimum(ends, image[axis]) - np.maximum(starts, 0), ends - starts))
        (inside_rows, rows), (inside_columns, columns) = found
        return np.outer(inside_rows, inside_columns), np.outer(rows, columns)


@dataclass(frozen=True)
class Dropout(Layer):
    """Set a share of the elements to zero in training; do nothing otherwise."""

    rate: float = 0.5

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.dropout(x, self.rate, next(context.seeds)) if context.training else x

    def seeds(self) -> int:
        return 1


@dataclass(frozen=True)
class StochasticDepth(Layer):
    """Set whole examples to zero in training, as in the body of a residual connection."""

    rate: float

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        if not context.training:
            return x
        ones = np.ones((x.shape[0], *[1] * (x.ndim - 1)), x.dtype)
        return op.hadamard(x, op.dropout(ones, self.rate, next(context.seeds)))

    def seeds(self) -> int:
        return 1


@dataclass(frozen=True)
class GlobalAveragePool(Layer):
    """The mean of each channel over all pixels: (C, 1, 1)."""

    def output(self, shape: Shape) -> Shape:
        return (image_shape("GlobalAveragePool", shape)[0], 1, 1)

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.mean(x, axis=(2, 3), keepdims=True)


@dataclass(frozen=True)
class Scale(Layer):
    """A trained factor for each channel, or for each feature of tokens."""

    start: str = "ones"

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        size = shape[0] if len(shape) == 3 else shape[-1]
        return {"w": Parameter((size,), (size, size), self.start)}

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        w = parameters["w"]
        return op.hadamard(x, op.reshape(w, (1, -1, 1, 1)) if x.ndim == 4 else w)


@dataclass(frozen=True)
class Dense(Layer):
    """A fully connected layer, with a bias unless `bias` is False.

    Its inputs are features, or tokens (tokens, features), to each of which it is applied.
    """

    units: int
    start: str = "glorot"
    bias: bool = True

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        if len(shape) not in (1, 2):
            raise ShapeError(f"Dense expects flat inputs (features,); got {shape}: add Flatten()")
        fans = (shape[-1], self.units)
        found = {"w": Parameter((shape[-1], self.units), fans, self.start)}
        if self.bias:
            found["b"] = Parameter((self.units,), fans, "zeros", decays=False)
        return found

    def output(self, shape: Shape) -> Shape:
        return (*shape[:-1], self.units)

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        rows = op.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1])) if x.ndim > 2 else x
        y = op.dot(rows, parameters["w"])
        if self.bias:
            y = op.add_bias(y, parameters["b"])
        return op.reshape(y, (*x.shape[:-1], self.units)) if x.ndim > 2 else y

    @property
    def label(self) -> str:
        return f"Dense {self.units}"


@dataclass(frozen=True)
class Flatten(Layer):
    """Flatten all axes but the batch into one."""

    def output(self, shape: Shape) -> Shape:
        return (math.prod(shape),)

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.reshape(x, (x.shape[0], math.prod(x.shape[1:])))


@dataclass(frozen=True)
class Identity(Layer):
    """The input itself."""

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return x
