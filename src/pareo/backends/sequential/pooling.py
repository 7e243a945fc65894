"""Images shrunk window by window."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from pareo.backends.sequential.numbers import Index, backend, store
from pareo.backends.sequential.reduction import first_largest


def windows(
    pooled: Index, image: Index, *, size: Index, stride: Index, padding: Index, ceil: bool
) -> Iterator[tuple[Index, list[Index]]]:
    """Every window: the index of its result and the indices of its pixels, without padding."""
    for n, c, i, j in np.ndindex(pooled):
        top, left = i * stride[0] - padding[0], j * stride[1] - padding[1]
        rows = range(max(top, 0), min(top + size[0], image[0]))
        columns = range(max(left, 0), min(left + size[1], image[1]))
        yield (n, c, i, j), [(n, c, row, column) for row in rows for column in columns]


@backend.kernel()
def max_pool(out: Any, x: Any, **how: Any) -> None:
    for to, pixels in windows(out.shape, x.shape[2:], **how):
        out[to] = x[pixels[first_largest(x, pixels)]]


@backend.kernel()
def max_pool_gradient(out: Any, g: Any, x: Any, **how: Any) -> None:
    sums: dict[Index, float] = defaultdict(float)
    for source, pixels in windows(g.shape, x.shape[2:], **how):
        sums[pixels[first_largest(x, pixels)]] += float(g[source])
    store(out, sums)


@backend.kernel()
def average_pool(out: Any, x: Any, **how: Any) -> None:
    for to, pixels in windows(out.shape, x.shape[2:], **how):
        total = 0.0
        for i in pixels:
            total += float(x[i])
        out[to] = total / len(pixels)


@backend.kernel()
def average_pool_gradient(out: Any, g: Any, *, image: Index, **how: Any) -> None:
    sums: dict[Index, float] = defaultdict(float)
    for source, pixels in windows(g.shape, image, **how):
        share = float(g[source]) / len(pixels)
        for i in pixels:
            sums[i] += share
    store(out, sums)


@backend.kernel()
def subsample(out: Any, x: Any, w: Any, b: Any, *, stride: Index) -> None:
    for n, c, i, j in np.ndindex(out.shape):
        total = b.item()
        for u, v in np.ndindex(w.shape):
            total += float(x[n, c, i * stride[0] + u, j * stride[1] + v]) * float(w[u, v])
        out[n, c, i, j] = total
