"""Layers with numbers by place, fixed or of a trained table: sums, products, and mixtures."""

import base64
import binascii
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.nn.layers import Context, Layer, Parameter, Shape


def packed(array: Any, dtype: str) -> str:
    """Numbers as text, which a checkpoint can hold.

    >>> unpacked(packed([1, 2], "<i4"), "<i4", (2,))
    array([1, 2], dtype=int32)
    """
    return base64.b64encode(np.ascontiguousarray(array, dtype).tobytes()).decode()


def unpacked(text: str, dtype: str, shape: Shape) -> Any:
    """The numbers that `packed` made text of."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise ShapeError("expected numbers as text in base 64") from None
    if len(data) != math.prod(shape) * np.dtype(dtype).itemsize:
        raise ShapeError(f"expected as many numbers as {shape} has; got {len(data)} bytes")
    return np.frombuffer(data, dtype).reshape(shape)


def _broadcast(name: str, own: Shape, shape: Shape) -> Shape:
    if len(own) != len(shape) or any(a not in (1, b) for a, b in zip(own, shape, strict=True)):
        raise ShapeError(f"{name} expects inputs that {own} can be repeated to; got {shape}")
    return shape


class _Fixed(Layer):
    """What the layers of fixed numbers share."""

    shape: Shape
    numbers: str

    def output(self, shape: Shape) -> Shape:
        self.array()
        return _broadcast(type(self).__name__, tuple(self.shape), shape)

    def array(self) -> Any:
        """The numbers."""
        return unpacked(self.numbers, "<f8", tuple(self.shape))


@dataclass(frozen=True)
class FixedSum(_Fixed):
    """Adds fixed numbers, such as those of a positional encoding or of a mask.

    shape: has the axes of one input; those of size 1 are repeated. numbers: packed float64.
    """

    shape: Shape
    numbers: str

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.add(x, self.array().astype(x.dtype)[None])


@dataclass(frozen=True)
class FixedProduct(_Fixed):
    """Multiplies by fixed numbers, such as the cosines of a rotary embedding.

    shape: has the axes of one input; those of size 1 are repeated. numbers: packed float64.
    """

    shape: Shape
    numbers: str

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.mul(x, self.array().astype(x.dtype)[None])


class _Table(Layer):
    """What the layers of a trained table share."""

    shape: Shape
    table: Shape
    places: str
    start: str

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        size = math.prod(self.table)
        return {"w": Parameter(tuple(self.table), (size, size), self.start)}

    def output(self, shape: Shape) -> Shape:
        name, found = type(self).__name__, self.array()
        if found.size and not (found.min() >= 0 and found.max() < math.prod(self.table)):
            raise ShapeError(f"{name} expects places in a table of shape {self.table}")
        return _broadcast(name, tuple(self.shape), shape)

    def array(self) -> Any:
        """The places in the table."""
        return unpacked(self.places, "<i4", tuple(self.shape))

    def taken(self, w: Any) -> Any:
        """The numbers of the table at these places, for a batch of one."""
        flat = op.reshape(w, (math.prod(self.table),))
        return op.take(flat, self.array().astype(np.int64)[None])


@dataclass(frozen=True)
class TableSum(_Table):
    """Adds to each element the number of a trained table that belongs to its place.

    This is the relative position bias of attention in windows. shape: has the axes of one input;
    those of size 1 are repeated. table: the shape of the table. places: packed int32, for each
    element of `shape` the number of its element in the table.
    """

    shape: Shape
    table: Shape
    places: str
    start: str = "normal_0.02"

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.add(x, self.taken(parameters["w"]))


@dataclass(frozen=True)
class TableProduct(_Table):
    """Multiplies each element by the number of a trained table that belongs to its place.

    This is a gain of a whole layer, or the temperature of each head; see `TableSum`.
    """

    shape: Shape
    table: Shape
    places: str
    start: str = "ones"

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.mul(x, self.taken(parameters["w"]))


@dataclass(frozen=True)
class Mix(Layer):
    """Fixed mixtures of the elements along an axis, such as interpolation; the batch is axis 0.

    size: how many elements come out. numbers: packed float64, the share of each element that goes
    in (row) in each that comes out (column).
    """

    axis: int
    size: int
    numbers: str

    def output(self, shape: Shape) -> Shape:
        if not 1 <= self.axis <= len(shape):
            raise ShapeError(f"Mix expects an axis of {shape}, counted from 1; got {self.axis}")
        self.array(shape[self.axis - 1])
        return (*shape[: self.axis - 1], self.size, *shape[self.axis :])

    def array(self, count: int) -> Any:
        """The shares, for an axis of this many elements."""
        return unpacked(self.numbers, "<f8", (count, self.size))

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        order = (*(axis for axis in range(x.ndim) if axis != self.axis), self.axis)
        turned = op.transpose(x, order)
        shares = self.array(x.shape[self.axis]).astype(x.dtype)
        rows = op.reshape(turned, (math.prod(turned.shape[:-1]), turned.shape[-1]))
        mixed = op.reshape(op.dot(rows, shares), (*turned.shape[:-1], self.size))
        return op.transpose(mixed, tuple(order.index(axis) for axis in range(x.ndim)))
