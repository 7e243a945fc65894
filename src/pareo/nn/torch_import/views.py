"""ATen's operators that only move elements: other shapes, orders of axes, and parts."""

import math
from dataclasses import replace
from typing import Any

from pareo.nn import layers
from pareo.nn.shapes import Part, Permute, Reshape
from pareo.nn.torch_import.arranged import plain
from pareo.nn.torch_import.moved import Moved, numbers, settled
from pareo.nn.torch_import.reader import Reader
from pareo.nn.torch_import.values import Unsupported, Value, Weight

FIRST_TO_LAST, LAST_TO_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


def value(x: Any) -> Value:
    """A value that depends on the input; others are refused."""
    if not isinstance(x, Value):
        raise Unsupported("its input is not computed from the module's input")
    return x


def reshaped(reader: Reader, self: Any, **_: Any) -> Value | Weight | Moved:
    """Another shape of the same values, in which the batch may become part of another axis."""
    if isinstance(self, Weight):
        return replace(self, viewed=reader.expected())
    x = value(self)
    wanted = reader.expected()
    if wanted == (reader.batch, *x.seen):
        return x
    if wanted[:1] != (reader.batch,) or math.prod(wanted[1:]) != math.prod(x.shape):
        x = plain(reader, x)
        return settled(reader, Moved(x, numbers(reader.batch, x).reshape(wanted)))
    x = replace(x, last=False) if x.shape[1:] == (1, 1) else plain(reader, x)
    if len(wanted) == 2:
        return reader.layer(layers.Flatten(), x)
    return reader.layer(Reshape(wanted[1:]), x)


def permute(reader: Reader, self: Any, dims: Any) -> Value | Moved:
    """Images with channels last seen as with channels first, or the other way round."""
    x = value(self)
    axes = [axis % (len(x.shape) + 1) for axis in dims]
    if axes == list(range(len(x.shape) + 1)):
        return x
    if len(x.shape) == 3 and axes == (LAST_TO_FIRST if x.last else FIRST_TO_LAST):
        return replace(x, last=not x.last)
    if axes[0] != 0:
        x = plain(reader, x)
        return Moved(x, numbers(reader.batch, x).transpose(axes))
    return reader.layer(Permute(tuple(axes)), plain(reader, x))


def transpose(reader: Reader, self: Any, dim0: int, dim1: int) -> Value | Moved:
    """Two axes exchanged."""
    axes = list(range(len(value(self).shape) + 1))
    axes[dim0], axes[dim1] = axes[dim1], axes[dim0]
    return permute(reader, self, axes)


def movedim(reader: Reader, self: Any, source: Any, destination: Any) -> Any:
    """Some axes at other places, the others in their order."""
    count = len(shape_of(reader, self))
    if isinstance(source, int):
        source, destination = [source], [destination]
    places = dict(zip((d % count for d in destination), (s % count for s in source), strict=True))
    others = (axis for axis in range(count) if axis not in places.values())
    order = [places[axis] if axis in places else next(others) for axis in range(count)]
    if isinstance(self, Moved):
        return settled(reader, replace(self, index=self.index.transpose(order)))
    return permute(reader, self, order)


def part(reader: Reader, x: Value, dim: int, start: int, stop: int) -> Value:
    """The values from `start` to `stop` along an axis."""
    axis = dim % (len(x.shape) + 1)
    if axis == 0:
        raise Unsupported("along the batch")
    if (start, stop) == (0, x.seen[axis - 1]):
        return x
    if x.last:
        axis = FIRST_TO_LAST[axis]
    return reader.layer(Part(axis, start, stop), x)


def parts(reader: Reader, self: Any, sizes: list[int], dim: int) -> list[Value]:
    """The values divided along an axis into parts of these sizes."""
    x = value(self)
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    return [part(reader, x, dim, end - size, end) for end, size in zip(ends, sizes, strict=True)]


def split(reader: Reader, self: Any, split_size: int, dim: int = 0) -> list[Value]:
    """Parts of one size, and the rest."""
    whole = _size(self, dim)
    sizes = [min(split_size, whole - first) for first in range(0, whole, split_size)]
    return parts(reader, self, sizes, dim)


