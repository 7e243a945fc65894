"""Batch and layer normalisation."""

import math
from typing import Any

import numpy as np

from pareo.nn.normalisation import BatchNorm, GroupNorm, LayerNorm
from pareo.nn.onnx_import import views
from pareo.nn.onnx_import.reader import OnnxReader, Step
from pareo.nn.onnx_import.values import Constant
from pareo.nn.onnx_import.weights import constant, given, value
from pareo.nn.shapes import Reshape
from pareo.nn.torch_import.values import Unsupported, Value
from pareo.nn.torch_names import TorchName

DIGITS = 9  # of a momentum: 1 - 0.9 is 0.1


def batch_normalization(reader: OnnxReader, step: Step) -> Any:
    """Batch normalisation; the mode of the node does not matter, as a network has both."""
    x = value(step.inputs[0])
    if x.last:
        raise Unsupported("its channels are last")
    training, epsilon = step.get("training_mode", 0), step.get("epsilon")
    keys = ("scale", "shift", "mean", "variance")
    named = {key: given(constant(step, place + 1, key)) for place, key in enumerate(keys)}
    for name in step.outputs[1:] if training else ():
        reader.uses[name] = 0  # the new running statistics, which training replaces itself
    momentum = round(1 - step.get("momentum"), DIGITS)
    return reader.layer(BatchNorm(momentum, epsilon), x, named)


def layer_normalization(reader: OnnxReader, step: Step) -> Any:
    """Layer normalisation along the last axes."""
    step.get("stash_type")
    x, axis = value(step.inputs[0]), step.get("axis", -1)
    scale = constant(step, 1, "scale")
    shift = None if step.input(2) is None else constant(step, 2, "shift")
    return normalised(reader, x, axis, step.get("epsilon"), scale, shift)


def instance_normalization(reader: OnnxReader, step: Step) -> Value:
    """Instance normalisation, which is that of groups of one channel."""
    channels = views.whole(reader, step.inputs[0])[1]
    return _grouped(reader, step, channels)


def group_normalization(reader: OnnxReader, step: Step) -> Value:
    """Group normalisation, with a scale and a shift for each channel."""
    step.get("stash_type")
    return _grouped(reader, step, step.get("num_groups"))


def _grouped(reader: OnnxReader, step: Step, groups: int) -> Value:
    x = views.plain(reader, value(step.inputs[0]))
    scale, shift = constant(step, 1, "scale"), constant(step, 2, "shift")
    epsilon = step.get("epsilon")
    if scale.shape != x.shape[:1] or shift.shape != x.shape[:1]:
        raise Unsupported(f"its scale has the shape {scale.shape}")
    if _is_nothing(scale, shift):
        return reader.layer(GroupNorm(groups, epsilon, trained=False), x)
    named = {"scale": given(scale), "shift": given(shift)}
    return reader.layer(GroupNorm(groups, epsilon), x, named)


def _is_nothing(scale: Constant, shift: Constant | None) -> bool:
    """Whether numbers are part of the graph, as PyTorch writes them where there is no weight."""
    shifted = shift is not None and (shift.origin is not None or (shift.array != 0).any())
    return scale.origin is None and bool((scale.array == 1).all()) and not shifted


def normalised(
    reader: OnnxReader, x: Value, axis: int, epsilon: float, scale: Constant, shift: Constant | None
) -> Value:
    """A `LayerNorm`: of features, of channels that are seen last, or of several axes as one."""
    seen = x.seen
    axis = axis % (len(seen) + 1)
    if axis == 0:
        raise Unsupported("along the batch")
    size = math.prod(seen[axis - 1 :])
    own = scale.named("same").name
    none = TorchName(f"{own.removesuffix('.weight')}.bias", "same", (size,))  # not in the file
    zeros = (np.zeros(size, scale.array.dtype), none)
    if scale.array.size != size or (shift is not None and shift.array.size != size):
        raise Unsupported(f"its scale has the shape {scale.shape}")
    named = {
        "scale": (scale.array.ravel(), scale.named("reshaped")),
        "shift": zeros if shift is None else (shift.array.ravel(), shift.named("reshaped")),
    }
    if _is_nothing(scale, shift):
        rows = math.prod(seen[: axis - 1])
        flat = reader.layer(Reshape((rows, size)), views.plain(reader, x))
        y = reader.layer(GroupNorm(rows, epsilon, trained=False), flat)
        return reader.layer(Reshape(seen), y)
    if x.last and axis == 3:
        return reader.layer(LayerNorm(1, epsilon), x, named)
    x = views.plain(reader, x)
    if axis == len(seen) and len(seen) < 3:
        return reader.layer(LayerNorm(-1, epsilon), x, named)
    rows = math.prod(seen[: axis - 1])
    flat = reader.layer(Reshape((rows, size)), x)
    return reader.layer(Reshape(seen), reader.layer(LayerNorm(-1, epsilon), flat, named))
