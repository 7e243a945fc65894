"""Activations: layers that change each element by itself, and softmax."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.nn.layers import Context, Layer, Shape


@dataclass(frozen=True)
class Sigmoid(Layer):
    """1 / (1 + exp(-x))."""

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.sigmoid(x)


@dataclass(frozen=True)
class Tanh(Layer):
    """Hyperbolic tangent."""

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.tanh(x)


@dataclass(frozen=True)
class ReLU(Layer):
    """The larger of 0 and x."""

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.relu(x)


@dataclass(frozen=True)
class LeakyReLU(Layer):
    """x where it is above 0, else slope * x."""

    slope: float = 0.01

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.leaky_relu(x, self.slope)


@dataclass(frozen=True)
class Clip(Layer):
    """x, but at least low and at most high; ReLU6 by default."""

    low: float = 0.0
    high: float = 6.0

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.clip(x, self.low, self.high)


@dataclass(frozen=True)
class GELU(Layer):
    """x times the normal distribution function of x, or the approximation of that by tanh."""

    approximate: bool = False

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.gelu(x, self.approximate)


@dataclass(frozen=True)
class SiLU(Layer):
    """x * sigmoid(x), also known as swish."""

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.silu(x)


@dataclass(frozen=True)
class HardSigmoid(Layer):
    """(x + 3) / 6, clipped to 0 and 1."""

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.hard_sigmoid(x)


@dataclass(frozen=True)
class HardSwish(Layer):
    """x * hard_sigmoid(x)."""

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.hard_swish(x)


@dataclass(frozen=True)
class ELU(Layer):
    """x where it is above 0, else alpha * (exp(x) - 1)."""

    alpha: float = 1.0

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        above = op.relu(x)
        below = op.sub(x, above)  # x below 0, else 0; its gradient at 0 is 1
        bent = op.sub(op.exp(below), np.ones((1,) * x.ndim, x.dtype))
        return op.add(above, op.scale(self.alpha, bent))


@dataclass(frozen=True)
class Softplus(Layer):
    """log(1 + exp(x)), a smooth ReLU."""

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        above = op.relu(x)
        less = op.sub(op.sub(x, above), above)  # -|x|, whose exponential cannot overflow
        one = np.ones((1,) * x.ndim, x.dtype)
        return op.add(above, op.log(op.add(op.exp(less), one)))


@dataclass(frozen=True)
class Exp(Layer):
    """e to the power of x."""

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.exp(x)


@dataclass(frozen=True)
class Log(Layer):
    """The natural logarithm of x."""

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.log(x)


@dataclass(frozen=True)
class Power(Layer):
    """x to a fixed power; x is above 0, unless the power is -1."""

    exponent: float

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        if self.exponent == -1:
            return op.div(np.ones((1,) * x.ndim, x.dtype), x)
        return op.exp(op.scale(self.exponent, op.log(x)))


@dataclass(frozen=True)
class Affine(Layer):
    """factor * x + shift, with fixed numbers."""

    factor: float = 1.0
    shift: float = 0.0

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        y = x if self.factor == 1 else op.scale(self.factor, x)
        if self.shift == 0:
            return y
        return op.add(y, np.full((1,) * x.ndim, self.shift, x.dtype))


@dataclass(frozen=True)
class Softmax(Layer):
    """exp(x), scaled to a sum of 1 along an axis; the batch is axis 0."""

    axis: int = 1

    def output(self, shape: Shape) -> Shape:
        return along("Softmax", self.axis, shape)

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.softmax(x, axis=self.axis)


@dataclass(frozen=True)
class LogSoftmax(Layer):
    """The logarithm of softmax; cross-entropy of it is that of x itself."""

    axis: int = 1

    def output(self, shape: Shape) -> Shape:
        return along("LogSoftmax", self.axis, shape)

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.log_softmax(x, axis=self.axis)


def along(name: str, axis: int, shape: Shape) -> Shape:
    """The shape of one input, which has this axis besides that of the batch."""
    if not 1 <= axis <= len(shape):
        raise ShapeError(f"{name} expects an axis of {shape}, counted from 1; got {axis}")
    return shape