def chunk(reader: Reader, self: Any, chunks: int, dim: int = 0) -> list[Value]:
    """A number of parts."""
    return split(reader, self, -(-_size(self, dim) // chunks), dim)


def _size(x: Any, dim: int) -> int:
    seen = (0, *value(x).seen)
    if dim % len(seen) == 0:
        raise Unsupported("along the batch")
    return seen[dim]


def sliced(
    reader: Reader, self: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value | Moved:
    """x[start:end:step] along an axis."""
    x = value(self)
    if dim % (len(x.shape) + 1) == 0 and not start and (end is None or end >= reader.batch):
        return x
    if step != 1:
        size = _size(x, dim)
        axis = dim % (len(x.shape) + 1)
        whole = plain(reader, x)
        places = tuple(slice(None) for _ in range(axis))
        cut = slice(*slice(start, end, step).indices(size))
        return Moved(whole, numbers(reader.batch, whole)[(*places, cut)])
    first, last, _ = slice(start, end).indices(_size(x, dim))
    return part(reader, x, dim, first, last)


def select(reader: Reader, self: Any, dim: int, index: int) -> Value:
    """x[index] along an axis, which is then gone."""
    x = value(self)
    whole = _size(x, dim)
    one = plain(reader, part(reader, x, dim, index % whole, index % whole + 1))
    axis = dim % (len(x.shape) + 1) - 1
    rest = (*one.shape[:axis], *one.shape[axis + 1 :])
    return reader.layer(layers.Flatten() if len(rest) == 1 else Reshape(rest), one)


def unbind(reader: Reader, self: Any, dim: int = 0) -> list[Value]:
    """All of x[index] along an axis."""
    return [select(reader, self, dim, index) for index in range(_size(self, dim))]


def getitem(reader: Reader, args: Any) -> Any:
    """One of several results."""
    results, index = args
    if not isinstance(results, list) or not isinstance(index, int):
        raise Unsupported("of other values than several results")
    if results[index] is None and not reader.here.users:
        return None
    if results[index] is None:
        raise Unsupported("of the places of the largest or the smallest elements")
    return results[index]


def shape_of(reader: Reader, x: Any) -> tuple[int, ...]:
    """The shape that PyTorch sees, with the batch."""
    return tuple(x.index.shape) if isinstance(x, Moved) else (reader.batch, *value(x).seen)


def axes_of(x: Any, dim: Any) -> list[int]:
    """The axes of PyTorch's that an argument names, in order; of None, all."""
    count = x.index.ndim if isinstance(x, Moved) else len(value(x).shape) + 1
    given = [dim] if isinstance(dim, int) else list(dim or range(count))
    return sorted(axis % count for axis in given)


def squeezed(reader: Reader, x: Any, axes: list[int]) -> Any:
    """A value without these axes, which have one element."""
    if isinstance(x, Moved):
        return settled(reader, replace(x, index=x.index.squeeze(tuple(axes))))
    x = plain(reader, x)
    rest = tuple(size for axis, size in enumerate(x.shape, 1) if axis not in axes)
    return reader.layer(layers.Flatten() if len(rest) == 1 else Reshape(rest), x)


def expand(reader: Reader, self: Any, *_: Any, **__: Any) -> Value | Weight:
    """Values repeated along axes, for a join that would repeat them itself; or a class token."""
    if isinstance(self, Weight):
        wide = (1, *self.seen) if len(reader.expected()) > len(self.seen) else self.seen
        if reader.expected() == self.seen and self.seen[0] == 1:
            return self
        if wide[0] != 1 or reader.expected() != (reader.batch, *wide[1:]) or reader.is_buffer(self):
            raise Unsupported(f"of a weight of shape {self.seen} to {reader.expected()}")
        return replace(self, viewed=wide if wide != self.shape else self.viewed, batched=True)
    x, wanted = value(self), reader.expected()
    if wanted[0] != reader.batch or len(wanted) != len(x.shape) + 1:
        raise Unsupported(f"from {(reader.batch, *x.seen)} to {wanted}")
    return x if wanted[1:] == x.seen else replace(x, wide=wanted[1:])
