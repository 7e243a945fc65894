"""ATen's operators that repeat, reorder or mix elements along axes by fixed numbers."""

import math
from importlib import import_module
from typing import Any, cast

import numpy as np

from pareo.nn.shapes import Index, Pad, Permute, Reshape
from pareo.nn.tables import Mix, packed
from pareo.nn.torch_import.arranged import Arranged, arranged
from pareo.nn.torch_import.folded import Known
from pareo.nn.torch_import.operands import images, pair
from pareo.nn.torch_import.reader import Reader
from pareo.nn.torch_import.values import Unsupported, Value, Weight
from pareo.nn.torch_import.views import expand, value

MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}  # NumPy's names


def places(reader: Reader, x: Any, axes: dict[int, Any]) -> Any:
    """The elements at these places along some of PyTorch's axes, of values in any order."""
    found = arranged(reader, x)
    y = found.value
    for axis, wanted in axes.items():
        if list(wanted) != list(range(_size(reader, found, axis))):
            y = reader.layer(Index(found.axis(axis), tuple(int(one) for one in wanted)), y)
    return found.moved(reader, y)


def _size(reader: Reader, found: Arranged, axis: int) -> int:
    if axis % found.axes == found.place:
        return reader.batch * found.outer * found.inner
    return found.value.shape[found.axis(axis) - 1]


def flip(reader: Reader, self: Any, dims: Any) -> Any:
    """The elements along axes in reverse."""
    found = arranged(reader, self)
    return places(reader, self, {d: range(_size(reader, found, d))[::-1] for d in dims})


def repeat(reader: Reader, self: Any, repeats: Any) -> Any:
    """All elements several times, one after another, along axes."""
    if isinstance(self, Weight):
        if any(count != 1 for count in repeats[1:]):
            raise Unsupported(f"of a weight, {repeats} times")
        return expand(reader, self)
    found = arranged(reader, self)
    if len(repeats) != found.axes:
        raise Unsupported(f"to more axes, {repeats} times")
    wanted = {
        axis: np.tile(np.arange(_size(reader, found, axis)), count)
        for axis, count in enumerate(repeats)
    }
    return places(reader, self, wanted)


def repeat_interleave(reader: Reader, self: Any, repeats: Any, dim: Any = None, **_: Any) -> Any:
    """Each element several times along an axis."""
    if dim is None or not isinstance(repeats, int):
        raise Unsupported("of all axes, or with several numbers")
    found = arranged(reader, self)
    return places(reader, self, {dim: np.repeat(np.arange(_size(reader, found, dim)), repeats)})


def index_select(reader: Reader, self: Any, dim: int, index: Any) -> Any:
    """Elements at fixed places along an axis."""
    if not isinstance(index, Known):
        raise Unsupported("at places that depend on the input")
    found = arranged(reader, self)
    size = _size(reader, found, dim)
    return places(reader, self, {dim: index.array.ravel() % size})


def index(reader: Reader, self: Any, indices: Any) -> Any:
    """x[..., places, ...] with fixed places along one axis."""
    given = {axis: one for axis, one in enumerate(indices) if one is not None}
    if len(given) != 1 or not isinstance(next(iter(given.values())), Known):
        raise Unsupported("at places that depend on the input, or along several axes")
    ((axis, known),) = given.items()
    if known.array.ndim != 1 or known.array.dtype.kind not in "iu":
        raise Unsupported(f"at places of shape {known.array.shape} and type {known.array.dtype}")
    return index_select(reader, self, axis, known)


def padded_by(reader: Reader, x: Any, pad: Any, mode: str) -> Any:
    """Elements of the value itself around it, along the last axes."""
    if mode not in MODES or min(pad) < 0:
        raise Unsupported(f"with {list(pad)} and mode {mode}")
    found, how = arranged(reader, x), cast(Any, MODES[mode])
    wanted = {}
    for number, sides in enumerate(zip(pad[::2], pad[1::2], strict=True), 1):
        own = np.arange(_size(reader, found, -number))
        wanted[found.axes - number] = np.pad(own, sides, mode=how)
    return places(reader, x, wanted)


