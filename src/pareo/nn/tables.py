"""Layers that add numbers by place: fixed ones, or those of a trained table."""

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
        raise ShapeError(f"{name} expects inputs that {own} can be added to; got {shape}")
    return shape


@dataclass(frozen=True)
class FixedSum(Layer):
    """Adds fixed numbers, such as those of a positional encoding or of a mask.

    shape: has the axes of one input; those of size 1 are repeated. numbers: packed float64.
    """

    shape: Shape
    numbers: str

    def output(self, shape: Shape) -> Shape:
        self.array()
        return _broadcast("FixedSum", tuple(self.shape), shape)

    def array(self) -> Any:
        """The numbers."""
        return unpacked(self.numbers, "<f8", tuple(self.shape))

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.add(x, self.array().astype(x.dtype)[None])


@dataclass(frozen=True)
class TableSum(Layer):
    """Adds to each element the number of a trained table that belongs to its place.

    This is the relative position bias of attention in windows. shape: has the axes of one input;
    those of size 1 are repeated. table: the shape of the table. places: packed int32, for each
    element of `shape` the number of its element in the table.
    """

    shape: Shape
    table: Shape
    places: str
    start: str = "normal_0.02"

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        size = math.prod(self.table)
        return {"w": Parameter(tuple(self.table), (size, size), self.start)}

    def output(self, shape: Shape) -> Shape:
        found = self.array()
        if found.size and not (found.min() >= 0 and found.max() < math.prod(self.table)):
            raise ShapeError(f"TableSum expects places in a table of shape {self.table}")
        return _broadcast("TableSum", tuple(self.shape), shape)

    def array(self) -> Any:
        """The places in the table."""
        return unpacked(self.places, "<i4", tuple(self.shape))

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        flat = op.reshape(parameters["w"], (math.prod(self.table),))
        return op.add(x, op.take(flat, self.array().astype(np.int64)[None]))
