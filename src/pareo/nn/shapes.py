"""Layers that only move elements: other shapes, axes in another order, and parts along an axis."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.nn.layers import Context, Layer, Shape


@dataclass(frozen=True)
class Reshape(Layer):
    """The same elements in another shape, which is that of one input, without the batch."""

    shape: Shape

    def output(self, shape: Shape) -> Shape:
        if math.prod(self.shape) != math.prod(shape):
            raise ShapeError(f"Reshape expects as many elements as {self.shape} has; got {shape}")
        return tuple(self.shape)

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.reshape(x, (x.shape[0], *self.shape))


@dataclass(frozen=True)
class Permute(Layer):
    """The axes in another order; that of the batch, 0, stays the first."""

    axes: tuple[int, ...]

    def output(self, shape: Shape) -> Shape:
        if self.axes[:1] != (0,) or sorted(self.axes) != list(range(len(shape) + 1)):
            raise ShapeError(
                f"Permute expects 0 and then the axes of {shape}, counted from 1; got {self.axes}"
            )
        return tuple(shape[axis - 1] for axis in self.axes[1:])

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.transpose(x, self.axes)


@dataclass(frozen=True)
class Pad(Layer):
    """Zeros before and after the elements along each axis of one input, without the batch."""

    before: tuple[int, ...]
    after: tuple[int, ...]

    def output(self, shape: Shape) -> Shape:
        if not len(self.before) == len(self.after) == len(shape) or min(
            *self.before, *self.after, 0
        ):
            raise ShapeError(
                f"Pad expects numbers of zeros for each axis of {shape}; "
                f"got {self.before} and {self.after}"
            )
        sizes = zip(self.before, shape, self.after, strict=True)
        return tuple(sum(three) for three in sizes)

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.pad(x, [(0, 0), *zip(self.before, self.after, strict=True)])


@dataclass(frozen=True)
class Part(Layer):
    """The elements from `start` up to, not including, `stop` along an axis; the batch is axis 0."""

    axis: int
    start: int
    stop: int

    def output(self, shape: Shape) -> Shape:
        if not 1 <= self.axis <= len(shape):
            raise ShapeError(f"Part expects an axis of {shape}, counted from 1; got {self.axis}")
        size = shape[self.axis - 1]
        if not 0 <= self.start < self.stop <= size:
            raise ShapeError(
                f"Part expects a start below a stop of at most {size}; "
                f"got {self.start} and {self.stop}"
            )
        return (*shape[: self.axis - 1], self.stop - self.start, *shape[self.axis :])

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.part(x, self.axis, (self.start, self.stop))


@dataclass(frozen=True)
class Index(Layer):
    """The elements at fixed places along an axis, in any order, also repeated; 0 is the batch."""

    axis: int
    places: tuple[int, ...]

    def output(self, shape: Shape) -> Shape:
        if not 1 <= self.axis <= len(shape):
            raise ShapeError(f"Index expects an axis of {shape}, counted from 1; got {self.axis}")
        size = shape[self.axis - 1]
        if not self.places or not 0 <= min(self.places) <= max(self.places) < size:
            raise ShapeError(f"Index expects places of 0 to {size - 1}; got {self.places}")
        return (*shape[: self.axis - 1], len(self.places), *shape[self.axis :])

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        order = (self.axis, *(axis for axis in range(x.ndim) if axis != self.axis))
        rows = op.take(op.transpose(x, order), np.array(self.places, np.int64))
        return op.transpose(rows, tuple(order.index(axis) for axis in range(x.ndim)))
