"""Normalisation layers; that of batches keeps running statistics as its state."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.nn.layers import Context, Layer, Parameter, Shape


@dataclass(frozen=True)
class BatchNorm(Layer):
    """Each channel, brought to mean 0 and variance 1, times a trained scale, plus a trained shift.

    In training the statistics are those of the batch. The running statistics, which are used
    otherwise, move towards them by `momentum` at each step; as in PyTorch, the running variance is
    that of a sample, divided by one less than the count.
    """

    momentum: float = 0.1
    epsilon: float = 1e-5

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        size, fans = (shape[0],), (shape[0], shape[0])
        return {
            "scale": Parameter(size, fans, "ones", decays=False),
            "shift": Parameter(size, fans, "zeros", decays=False),
            "mean": Parameter(size, fans, "zeros", decays=False, trained=False),
            "variance": Parameter(size, fans, "ones", decays=False, trained=False),
        }

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        scale, shift = parameters["scale"], parameters["shift"]
        mean, variance = parameters["mean"], parameters["variance"]
        if not context.replaces(mean):
            return op.batch_norm_inference(x, scale, shift, mean, variance, self.epsilon)
        y, now, spread = op.batch_norm(x, scale, shift, self.epsilon)
        count = math.prod(x.shape) // x.shape[1]
        if count < 2:
            raise ShapeError(
                f"BatchNorm expects more than one element a channel in training; got {x.shape}"
            )
        new = self.momentum, self.momentum * count / (count - 1)
        for old, found, share in ((mean, now, new[0]), (variance, spread, new[1])):
            kept = op.scale(1 - self.momentum, old)
            context.replace(old, op.add(kept, op.scale(share, found)))
        return y


@dataclass(frozen=True)
class LayerNorm(Layer):
    """Brought to mean 0 and variance 1 along one axis, times a trained scale, plus a trained shift.

    `axis` counts the batch: 1 is the channels of images, -1 the features of tokens.
    """

    axis: int = -1
    epsilon: float = 1e-5

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        size = (1, *shape)[self.axis]
        return {
            "scale": Parameter((size,), (size, size), "ones", decays=False),
            "shift": Parameter((size,), (size, size), "zeros", decays=False),
        }

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.layer_norm(x, parameters["scale"], parameters["shift"], self.axis, self.epsilon)


@dataclass(frozen=True)
class GroupNorm(Layer):
    """Channels in groups, each brought to mean 0 and variance 1 for each input by itself.

    A trained scale and shift for each channel follow, unless `trained` is False. With one group for
    each channel it is known as instance normalisation.
    """

    groups: int
    epsilon: float = 1e-5
    trained: bool = True

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        size, fans = shape[:1], (shape[0], shape[0])
        if not self.trained:
            return {}
        return {
            "scale": Parameter(size, fans, "ones", decays=False),
            "shift": Parameter(size, fans, "zeros", decays=False),
        }

    def output(self, shape: Shape) -> Shape:
        if self.groups < 1 or shape[0] % self.groups:
            raise ShapeError(
                f"GroupNorm expects channels that {self.groups} groups divide; got {shape}"
            )
        return shape

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        size = math.prod(x.shape[1:]) // self.groups
        grouped = op.reshape(x, (x.shape[0] * self.groups, size))
        ones, zeros = np.ones(size, x.dtype), np.zeros(size, x.dtype)
        y = op.reshape(op.layer_norm(grouped, ones, zeros, -1, self.epsilon), x.shape)
        if not self.trained:
            return y
        wide = (1, -1, *[1] * (x.ndim - 2))
        scale, shift = (op.reshape(parameters[name], wide) for name in ("scale", "shift"))
        return op.add(op.hadamard(y, scale), shift)


@dataclass(frozen=True)
class Normalise(Layer):
    """(x - mean) / deviation for each channel, with fixed numbers: those of the training data."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def output(self, shape: Shape) -> Shape:
        if not len(self.mean) == len(self.deviation) == shape[0] or min(self.deviation) <= 0:
            raise ShapeError(
                f"Normalise expects a mean and a deviation above 0 for each of {shape[0]} "
                f"channels; got {self.mean} and {self.deviation}"
            )
        return shape

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        wide = (1, -1, *[1] * (x.ndim - 2))
        mean = np.array(self.mean, x.dtype).reshape(wide)
        inverse = (1 / np.array(self.deviation, np.float64)).astype(x.dtype).reshape(wide)
        return op.hadamard(op.sub(x, mean), inverse)


@dataclass(frozen=True)
class Lrn(Layer):
    """Local response normalisation across channels."""

    size: int = 5
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.lrn(x, self.size, alpha=self.alpha, beta=self.beta, k=self.k)
