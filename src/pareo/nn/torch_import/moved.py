"""Values whose batch is not the first axis for a while, as in PyTorch's attention.

They are kept as the numbers of their elements in a value of the network. When the elements are in
the order of a value again, they are that value.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pareo.nn import layers
from pareo.nn.shapes import Reshape
from pareo.nn.tokens import Attention
from pareo.nn.torch_import.values import Unsupported, Value


@dataclass(frozen=True, eq=False)
class Moved:
    """Elements of a value in another order: their numbers, in the shape that PyTorch sees."""

    origin: Value
    index: Any


def numbers(batch: int, x: Value) -> Any:
    """The numbers of a value's elements."""
    return np.arange(batch * math.prod(x.shape)).reshape(batch, *x.seen)


def settled(reader: Any, moved: Moved) -> Any:
    """The value itself, where its elements are in order; else as it is."""
    usual = numbers(reader.batch, moved.origin)
    if moved.index.shape == usual.shape and np.array_equal(moved.index, usual):
        return moved.origin
    return moved


def _reshaped(reader: Any, self: Moved, *_: Any, **__: Any) -> Any:
    return settled(reader, replace(self, index=self.index.reshape(reader.expected())))


def _permuted(reader: Any, self: Moved, dims: Any) -> Any:
    return settled(reader, replace(self, index=self.index.transpose(dims)))


def _transposed(reader: Any, self: Moved, dim0: int, dim1: int) -> Any:
    return settled(reader, replace(self, index=self.index.swapaxes(dim0, dim1)))


def _selected(reader: Any, self: Moved, dim: int, index: int) -> Any:
    return settled(reader, replace(self, index=self.index.take(index, dim)))


def _unbound(reader: Any, self: Moved, dim: int = 0) -> Any:
    return [_selected(reader, self, dim, index) for index in range(self.index.shape[dim])]


def _same(reader: Any, self: Moved, *_: Any, **__: Any) -> Any:
    return self


def _cut(reader: Any, self: Moved, dim: int, start: int, stop: int) -> Any:
    places = tuple(slice(None) for _ in range(dim % self.index.ndim))
    return settled(reader, replace(self, index=self.index[(*places, slice(start, stop))]))


def _sliced(
    reader: Any, self: Moved, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    first, last, step = slice(start, end, step).indices(self.index.shape[dim])
    places = tuple(slice(None) for _ in range(dim % self.index.ndim))
    return settled(reader, replace(self, index=self.index[(*places, slice(first, last, step))]))


def _parts(reader: Any, self: Moved, split_sizes: list[int], dim: int = 0) -> Any:
    ends = np.cumsum(split_sizes).tolist()
    pairs = zip(ends, split_sizes, strict=True)
    return [_cut(reader, self, dim, end - size, end) for end, size in pairs]


def _split(reader: Any, self: Moved, split_size: int, dim: int = 0) -> Any:
    whole = self.index.shape[dim]
    sizes = [min(split_size, whole - first) for first in range(0, whole, split_size)]
    return _parts(reader, self, sizes, dim)


def _chunk(reader: Any, self: Moved, chunks: int, dim: int = 0) -> Any:
    return _split(reader, self, -(-self.index.shape[dim] // chunks), dim)


def _narrowed(reader: Any, self: Moved, dim: int, start: int, length: int) -> Any:
    return _cut(reader, self, dim, start, start + length)


def _item(reader: Any, args: Any) -> Any:
    return args[0][args[1]]


def _dropout(reader: Any, input: Moved, p: float, train: bool) -> Any:
    if train and p > 0:
        origin = reader.layer(layers.Dropout(p), input.origin)
        return replace(input, origin=origin)
    return input


def _linear(dense: Callable[..., Any]) -> Callable[..., Any]:
    """A dense layer of features that are together in the value that they are from."""

    def read(reader: Any, input: Moved, weight: Any, bias: Any) -> Any:
        x, features = input.origin, input.index.shape[-1]
        first = input.index[..., :1]
        together = np.array_equal(input.index, first + np.arange(features))
        if x.last or x.shape[-1:] != (features,) or not together or (first % features).any():
            raise Unsupported("of values in another order than features")
        y = dense(reader, x, weight, bias)
        units = y.shape[-1]
        return settled(reader, Moved(y, first // features * units + np.arange(units)))

    return read


def attention(
    reader: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Moved:  # fmt: skip
    """Attention whose queries, keys and values are one dense layer's, as pareo has it."""
    given = [query, key, value]
    if not all(isinstance(one, Moved) and one.origin == query.origin for one in given):
        raise Unsupported("of queries, keys and values that are not from one dense layer")
    shape = query.index.shape
    if attn_mask is not None or dropout_p or len(shape) != 4 or shape[0] != reader.batch:
        raise Unsupported("with a mask or dropout")
    batch, heads, count, size = shape
    if scale is not None and not math.isclose(scale, size**-0.5):
        raise Unsupported(f"with the scale {scale}")
    origin = _unreshaped(reader, query.origin, (count, 3 * heads * size))
    every = np.arange(batch * count * 3 * heads * size).reshape(batch, count, 3, heads, size)
    for which, one in enumerate(given):
        if not np.array_equal(one.index, every[:, :, which].swapaxes(1, 2)):
            raise Unsupported("of queries, keys and values in another order than pareo's")
    y = reader.layer(Attention(heads, is_causal), origin)
    order = numbers(batch, y).reshape(batch, count, heads, size).swapaxes(1, 2)
    return Moved(y, order)


def _unreshaped(reader: Any, x: Value, shape: tuple[int, ...]) -> Value:
    """The value of this shape of which another is only a view."""
    name, known = x.node, x.shape
    while known != shape:
        made = reader.nodes.get(name)
        if made is None or not isinstance(made.what, Reshape):
            raise Unsupported("of values that are not one dense layer's")
        name = made.reads[0]
        known = reader.shapes[name]
    return Value(name, shape)


def moved_operators(dense: Callable[..., Any]) -> Mapping[str, Callable[..., Any]]:
    """The operators that take such values; `dense` is that of ordinary ones."""
    views = ("view", "reshape", "flatten", "squeeze", "unsqueeze", "unflatten", "reshape_as",
             "view_as")  # fmt: skip
    return {
        **dict.fromkeys(views, _reshaped),
        **dict.fromkeys(("contiguous", "clone", "alias", "to"), _same),
        "permute": _permuted,
        "transpose": _transposed,
        "swapaxes": lambda reader, self, axis0, axis1: _transposed(reader, self, axis0, axis1),
        "select": _selected,
        "unbind": _unbound,
        "getitem": _item,
        "slice": _sliced,
        "split": _split,
        "split_with_sizes": _parts,
        "chunk": _chunk,
        "narrow": _narrowed,
        "dropout": _dropout,
        "linear": _linear(dense),
        "scaled_dot_product_attention": attention,
    }
