"""Values whose batch is not an axis of its own, or not the first one, as values of the network.

`Moved` has the numbers of elements in a value. Here these become layers: other shapes, one part
along some axes, and another order of axes, so that any operator can read them.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pareo.nn.layers import Shape
from pareo.nn.shapes import Part, Permute, Reshape
from pareo.nn.torch_import.moved import Moved, numbers, settled
from pareo.nn.torch_import.values import Unsupported, Value

FIRST_TO_LAST = (0, 2, 3, 1)


def plain(reader: Any, x: Value) -> Value:
    """The values in the order of PyTorch's axes, where these are images with channels last."""
    if not x.last:
        return x
    return reader.layer(Permute(FIRST_TO_LAST), replace(x, last=False))


@dataclass(frozen=True)
class Arranged:
    """A value of the network, and where PyTorch has its batch.

    value: has PyTorch's axes in their order, without the batch.
    place: the axis of PyTorch that is the batch, or has it inside.
    outer, inner: the elements of that axis around the batch, and inside it. The value has an axis
    for each of them that is not 1.
    """

    value: Value
    place: int = 0
    outer: int = 1
    inner: int = 1

    @property
    def own(self) -> int:
        """How many axes the value has for that of the batch."""
        return (self.outer > 1) + (self.inner > 1)

    @property
    def axes(self) -> int:
        """How many axes PyTorch sees."""
        return len(self.value.shape) - self.own + 1

    def axis(self, axis: int) -> int:
        """An axis of PyTorch's as an axis of the value, of which the batch is 0."""
        axis %= self.axes
        if axis == self.place:
            raise Unsupported("along the batch")
        return axis + 1 if axis < self.place else axis + self.own

    def moved(self, reader: Any, y: Value) -> Any:
        """A value with as many axes as PyTorch would see it."""
        index = np.moveaxis(numbers(reader.batch, y), 0, self.place + (self.outer > 1))
        after = index.shape[self.place + self.own + 1 :]
        index = index.reshape((*index.shape[: self.place], -1, *after))
        return settled(reader, Moved(y, index))

    def alike(self, other: "Arranged") -> bool:
        """Whether another value has its batch at the same place."""
        mine, theirs = ((a.place, a.outer, a.inner) for a in (self, other))
        return mine == theirs

    def like(self, value: Value) -> "Arranged":
        """Another value with the batch at the same place."""
        return replace(self, value=value)


def arranged(reader: Any, x: Any) -> Arranged:
    """A value, or elements of one in another order, as a value of the network."""
    if isinstance(x, Value):
        return Arranged(plain(reader, x))
    if not isinstance(x, Moved):
        raise Unsupported("its input is not computed from the module's input")
    for place, size in enumerate(x.index.shape):
        for outer in range(1, size // reader.batch + 1):
            if size % (outer * reader.batch) == 0:
                inner = size // (outer * reader.batch)
                one = _of_one_input(reader.batch, x, place, outer, inner)
                if one is not None:
                    return Arranged(_made(reader, x.origin, one), place, outer, inner)
    raise Unsupported("of values in which the batch is not one axis")


def _of_one_input(batch: int, x: Moved, place: int, outer: int, inner: int) -> Any:
    """The numbers of the elements of the first input; None if the batch is not at this place."""
    whole = math.prod(x.origin.shape)
    before, after = x.index.shape[:place], x.index.shape[place + 1 :]
    parted = x.index.reshape(*before, outer, batch, inner, *after)
    parted = np.moveaxis(parted, place + 1, 0)
    steps = whole * np.arange(batch).reshape(-1, *[1] * (parted.ndim - 1))
    if parted[0].max() >= whole or not np.array_equal(parted, parted[:1] + steps):
        return None
    sizes = [size for size in (outer, inner) if size > 1]
    return parted[0].reshape((*before, *sizes, *after))


def as_value(reader: Any, x: Any) -> Any:
    """Elements in another order as a value whose batch is the first axis, where it is one."""
    if not isinstance(x, Moved):
        return x
    found = arranged(reader, x)
    if (found.place, found.outer, found.inner) != (0, 1, 1):
        raise Unsupported("of values whose batch is not the first axis")
    return found.value


@dataclass(frozen=True)
class Run:
    """`count` elements of an axis of the result, `stride` apart in the value that it is from."""

    axis: int
    count: int
    stride: int


def _made(reader: Any, x: Value, index: Any) -> Value:
    """The elements of one input at these numbers, by layers that only move elements."""
    if not index.ndim:
        raise Unsupported("of one element")
    found = _runs(index)
    order = sorted(found, key=lambda run: -run.stride)
    sizes: list[int] = []
    places: list[int] = []  # of the runs, among the sizes
    left, first = math.prod(x.shape), int(index.flat[0])
    for run in order:
        reach = run.stride * run.count
        if run.stride < 1 or reach > left or left % reach:
            raise Unsupported("of elements that repeat, or that are not in a regular order")
        if left > reach:
            x = _picked(reader, x, sizes, left, reach, first)
            first %= reach
        if first >= run.stride:
            raise Unsupported("of elements that do not begin where a part begins")
        places.append(len(sizes))
        sizes.append(run.count)
        left = run.stride
    if left > 1:
        x = _picked(reader, x, sizes, left, 1, first)
    x = _shaped(reader, x, tuple(sizes))
    axes = (0, *(1 + places[order.index(run)] for run in found))
    if axes != tuple(range(len(axes))):
        x = reader.layer(Permute(axes), x)
    return _shaped(reader, x, tuple(index.shape))


def _picked(reader: Any, x: Value, sizes: list[int], left: int, reach: int, first: int) -> Value:
    """One of the parts of `reach` elements that each part of `left` elements has."""
    x = _shaped(reader, x, (math.prod(sizes), left // reach, reach))
    number = first // reach
    return reader.layer(Part(2, number, number + 1), x)


def _shaped(reader: Any, x: Value, shape: Shape) -> Value:
    return x if x.shape == shape else reader.layer(Reshape(shape), x)


def _runs(index: Any) -> list[Run]:
    """The runs of all axes, from the outermost of the first axis to the innermost of the last."""
    found: list[Run] = []
    first = int(index.flat[0])
    rebuilt = np.full((1,) * index.ndim, first)
    for axis, size in enumerate(index.shape):
        line = index[tuple(slice(None) if one == axis else 0 for one in range(index.ndim))] - first
        found += _runs_along(axis, line)
        rebuilt = rebuilt + line.reshape([size if one == axis else 1 for one in range(index.ndim)])
    if not np.array_equal(rebuilt, index):
        raise Unsupported("of elements that are not in a regular order")
    return found


def _runs_along(axis: int, line: Any) -> list[Run]:
    if len(line) == 1:
        return []
    stride = int(line[1])
    regular = line == stride * np.arange(len(line))
    count = len(line) if regular.all() else int(np.argmin(regular))
    if len(line) % count:
        raise Unsupported("of elements that are not in a regular order")
    outer = _runs_along(axis, line[::count])
    blocks = line.reshape(-1, count)
    if not np.array_equal(blocks, blocks[:, :1] + stride * np.arange(count)):
        raise Unsupported("of elements that are not in a regular order")
    return [*outer, Run(axis, count, stride)]


def origin_of(x: Any) -> Any:
    """What an operator of single elements reads, in whatever order they are."""
    return x.origin if isinstance(x, Moved) else x


def with_origin(x: Any, y: Value) -> Any:
    """The result of an operator of single elements, in the order of what it read."""
    return replace(x, origin=y) if isinstance(x, Moved) else y
