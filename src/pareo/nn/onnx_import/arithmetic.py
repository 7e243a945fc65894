"""Sums and products: of values, of values and constants, and as steps of longer expressions."""

from dataclasses import replace
from typing import Any

import numpy as np

from pareo.nn import activations, layers
from pareo.nn.layers import Shape
from pareo.nn.normalisation import Normalise
from pareo.nn.onnx_import import terms
from pareo.nn.onnx_import.norms import normalised
from pareo.nn.onnx_import.reader import OnnxReader, Step
from pareo.nn.onnx_import.terms import number_of
from pareo.nn.onnx_import.values import Constant, Term
from pareo.nn.onnx_import.weights import value
from pareo.nn.shapes import Permute, Reshape
from pareo.nn.tokens import PositionEmbedding
from pareo.nn.torch_import import arithmetic as functions
from pareo.nn.torch_import import views
from pareo.nn.torch_import.joins import joined
from pareo.nn.torch_import.moved import Moved
from pareo.nn.torch_import.values import Unsupported, Value
from pareo.nn.torch_names import TorchName

SWISH: dict[type, layers.Layer] = {
    activations.Sigmoid: activations.SiLU(),
    activations.HardSigmoid: activations.HardSwish(),
}


def affine(reader: OnnxReader, x: Value, factor: float, shift: float) -> Value:
    """factor x + shift, as a normalisation by fixed numbers."""
    if factor == 1 and shift == 0:
        return x
    if not np.isfinite([factor, shift]).all():
        raise Unsupported(f"with the factor {factor:g} and the shift {shift:g}")
    if not factor > 0 or not np.isfinite([shift / factor, 1 / factor]).all():
        return reader.layer(activations.Affine(factor, shift), x)
    channels = x.shape[0]
    return reader.layer(Normalise((-shift / factor,) * channels, (1 / factor,) * channels), x)


def spread(reader: OnnxReader, x: Value, other: Constant) -> tuple[int, ...]:
    """The axes of one input, counted from 1 as the file sees them, along which numbers differ."""
    shape = (*[1] * (len(x.seen) + 1 - len(other.shape)), *other.shape)
    whole = (reader.batch, *x.seen)
    if (
        len(shape) != len(whole)
        or shape[0] != 1
        or any(size not in (1, wanted) for size, wanted in zip(shape, whole, strict=True))
    ):
        raise Unsupported(f"with a constant of shape {other.shape}")
    return tuple(axis for axis, size in enumerate(shape) if size != 1)


def _channels(x: Value) -> int:
    return 3 if x.last else 1


def add(reader: OnnxReader, step: Step) -> Any:
    """A sum; of a constant: a bias, a position embedding, or a fixed number for each channel."""
    (x, other), (tensor, _) = _ordered(step)
    if isinstance(x, Term) and x.kind == "normalised and scaled" and isinstance(other, Constant):
        epsilon, scale = x.more
        return normalised(reader, x.x, -1, epsilon, scale, other)
    if isinstance(x, Term):
        return terms.added(x, other)
    if not isinstance(other, Constant):
        return _joined(reader, "add", x, other)
    if isinstance(x, Moved):
        last = other.shape[-1:] == x.index.shape[-1:] and other.array.size == other.shape[-1]
        if last and reader.with_bias(x.origin, tensor, other):
            return x
        raise Unsupported("of values whose batch is not the first axis")
    return _shifted(reader, value(x), tensor, other, step)


def _shifted(reader: OnnxReader, x: Value, tensor: str, other: Constant, step: Step) -> Value:
    axes = spread(reader, x, other)
    made = reader.nodes.get(x.node)
    filters = made is not None and isinstance(made.what, layers.Conv)
    own = (_channels(x),) if filters else (len(x.seen),)
    if axes in (own, ()) and reader.with_bias(x, tensor, other):
        return x
    found = number_of(other)
    if found is not None:
        return affine(reader, x, 1.0, found)
    if axes == (_channels(x),) and len(x.shape) in (1, 3):
        if _is_scale(reader, x, tensor):
            return _scale_and_shift(reader, x, tensor, other)
        return fixed(reader, x, -other.array.ravel(), np.ones(other.array.size), other, step)
    if axes == (2,) and len(x.shape) == 2 and _is_scale(reader, x, tensor):
        return _scale_and_shift_features(reader, x, tensor, other)
    if axes == tuple(range(1, len(x.seen) + 1)) and not x.last:
        return _embedded(reader, x, other)
    raise Unsupported(f"with a constant of shape {other.shape}")


