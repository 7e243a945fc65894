"""Average pooling to an output of a given size, whatever the size of the image."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.nn.layers import Context, Layer, Shape, Size, image_shape, size_pair


@dataclass(frozen=True)
class AdaptiveAveragePool(Layer):
    """The means of windows that share out the image evenly, to an output of `size` a side.

    Window i of n covers the pixels from floor(i H / n) up to, but not including,
    ceil((i + 1) H / n), as in PyTorch; windows may overlap, and repeat pixels of small images.
    """

    size: Size

    def output(self, shape: Shape) -> Shape:
        return (
            image_shape("AdaptiveAveragePool", shape)[0],
            *size_pair("AdaptiveAveragePool", self.size),
        )

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        sizes = size_pair("AdaptiveAveragePool", self.size)
        if sizes == x.shape[2:]:
            return x
        windows = [shared_windows(*both) for both in zip(x.shape[2:], sizes, strict=True)]
        spans = [_even(starts, ends) for starts, ends in windows]
        if None not in spans:
            (height, down), (width, right) = spans  # type: ignore[misc]
            return op.average_pool(x, size=(height, width), stride=(down, right))
        # The windows differ in size: a product with a matrix of shares for each axis.
        for starts, ends in reversed(windows):
            shares = _shares(starts, ends).astype(x.dtype)
            rows = op.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
            pooled = op.reshape(op.dot(rows, shares), (*x.shape[:-1], shares.shape[1]))
            x = op.transpose(pooled, (0, 1, 3, 2))
        return x


def shared_windows(pixels: int, count: int) -> tuple[list[int], list[int]]:
    """The first pixels, and those after the last, of windows that share out a row of pixels.

    >>> shared_windows(5, 3)
    ([0, 1, 3], [2, 4, 5])
    """
    starts = [number * pixels // count for number in range(count)]
    return starts, [-(-(number + 1) * pixels // count) for number in range(count)]


def _even(starts: list[int], ends: list[int]) -> tuple[int, int] | None:
    """The size and the stride of windows, if all have the same."""
    sizes = {end - start for start, end in zip(starts, ends, strict=True)}
    steps = {after - before for before, after in pairwise(starts)} or {ends[-1]}
    if len(sizes) > 1 or len(steps) > 1 or 0 in steps:
        return None
    return sizes.pop(), steps.pop()


def _shares(starts: list[int], ends: list[int]) -> Any:
    """The share of each pixel (row) in the mean of each window (column)."""
    pixels = np.arange(ends[-1])[:, None]
    inside = (pixels >= np.array(starts)) & (pixels < np.array(ends))
    return inside / inside.sum(axis=0)
