"""Operators that only move elements, and those that read shapes."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from pareo.nn import layers
from pareo.nn.layers import Shape
from pareo.nn.onnx_import import constants, terms
from pareo.nn.onnx_import.reader import OnnxReader, Step
from pareo.nn.onnx_import.values import Constant, Term
from pareo.nn.onnx_import.weights import dense, value
from pareo.nn.shapes import Index, Permute, Reshape
from pareo.nn.tokens import ClassToken
from pareo.nn.torch_import import pools, views
from pareo.nn.torch_import.joins import joined
from pareo.nn.torch_import.moved import Moved, moved_operators, settled
from pareo.nn.torch_import.values import Unsupported, Value

plain = views.plain
MOVED = moved_operators(dense)


def whole(reader: OnnxReader, x: Any) -> Shape:
    """The shape of a value as the file sees it, with the batch."""
    if isinstance(x, Moved):
        return tuple(x.index.shape)
    return (reader.batch, *value(x).seen)


def reshaped(reader: OnnxReader, x: Any, shape: Shape) -> Any:
    """A value in another shape, which is given with the batch."""
    reader.want(shape)
    if isinstance(x, Moved):
        return MOVED["view"](reader, x)
    x = value(x)
    if shape[:1] == (reader.batch,) and math.prod(shape[1:]) == math.prod(x.shape):
        return views.reshaped(reader, x)
    return MOVED["view"](reader, _moved(reader, x))


def _moved(reader: OnnxReader, x: Value) -> Moved:
    x = plain(reader, x)
    return Moved(x, np.arange(reader.batch * math.prod(x.shape)).reshape(reader.batch, *x.shape))


def reshape(reader: OnnxReader, step: Step) -> Any:
    """Another shape of the same elements."""
    x, wanted = step.inputs[0], step.numbers(1, "its shape")
    sizes = constants.reshaped(whole(reader, x), wanted, bool(step.get("allowzero", 0)))
    return reshaped(reader, x, sizes)


def flatten(reader: OnnxReader, step: Step) -> Any:
    """Two axes instead of all."""
    sizes = whole(reader, step.inputs[0])
    axis = step.get("axis", 1)
    axis += len(sizes) if axis < 0 else 0
    return reshaped(reader, step.inputs[0], (math.prod(sizes[:axis]), math.prod(sizes[axis:])))


def axes_of(step: Step, place: int = 1) -> list[int] | None:
    """Axes that are an input, or an attribute in earlier opsets."""
    found = step.numbers(place, "its axes")
    attribute = step.get("axes")
    return attribute if found is None else [int(axis) for axis in found.ravel()]


def squeeze(reader: OnnxReader, step: Step) -> Any:
    """Axes of one element left out."""
    sizes, axes = whole(reader, step.inputs[0]), axes_of(step)
    if axes is None:
        gone = [axis for axis, size in enumerate(sizes) if size == 1 and axis]
    else:
        gone = [axis % len(sizes) for axis in axes]
    if any(sizes[axis] != 1 for axis in gone):
        raise Unsupported(f"of the axes {axes} of {sizes}")
    rest = tuple(size for axis, size in enumerate(sizes) if axis not in gone)
    return reshaped(reader, step.inputs[0], rest)


def unsqueeze(reader: OnnxReader, step: Step) -> Any:
    """More axes of one element."""
    sizes, axes = list(whole(reader, step.inputs[0])), axes_of(step) or []
    count = len(sizes) + len(axes)
    for axis in sorted(axis % count for axis in axes):
        sizes.insert(axis, 1)
    return reshaped(reader, step.inputs[0], tuple(sizes))


def transpose(reader: OnnxReader, step: Step) -> Any:
    """The axes in another order."""
    x = step.inputs[0]
    if isinstance(x, Term):
        return terms.transposed(reader, x, step.get("perm"))
    count = len(whole(reader, x))
    axes = step.get("perm", list(reversed(range(count))))
    if isinstance(x, Moved):
        return MOVED["permute"](reader, x, axes)
    return views.permute(reader, x, axes)


def _cut(reader: OnnxReader, x: Any, axis: int, start: int, stop: int) -> Any:
    if isinstance(x, Moved):
        part = x.index.take(range(start, stop), axis)
        return settled(reader, replace(x, index=part))
    if start >= stop:
        raise Unsupported("of no elements")
    if axis == 0 and (start, stop) == (0, reader.batch):
        return x
    return views.part(reader, value(x), axis, start, stop)


def slice_(reader: OnnxReader, step: Step) -> Any:
    """The elements between two places along axes."""
    x = step.inputs[0]
    sizes = whole(reader, x)
    arrays = [None, *(step.numbers(place, "its place") for place in (1, 2, 3, 4))]
    for axis, one in enumerate(constants.slices(sizes, arrays)):
        if one.step != 1:
            x = at_places(reader, x, axis, list(range(sizes[axis])[one]))
        elif (one.start, one.stop) != (0, sizes[axis]):
            x = _cut(reader, x, axis, one.start, one.stop)
    return x


def gather(reader: OnnxReader, step: Step) -> Any:
    """One place along an axis, or several in any order."""
    x, index, axis = step.inputs[0], step.numbers(1, "its places"), step.get("axis", 0)
    sizes = whole(reader, x)
    axis %= len(sizes)
    if index.size and not (-sizes[axis] <= index.min() and index.max() < sizes[axis]):
        raise Unsupported(f"at {index.tolist()} of {sizes[axis]}")
    places = np.where(index < 0, index + sizes[axis], index)
    if isinstance(x, Moved):
        return settled(reader, replace(x, index=np.take(x.index, places, axis)))
    if index.ndim == 0:
        if axis == 0:
            raise Unsupported("along the batch")
        return views.select(reader, value(x), axis, int(places))
    if index.ndim != 1:
        raise Unsupported("at places of several axes")
    if not places.size or not np.array_equal(places, places[0] + np.arange(len(places))):
        return at_places(reader, x, axis, places.tolist())
    return _cut(reader, x, axis, int(places[0]), int(places[-1]) + 1)


def at_places(reader: OnnxReader, x: Any, axis: int, places: list[int]) -> Any:
    """The elements at any places along an axis."""
    if not places:
        raise Unsupported("of no elements")
    if isinstance(x, Moved):
        return settled(reader, replace(x, index=np.take(x.index, places, axis)))
    if axis == 0:
        raise Unsupported("along the batch")
    return reader.layer(Index(axis, tuple(places)), plain(reader, value(x)))


def split(reader: OnnxReader, step: Step) -> list[Any]:
    """Parts along an axis."""
    x, sizes, count = step.inputs[0], step.numbers(1, "its sizes"), len(step.outputs)
    shape = whole(reader, x)
    axis = step.get("axis", 0) % len(shape)
    step.get("num_outputs")
    each = -(-shape[axis] // count)
    usual = [min(each, shape[axis] - each * place) for place in range(count)]
    lengths = usual if sizes is None else [int(size) for size in sizes]
    if sum(lengths) != shape[axis] or min(lengths) < 1:
        raise Unsupported(f"into {lengths} of {shape[axis]}")
    if axis == 0 and not isinstance(x, Moved):
        raise Unsupported("along the batch")
    ends = np.cumsum(lengths).tolist()
    used = [reader.uses[name] for name in step.outputs]
    return [
        _cut(reader, x, axis, end - size, end) if use else None
        for end, size, use in zip(ends, lengths, used, strict=True)
    ]


def concat(reader: OnnxReader, step: Step) -> Any:
    """Values one after another along an axis; after a constant token, tokens."""
    axis, given = step.get("axis"), step.inputs
    if any(isinstance(one, Constant) for one in given):
        return _class_token(reader, given, axis)
    parts = [value(one) for one in given]
    count = len(parts[0].seen) + 1
    axis %= count
    if axis == 0:
        raise Unsupported("along the batch")
    if len(parts) == 1:
        return parts[0]
    if axis == (3 if parts[0].last else 1):
        return joined(reader, "concat", parts)
    # Other axes take the place of the channels for a while.
    order = first(axis, count)
    turned = [reader.layer(Permute(order), plain(reader, part)) for part in parts]
    return reader.layer(Permute(back(order)), joined(reader, "concat", turned))


def first(axis: int, count: int) -> tuple[int, ...]:
    """An order of axes in which one of them is the first after the batch."""
    return (0, axis, *(one for one in range(1, count) if one != axis))


def back(order: tuple[int, ...]) -> tuple[int, ...]:
    """The order of axes that undoes another one."""
    return tuple(int(one) for one in np.argsort(order))


def _class_token(reader: OnnxReader, given: list[Any], axis: int) -> Value:
    if len(given) != 2 or not isinstance(given[0], Constant) or axis not in (1, -2):
        raise Unsupported("of constants")
    token, x = given[0], value(given[1])
    rows = token.array.reshape(-1, *token.shape[1:])
    if len(x.shape) != 2 or rows.shape[1:] != (1, x.shape[1]):
        raise Unsupported(f"of a constant of shape {token.shape}")
    if not (rows == rows[:1]).all():
        raise Unsupported("of a constant that differs between the inputs of a batch")
    one = np.ascontiguousarray(rows[:1])
    name = (token.repeated or token).named("reshaped")
    return reader.layer(ClassToken(), x, {"w": (one, name)})


def expand(reader: OnnxReader, step: Step) -> Any:
    """Values repeated along axes, for a join that would repeat them itself."""
    x, wanted = value(step.inputs[0]), step.numbers(1, "its shape")
    sizes = whole(reader, x)
    try:
        shape = tuple(np.broadcast_shapes(sizes, tuple(int(size) for size in wanted)))
    except ValueError:
        raise Unsupported(f"from {sizes} to {wanted.tolist()}") from None
    if len(shape) != len(sizes) or shape[0] != reader.batch:
        raise Unsupported(f"from {sizes} to {shape}")
    return x if shape == sizes else replace(x, wide=shape[1:])


def shape(reader: OnnxReader, step: Step) -> Constant:
    """The shape of a value, which is a constant here."""
    how = {"start": step.get("start", 0), "end": step.get("end")}
    return Constant(constants.part_of_shape(_any_shape(reader, step), how), step.outputs[0])


def size(reader: OnnxReader, step: Step) -> Constant:
    """The number of elements."""
    return Constant(np.int64(math.prod(_any_shape(reader, step))), step.outputs[0])


def _any_shape(reader: OnnxReader, step: Step) -> Shape:
    x = step.inputs[0]
    return terms.shape_of(x) if isinstance(x, Term) else whole(reader, x)


def reduce_mean(reader: OnnxReader, step: Step) -> Any:
    """The mean of all pixels, or of all tokens; else that of a layer normalisation."""
    x, keep = step.inputs[0], bool(step.get("keepdims", 1))
    axes = axes_of(step)
    if not axes and step.get("noop_with_empty_axes", 0):
        return x
    if isinstance(x, Term):
        return terms.mean(x, axes, keep)
    count = len(value(x).seen) + 1
    found = sorted(axis % count for axis in axes) if axes else list(range(count))
    if len(x.shape) == 3 and found == ([1, 2] if x.last else [2, 3]):
        pooled = reader.layer(layers.GlobalAveragePool(), replace(x, last=False))
        return replace(pooled, last=x.last) if keep else reader.layer(layers.Flatten(), pooled)
    if len(x.shape) == 2 and found == [1]:
        turned = reader.layer(Permute((0, 2, 1)), x)
        image = reader.layer(Reshape((*turned.shape, 1)), turned)
        flat = reader.layer(layers.Flatten(), reader.layer(layers.GlobalAveragePool(), image))
        return reader.layer(Reshape((1, x.shape[1])), flat) if keep else flat
    if found == [count - 1] and keep:
        return Term("mean", x)
    return pools.mean(reader, x, found, keep)