def _is_scale(reader: OnnxReader, x: Value, tensor: str) -> bool:
    made = reader.nodes.get(x.node)
    own = made is not None and isinstance(made.what, layers.Scale) and len(x.shape) > 1
    return own and reader.uses[tensor] == 1


def _scale_and_shift(reader: OnnxReader, x: Value, tensor: str, shift: Constant) -> Value:
    """A trained factor and shift for each channel: a 1x1 convolution of each by itself."""
    channels = x.shape[0]
    path = f"{x.node}.w"
    origin = reader.names[path]
    factors = reader.parameters[path].reshape(channels, 1, 1, 1)
    name = TorchName(origin.name, "reshaped", origin.shape)
    weights = {"w": (factors, name), "b": (shift.array.ravel(), shift.named("reshaped"))}
    return reader.replaced(x, tensor, layers.Conv(channels, 1, groups=channels), weights)


def _scale_and_shift_features(reader: OnnxReader, x: Value, tensor: str, shift: Constant) -> Value:
    """The same for the features of tokens, which are channels for a while."""
    made, path = reader.nodes.pop(x.node), f"{x.node}.w"
    reader.changed.add(tensor)
    origin, factors = reader.names.pop(path), reader.parameters.pop(path)
    count, features = x.shape
    turned = reader.layer(Permute((0, 2, 1)), replace(x, node=made.reads[0]))
    image = reader.layer(Reshape((features, count, 1)), turned)
    weights = {
        "w": (factors.reshape(features, 1, 1, 1), replace(origin, how="reshaped")),
        "b": (shift.array.ravel(), shift.named("reshaped")),
    }
    y = reader.layer(layers.Conv(features, 1, groups=features), image, weights)
    flat = reader.layer(Reshape((features, count)), y)
    return reader.layer(Permute((0, 2, 1)), flat)


def fixed(
    reader: OnnxReader, x: Value, mean: Any, deviation: Any, other: Constant, step: Step
) -> Value:
    """Fixed numbers for each channel, as those that bring images to mean 0 and variance 1."""
    if not (deviation > 0).all() or not np.isfinite([mean, deviation]).all():
        raise Unsupported("with numbers for each channel that are not all above 0")
    if other.origin is not None:
        reader.notes.append(f"the numbers '{other.origin.name}' stay as they are in training")
    layer = Normalise(tuple(map(float, mean)), tuple(map(float, deviation)))
    return reader.layer(layer, x)


def _embedded(reader: OnnxReader, x: Value, other: Constant) -> Value:
    """A trained number for each element, which is a position embedding."""
    shape: Shape = x.shape
    rows = shape if len(shape) == 2 else (int(np.prod(shape[:-1])), shape[-1])
    tokens = x if len(shape) == 2 else reader.layer(Reshape(rows), x)
    weights = {"w": (other.array.reshape(1, *rows), other.named("reshaped"))}
    y = reader.layer(PositionEmbedding(), tokens, weights)
    return y if len(shape) == 2 else reader.layer(Reshape(shape), y)


def sub(reader: OnnxReader, step: Step) -> Any:
    """A difference from a mean, a number, or a number for each channel."""
    x, other = step.inputs
    found = terms.less(x, other)
    if found is not None:
        return found
    if isinstance(x, Term):
        raise terms.refused(x)
    if isinstance(x, Constant) and number_of(x) is not None:
        return affine(reader, value(other), -1.0, number_of(x) or 0.0)
    if not isinstance(other, Constant):
        return functions.sub(reader, value(x), value(other))
    number = number_of(other)
    if number is not None:
        return affine(reader, value(x), 1.0, -number)
    if spread(reader, value(x), other) != (_channels(x),) or len(x.shape) not in (1, 3):
        raise Unsupported(f"with a constant of shape {other.shape}")
    return fixed(reader, x, other.array.ravel(), np.ones(other.array.size), other, step)


