"""Inputs of nodes that are weights, and the dense layers that they make."""

import math
from typing import Any

import numpy as np

from pareo.nn import layers
from pareo.nn.onnx_import.reader import OnnxReader, Step
from pareo.nn.onnx_import.values import Constant, Turned
from pareo.nn.shapes import Reshape
from pareo.nn.torch_import.values import Unsupported, Value
from pareo.nn.torch_names import TorchName

Given = tuple[Any, TorchName]  # a parameter's array, and its counterpart in the file


def value(x: Any) -> Value:
    """A value of the network whose batch is the first axis; others are refused."""
    if not isinstance(x, Value):
        raise Unsupported("its input is not values (N, ...) that depend on the network's input")
    return x


def constant(step: Step, place: int, what: str) -> Constant:
    """An input that must be a constant."""
    found = step.input(place)
    if not isinstance(found, Constant):
        state = "is left out" if found is None else "depends on the input of the network"
        raise Unsupported(f"its {what} {state}")
    return found


def given(weight: Constant, how: str = "same", factor: float = 1.0) -> Given:
    """A parameter from a constant, transposed or as it is."""
    array = weight.array.T if how == "transposed" else weight.array
    if factor != 1.0:
        array = array * np.asarray(factor, array.dtype)
    return array, weight.named(how)


def dense(reader: OnnxReader, x: Value, weight: Given, bias: Given | None) -> Value:
    """A dense layer along the last axis; of images with channels last, a 1x1 convolution."""
    (array, origin), rest = weight, {} if bias is None else {"b": bias}
    features, units = array.shape
    if x.seen[-1] != features:
        raise Unsupported(f"its weight has the shape {origin.shape}, its input {('N', *x.seen)}")
    if x.last:
        filters = np.ascontiguousarray(array.T)[:, :, None, None]
        shaped: TorchName = Turned(origin.name, "turned", origin.shape)
        if origin.how == "transposed":  # the file has (units, features)
            shaped = TorchName(origin.name, "reshaped", origin.shape)
        conv = layers.Conv(units, 1, bias=bias is not None)
        return reader.layer(conv, x, {"w": (filters, shaped), **rest})
    layer = layers.Dense(units, bias=bias is not None)
    if len(x.shape) <= 2:
        return reader.layer(layer, x, {"w": weight, **rest})
    rows = (math.prod(x.shape[:-1]), features)
    y = reader.layer(layer, reader.layer(Reshape(rows), x), {"w": weight, **rest})
    return reader.layer(Reshape((*x.shape[:-1], units)), y)