def upsample(reader: Reader, input: Any, **how: Any) -> Any:
    """Interpolation of images, by what PyTorch makes of each pixel of a row and of a column."""
    torch, x = import_module("torch"), images(input)
    node, wanted = reader.here, reader.expected()[2:]
    for axis, (pixels, size) in enumerate(zip(x.shape[1:], wanted, strict=True), 2):
        line = torch.eye(pixels, dtype=torch.float64)
        one = [1, pixels, pixels, 1] if axis == 2 else [1, pixels, 1, pixels]
        given = {key: _along_one(key, value, axis) for key, value in how.items()}
        found = node.target(line.reshape(one), **given).reshape(pixels, size).numpy()
        x = mixed(reader, x, axis, found)
    return x


def _along_one(key: str, given: Any, axis: int) -> Any:
    """An argument of an interpolation, for images of one row or one column."""
    if key in ("output_size", "scale_factors") and given is not None:
        both = pair(given)
        return [both[0], 1] if axis == 2 else [1, both[1]]
    if key in ("scales_h", "scales_w"):
        return given if key == ("scales_h" if axis == 2 else "scales_w") else None
    return given


def mixed(reader: Reader, x: Value, axis: int, shares: Any) -> Value:
    """Fixed mixtures of the elements along an axis; one column of shares for each result."""
    single = (shares == 1).sum(axis=0) == 1
    if single.all() and (np.count_nonzero(shares, axis=0) == 1).all():
        return reader.layer(Index(axis, tuple(int(one) for one in shares.argmax(axis=0))), x)
    return reader.layer(Mix(axis, shares.shape[1], packed(shares, "<f8")), x)


def im2col(
    reader: Reader, self: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Value:
    """The pixels of all windows, one window after another."""
    x, around = images(self), pair(padding)
    if any(around):
        x = reader.layer(Pad((0, *around), (0, *around)), x)
    sizes, apart, steps = pair(kernel_size), pair(dilation), pair(stride)
    counts = []
    for axis, (size, gap, step) in enumerate(zip(sizes, apart, steps, strict=True)):
        count = (x.shape[axis + 1] - gap * (size - 1) - 1) // step + 1
        wanted = (gap * np.arange(size)[:, None] + step * np.arange(count)).ravel()
        x = reader.layer(Index(axis + 2, tuple(wanted.tolist())), x)
        counts.append(count)
    channels = x.shape[0]
    parted = reader.layer(Reshape((channels, sizes[0], counts[0], sizes[1], counts[1])), x)
    turned = reader.layer(Permute((0, 1, 2, 4, 3, 5)), parted)
    return reader.layer(Reshape((channels * math.prod(sizes), math.prod(counts))), turned)


def pixel_shuffle(reader: Reader, self: Any, upscale_factor: int) -> Value:
    """Channels as pixels of larger images."""
    x, r = images(self), upscale_factor
    channels, height, width = x.shape
    parted = reader.layer(Reshape((channels // r**2, r, r, height, width)), x)
    turned = reader.layer(Permute((0, 1, 4, 2, 5, 3)), parted)
    return reader.layer(Reshape((channels // r**2, height * r, width * r)), turned)


def pixel_unshuffle(reader: Reader, self: Any, downscale_factor: int) -> Value:
    """Pixels as channels of smaller images."""
    x, r = images(self), downscale_factor
    channels, height, width = x.shape
    parted = reader.layer(Reshape((channels, height // r, r, width // r, r)), x)
    turned = reader.layer(Permute((0, 1, 3, 5, 2, 4)), parted)
    return reader.layer(Reshape((channels * r**2, height // r, width // r)), turned)


def channel_shuffle(reader: Reader, self: Any, groups: int) -> Value:
    """The channels of all groups in turns."""
    x = value(self)
    channels, rest = x.shape[0], math.prod(x.shape[1:])
    parted = reader.layer(Reshape((groups, channels // groups, rest)), x)
    return reader.layer(Reshape(x.shape), reader.layer(Permute((0, 2, 1, 3)), parted))