def mul(reader: OnnxReader, step: Step) -> Any:
    """A product; of a constant: a number, or a trained factor for each channel or feature."""
    (x, other), _ = _ordered(step)
    if isinstance(x, Term):
        return terms.multiplied(reader, x, other)
    if not isinstance(other, Constant):
        return _swish(reader, x, other) or _joined(reader, "multiply", x, other)
    number = number_of(other)
    if number is not None:
        found = terms.scaled(x, number)
        return affine(reader, value(x), number, 0.0) if found is None else found
    axes = spread(reader, value(x), other)
    trained = (_channels(x),) if len(x.shape) == 3 else (len(x.shape),)
    if axes != trained:
        raise Unsupported(f"with a constant of shape {other.shape}")
    if other.origin is None:
        ones = np.zeros(other.array.size)
        if len(x.shape) in (1, 3):
            return fixed(reader, x, ones, 1 / other.array.ravel().astype(float), other, step)
    weights = {"w": (other.array.ravel(), other.named("reshaped"))}
    return reader.layer(layers.Scale(), x, weights)


def _swish(reader: OnnxReader, x: Any, other: Any) -> Value | None:
    """x sigmoid(x) as one layer, or the same with the hard sigmoid; None for other products."""
    for one, two in ((x, other), (other, x)):
        made = reader.nodes.get(two.node) if isinstance(two, Value) else None
        if isinstance(one, Value) and made is not None and made.reads == (one.node,):
            layer = SWISH.get(type(made.what))
            if layer is not None and replace(two, node=one.node) == one:
                return reader.layer(layer, one)
    return None


def div(reader: OnnxReader, step: Step) -> Any:
    """A division by a number, by a number for each channel, or by a deviation."""
    x, other = step.inputs
    found = terms.divided(x, other)
    if found is not None:
        return found
    if not isinstance(other, Constant):
        dividend = number_of(x) if isinstance(x, Constant) else value(x)
        if dividend is None:
            raise Unsupported("of a constant by other values")
        return functions.div(reader, dividend, value(other))
    number = number_of(other)
    if number is not None:
        if number == 0:
            raise Unsupported("by 0")
        return affine(reader, value(x), 1 / number, 0.0)
    if spread(reader, value(x), other) != (_channels(x),) or len(x.shape) not in (1, 3):
        raise Unsupported(f"with a constant of shape {other.shape}")
    return fixed(reader, x, np.zeros(other.array.size), other.array.ravel(), other, step)


def power(reader: OnnxReader, step: Step) -> Any:
    """A fixed power of values; most often the square."""
    x, exponent = step.inputs
    number = number_of(exponent)
    if number is None:
        raise Unsupported("with an exponent that is not one number")
    if number != 2.0:
        return functions.power(reader, value(x), number)
    if isinstance(x, Term):
        return terms.square(x)
    return _joined(reader, "multiply", x, x)


def sum_(reader: OnnxReader, step: Step) -> Any:
    """A sum of any number of values."""
    parts = [value(one) for one in step.inputs]
    found = parts[0]
    for part in parts[1:]:
        found = _joined(reader, "add", found, part)
    return found


def _ordered(step: Step) -> tuple[tuple[Any, Any], tuple[str, str]]:
    """Both inputs and their names: constants second, and values before terms of them last."""
    (x, other), (one, two) = step.inputs, step.tensors
    if isinstance(x, Constant) or (isinstance(other, Term) and not isinstance(x, Term)):
        return (other, x), (two, one)
    return (x, other), (one, two)


def _joined(reader: OnnxReader, how: str, x: Any, other: Any) -> Any:
    if isinstance(x, Moved) or isinstance(other, Moved):
        raise Unsupported("of values whose batch is not the first axis")
    first, second = value(x), value(other)
    if first.last != second.last and len(first.shape) == len(second.shape) == 3:
        first, second = views.plain(reader, first), views.plain(reader, second)
    return joined(reader, how, [first, second])
