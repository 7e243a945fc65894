"""Activations: layers that change each element by itself, and softmax."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pareo.operators as op
from pareo.nn.layers import Context, Layer


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
class Softmax(Layer):
    """exp(x), scaled to a sum of 1 in each row."""

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.softmax(x, axis=1)
