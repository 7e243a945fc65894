"""ATen's sums, products, quotients and powers, of values, numbers, constants and weights."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from pareo.nn import activations, layers
from pareo.nn.normalisation import Normalise
from pareo.nn.tokens import PositionEmbedding
from pareo.nn.torch_import.folded import Known, Picked, by_place, known_buffer, number_of
from pareo.nn.torch_import.joins import applied, joined, joined_in_order, scaled
from pareo.nn.torch_import.moved import Moved
from pareo.nn.torch_import.operands import stripped
from pareo.nn.torch_import.reader import Reader
from pareo.nn.torch_import.values import Noise, Unsupported, Value, Weight
from pareo.nn.torch_import.views import shape_of, value

FACTORS = 8  # at most, of a power that is a product


def add(reader: Reader, self: Any, other: Any, alpha: Any = 1) -> Any:
    """A sum of two values; that of a weight for each position, a position embedding."""
    if isinstance(self, Weight) and self.name.endswith("num_batches_tracked"):
        return self  # the counter of batch normalisation, which nothing uses
    if isinstance(self, Weight | Known | Picked | int | float):
        if alpha != 1:
            other, alpha = scaled(reader, other, alpha, 0.0), 1
        self, other = other, self
    other = number_of(known_buffer(reader, other))
    if isinstance(other, int | float):
        return scaled(reader, self, 1.0, alpha * other)
    if isinstance(other, Known):
        return by_place(reader, self, other, factor=alpha)
    if isinstance(other, Weight | Picked):
        if alpha != 1:  # x - w is -(-x / alpha + w)
            turned = add(reader, scaled(reader, self, 1 / alpha, 0.0), other)
            return scaled(reader, turned, alpha, 0.0)
        return _with_weight(reader, self, other)
    if alpha != 1:
        other = scaled(reader, other, alpha, 0.0)
    return _join(reader, "add", self, other)


def _with_weight(reader: Reader, x: Any, other: Any) -> Any:
    position = isinstance(x, Value) and len(x.shape) == 2 and isinstance(other, Weight)
    if position and other.shape == (1, *x.shape):
        return reader.layer(PositionEmbedding(), x, {"w": (other, "same")})
    return by_place(reader, x, picked(other))


def picked(weight: Any) -> Picked:
    """All elements of a weight, in the shape in which it is used."""
    if isinstance(weight, Picked):
        return weight
    return Picked(weight, np.arange(math.prod(weight.shape)).reshape(weight.seen))


def _join(reader: Reader, how: str, one: Any, two: Any) -> Any:
    if isinstance(one, Moved) or isinstance(two, Moved):
        return joined_in_order(reader, how, one, two)
    return joined(reader, how, [value(one), two])


def sub(reader: Reader, self: Any, other: Any, alpha: Any = 1) -> Any:
    """A value less another, less a number, or less a buffer with a number for each channel."""
    if alpha == 1 and isinstance(other, Weight) and isinstance(self, Value):
        mean = _each_channel(reader, self, other)
        if mean is not None:
            return reader.layer(Normalise(mean, (1.0,) * len(mean)), self)
    if isinstance(self, int | float):
        return scaled(reader, other, -alpha, self)
    return add(reader, self, other, -alpha)


def _each_channel(reader: Reader, x: Value, buffer: Weight) -> tuple[float, ...] | None:
    """The numbers of a buffer that has one for each channel; None for others."""
    found, size = reader.constant(buffer), x.shape[0]
    wide = (size, *[1] * (len(x.shape) - 1))
    if found is None or x.last or stripped(buffer.seen) != stripped(wide):
        return None
    return found


def mul(reader: Reader, self: Any, other: Any) -> Any:
    """A product of two values, of values and a weight for each channel, or stochastic depth."""
    if isinstance(self, Weight | Noise | Known | Picked | int | float):
        self, other = other, self
    other = number_of(known_buffer(reader, other))
    if isinstance(other, int | float):
        return scaled(reader, self, float(other), 0.0)
    if isinstance(other, Noise):
        if other.kept is None or not other.divided:
            raise Unsupported("with numbers that are not those of stochastic depth")
        return reader.layer(layers.StochasticDepth(1 - other.kept), value(self))
    if isinstance(other, Known):
        return by_place(reader, self, other, product=True)
    if isinstance(other, Weight | Picked):
        return _times_weight(reader, self, other)
    return _join(reader, "multiply", self, other)


def _times_weight(reader: Reader, x: Any, other: Any) -> Any:
    if isinstance(x, Value) and isinstance(other, Weight):
        size = x.shape[0] if len(x.shape) == 3 else x.shape[-1]
        wide = (size, 1, 1) if len(x.shape) == 3 and not x.last else (size,)
        if stripped(other.seen) == stripped(wide) and len(other.seen) <= len(x.shape) + 1:
            return reader.layer(layers.Scale(), x, {"w": (other, "reshaped")})
    return by_place(reader, x, picked(other), product=True)


def div(reader: Reader, self: Any, other: Any) -> Any:
    """A quotient of two values, or the numbers of stochastic depth divided by their mean."""
    other = number_of(other)
    if isinstance(self, Noise):
        if self.kept != other or self.divided:
            raise Unsupported("of other values than those of stochastic depth")
        return Noise(self.kept, divided=True)
    if isinstance(other, int | float):
        if not other:
            raise Unsupported("by 0")
        return scaled(reader, self, 1 / other, 0.0)
    if isinstance(self, Value) and isinstance(other, Weight):
        deviation = _each_channel(reader, self, other)
        if deviation is not None and min(deviation) > 0:
            return reader.layer(Normalise((0.0,) * len(deviation), deviation), self)
    other = known_buffer(reader, other)
    if isinstance(other, Known):
        if not other.array.all():
            raise Unsupported("by 0")
        return by_place(reader, self, Known(1.0 / other.tensor), product=True)
    if isinstance(other, Weight | Picked):
        raise Unsupported("by a trained weight")
    return mul(reader, applied(reader, activations.Power(-1.0), other), self)


def square(reader: Reader, self: Any) -> Any:
    """The square of each element."""
    return power(reader, self, 2)


def power(reader: Reader, self: Any, exponent: Any) -> Any:
    """A fixed power of each element; a product where it is a small whole number."""
    if not isinstance(exponent, int | float) or not isinstance(self, Value | Moved):
        raise Unsupported("with an exponent that is not one number")
    if exponent == int(exponent) and 1 <= exponent <= FACTORS:
        factors = [self] * int(exponent)
        if len(factors) == 1:
            return self
        if isinstance(self, Moved):
            y = joined(reader, "multiply", [self.origin] * len(factors))
            return replace(self, origin=y)
        return joined(reader, "multiply", factors)
    if exponent == 0:
        raise Unsupported("with the exponent 0")
    if exponent == int(exponent) and -FACTORS <= exponent < -1:  # also of values below 0
        return power(reader, applied(reader, activations.Power(-1.0), self), -exponent)
    return applied(reader, activations.Power(float(exponent)), self)


def masked_fill(reader: Reader, self: Any, mask: Any, value: Any) -> Any:
    """A number where a fixed mask says so, as in attention."""
    mask, number = known_buffer(reader, mask), number_of(value)
    if not isinstance(mask, Known) or not isinstance(number, int | float):
        raise Unsupported("by a mask that depends on the input, or with other values than a number")
    tensor = mask.tensor.bool().double()
    if math.isinf(number):
        filled = tensor.masked_fill(tensor.bool(), number)
        return by_place(reader, self, Known(filled))
    left = by_place(reader, self, Known(1 - tensor), product=True)
    return by_place(reader, left, Known(tensor * number)) if number else left


def where(reader: Reader, condition: Any, self: Any, other: Any) -> Any:
    """One of two values by a fixed condition."""
    known = known_buffer(reader, condition)
    if not isinstance(known, Known):
        raise Unsupported("by a condition that depends on the input")
    self, other = number_of(self), number_of(other)
    chosen = known.tensor.bool()
    if isinstance(self, int | float):
        return masked_fill(reader, other, known, self)
    if isinstance(other, int | float):
        return masked_fill(reader, self, Known(~chosen), other)
    left = masked_fill(reader, self, Known(~chosen), 0.0)
    return add(reader, left, masked_fill(reader, other, known, 0.0))


def maximum(reader: Reader, self: Any, other: Any) -> Any:
    """The larger of two values; of equal ones each has half of the gradient."""
    return add(reader, _above(reader, sub(reader, self, other)), other)


def minimum(reader: Reader, self: Any, other: Any) -> Any:
    """The smaller of two values; of equal ones each has half of the gradient."""
    return sub(reader, self, _above(reader, sub(reader, self, other)))


def _above(reader: Reader, x: Any) -> Any:
    """x above 0, else 0, with a gradient of a half at 0."""
    return scaled(reader, add(reader, x, absolute(reader, x)), 0.5, 0.0)


def absolute(reader: Reader, self: Any) -> Any:
    """The size of each element."""
    below = applied(reader, activations.ReLU(), scaled(reader, self, -1.0, 0.0))
    return add(reader, applied(reader, activations.ReLU(), self), below)


def elu(reader: Reader, self: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    """ELU, and with a scale SELU."""
    if input_scale != 1:
        raise Unsupported(f"with the input scale {input_scale}")
    return scaled(reader, applied(reader, activations.ELU(float(alpha)), self), float(scale), 0.0)


def celu(reader: Reader, self: Any, alpha: Any = 1.0) -> Any:
    """CELU, which is ELU with another scale before and after it."""
    inside = scaled(reader, self, 1 / alpha, 0.0)
    return scaled(reader, applied(reader, activations.ELU(), inside), alpha, 0.0)


def softplus(reader: Reader, self: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    """log(1 + exp(beta x)) / beta."""
    inside = scaled(reader, self, float(beta), 0.0)
    return scaled(reader, applied(reader, activations.Softplus(), inside), 1 / beta, 0.0)


def mish(reader: Reader, self: Any) -> Any:
    """x tanh(softplus(x))."""
    return mul(reader, self, applied(reader, activations.Tanh(), softplus(reader, self)))


def log_sigmoid(reader: Reader, self: Any) -> Any:
    """The logarithm of the sigmoid."""
    return scaled(reader, softplus(reader, scaled(reader, self, -1.0, 0.0)), -1.0, 0.0)


def softshrink(reader: Reader, self: Any, lambd: Any = 0.5) -> Any:
    """Values that are moved towards 0."""
    sides = [
        applied(reader, activations.ReLU(), scaled(reader, self, sign, -float(lambd)))
        for sign in (1.0, -1.0)
    ]
    return sub(reader, *sides)


def prelu(reader: Reader, self: Any, weight: Any) -> Any:
    """ReLU with a trained slope below 0, one or one for each channel."""
    above = applied(reader, activations.ReLU(), self)
    below = sub(reader, self, above)  # its gradient at 0 is 1
    count = len(shape_of(reader, self))
    if isinstance(weight, Weight) and count > 2:
        weight = replace(weight, viewed=(math.prod(weight.shape), *[1] * (count - 2)))
    return add(reader, above, mul(reader, below, weight))


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
