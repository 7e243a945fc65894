"""Convolution and its gradients: three sums over the same taps.

A tap is where one weight meets one pixel on its way to one output. Each operator multiplies two
of the three and adds the product to the third.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from pareo.backends.sequential.numbers import Index, backend, store


def taps(
    output: Index, filters: Index, *, stride: Index, padding: Index, dilation: Index, groups: int
) -> Iterator[tuple[Index, Index, Index]]:
    """Every tap, as the index of its output, of its weight and of its pixel."""
    channels = filters[1]
    for n, k, i, j in np.ndindex(output):
        group = k // (filters[0] // groups)
        for c, u, v in np.ndindex(filters[1:]):
            row = i * stride[0] + u * dilation[0] - padding[0]
            column = j * stride[1] + v * dilation[1] - padding[1]
            yield (n, k, i, j), (k, c, u, v), (n, group * channels + c, row, column)


def pixel(x: Any, index: Index) -> float:
    """A pixel of the images; 0 in the padding around them."""
    _, _, row, column = index
    inside = 0 <= row < x.shape[2] and 0 <= column < x.shape[3]
    return float(x[index]) if inside else 0.0


@backend.kernel()
def conv(out: Any, x: Any, w: Any, **how: Any) -> None:
    sums: dict[Index, float] = defaultdict(float)
    for to, weight, source in taps(out.shape, w.shape, **how):
        sums[to] += pixel(x, source) * float(w[weight])
    store(out, sums)


@backend.kernel()
def conv_input_gradient(out: Any, g: Any, w: Any, *, size: Index, **how: Any) -> None:
    sums: dict[Index, float] = defaultdict(float)  # elements in the padding are never stored
    for to, weight, source in taps(g.shape, w.shape, **how):
        sums[source] += float(g[to]) * float(w[weight])
    store(out, sums)


@backend.kernel()
def conv_weight_gradient(out: Any, x: Any, g: Any, *, size: Index, **how: Any) -> None:
    sums: dict[Index, float] = defaultdict(float)
    for to, weight, source in taps(g.shape, out.shape, **how):
        sums[weight] += pixel(x, source) * float(g[to])
    store(out, sums)
