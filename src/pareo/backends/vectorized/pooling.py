"""Pooling as a few passes over strided slices: along the height first, then along the width."""

from typing import Any

import numpy as np

from pareo.backends.vectorized.table import Array, backend, count_up, flags, images_at_once
from pareo.backends.windows import reach
from pareo.spec import Spec


def _fold(
    ufunc: Any, out: Array, a: Array, axis: int, size: int, stride: int, before: int, empty: float
) -> None:
    """Reduce each window along one axis by `ufunc`; `empty` is its value for no elements."""
    count, length = out.shape[axis], a.shape[axis]
    lead = (slice(None),) * axis
    for offset in range(size):
        to, source = reach(offset, count, stride, before, length)
        if offset == 0 and to == slice(0, count):
            np.copyto(out, a[(*lead, source)])
            continue
        if offset == 0:
            out.fill(empty)
        here = out[(*lead, to)]
        ufunc(here, a[(*lead, source)], out=here)


def _spread(out: Array, a: Array, axis: int, size: int, stride: int, before: int) -> None:
    """Add each window's value to all of its elements along one axis: the gradient of a sum."""
    lead = (slice(None),) * axis
    out.fill(0)
    for offset in range(size):
        of, target = reach(offset, a.shape[axis], stride, before, out.shape[axis])
        here = out[(*lead, target)]
        np.add(here, a[(*lead, of)], out=here)


def _pool(ufunc: Any, out: Array, x: Array, rows: Array, how: Any, empty: float) -> None:
    size, stride, padding = how
    _fold(ufunc, rows, x, 2, size[0], stride[0], padding[0], empty)
    _fold(ufunc, out, rows, 3, size[1], stride[1], padding[1], empty)


def _rows(out: Spec, x: Spec, **_: Any) -> Spec:
    """Some images, pooled along their height only."""
    return x.like((images_at_once(x), x.shape[1], out.shape[2], x.shape[3]))


@backend.kernel(scratch=lambda out, x, **_: [_rows(out, x)])
def max_pool(
    out: Array, x: Array, size: Any, stride: Any, padding: Any, ceil: bool, scratch: tuple[Array]
) -> None:
    some = len(scratch[0])
    for start in range(0, len(x), some):
        here = slice(start, start + some)
        rows = scratch[0][: len(x[here])]
        _pool(np.maximum, out[here], x[here], rows, (size, stride, padding), -np.inf)


def _past_end(size: Any, width: int) -> int:
    """Distance in the flat image from the first element of a window to just after its last."""
    return int((size[0] - 1) * width + size[1])


def _first_largest(out: Spec, g: Spec, x: Spec, size: Any, **_: Any) -> list[Spec]:
    peaks = g.like((images_at_once(x), *g.shape[1:]))
    steps = Spec(peaks.shape, np.min_scalar_type(_past_end(size, x.shape[3])))
    index = Spec(peaks.shape, np.int64)
    corners = index.like(g.shape[2:])
    planes = index.like((*peaks.shape[:2], 1, 1))
    return [_rows(g, x), peaks, flags(peaks), steps, steps, index, corners, planes]


@backend.kernel(strided=False, scratch=_first_largest)
def max_pool_gradient(
    out: Array,
    g: Array,
    x: Array,
    size: Any,
    stride: Any,
    padding: Any,
    ceil: bool,
    scratch: tuple[Array, ...],
) -> None:
    *work, corners, planes = scratch
    height, width = x.shape[2:]
    down = np.arange(g.shape[2]) * stride[0] - padding[0]
    right = np.arange(g.shape[3]) * stride[1] - padding[1]
    np.add.outer(down * width, right + _past_end(size, width), out=corners)
    count_up(planes.reshape(-1), height * width)
    out.fill(0)
    for start in range(0, len(x), len(planes)):
        here = slice(start, start + len(planes))
        rows, peaks, wins, steps, step, index = (array[: len(x[here])] for array in work)
        _pool(np.maximum, peaks, x[here], rows, (size, stride, padding), -np.inf)
        _steps_back(steps, x[here], peaks, (size, stride, padding), wins, step)
        np.copyto(index, steps)
        np.subtract(corners, index, out=index)
        np.add(index, planes[: len(index)], out=index)
        np.add.at(out[here].reshape(-1), index.reshape(-1), g[here].reshape(-1))


def _steps_back(steps: Array, x: Array, peaks: Array, how: Any, wins: Array, step: Array) -> None:
    """Distance in the flat image from the first largest element to the end of its window.

    The first has the largest distance, so the order of the search does not matter.
    """
    size, stride, padding = how
    end = _past_end(size, x.shape[3])
    nans = bool(np.isnan(peaks, out=wins).any())
    steps.fill(0)
    for i, j in np.ndindex(*size):
        of_rows, at_rows = reach(i, peaks.shape[2], stride[0], padding[0], x.shape[2])
        of_columns, at_columns = reach(j, peaks.shape[3], stride[1], padding[1], x.shape[3])
        of = (slice(None), slice(None), of_rows, of_columns)
        seen = x[:, :, at_rows, at_columns]
        np.equal(seen, peaks[of], out=wins[of])
        np.copyto(step[of], wins[of])
        if nans:  # a window with a NaN has a NaN as its peak, which equals nothing
            # NumPy 2.4's isnan is wrong where `out` has gaps, with AVX-512.
            np.not_equal(seen, seen, out=wins[of])
            np.maximum(step[of], wins[of], out=step[of])
        np.multiply(step[of], end - i * x.shape[3] - j, out=step[of])
        np.maximum(steps[of], step[of], out=steps[of])


def _counts(out: Array, image: Any, size: Any, stride: Any, padding: Any) -> None:
    """How many elements each window (OH, OW) has on the image."""
    out.fill(0)
    for i in range(size[0]):
        for j in range(size[1]):
            rows, _ = reach(i, out.shape[0], stride[0], padding[0], image[0])
            columns, _ = reach(j, out.shape[1], stride[1], padding[1], image[1])
            out[rows, columns] += 1


@backend.kernel(scratch=lambda out, x, **_: [_rows(out, x), out.like(out.shape[2:])])
def average_pool(
    out: Array,
    x: Array,
    size: Any,
    stride: Any,
    padding: Any,
    ceil: bool,
    scratch: tuple[Array, Array],
) -> None:
    some, counts = len(scratch[0]), scratch[1]
    _counts(counts, x.shape[2:], size, stride, padding)
    for start in range(0, len(x), some):
        here = slice(start, start + some)
        rows = scratch[0][: len(x[here])]
        _pool(np.add, out[here], x[here], rows, (size, stride, padding), 0)
        np.divide(out[here], counts, out=out[here])


def _shares(out: Spec, g: Spec, **_: Any) -> list[Spec]:
    some = images_at_once(out)
    rows = g.like((some, g.shape[1], out.shape[2], g.shape[3]))
    return [g.like((some, *g.shape[1:])), rows, g.like(g.shape[2:])]


@backend.kernel(scratch=_shares)
def average_pool_gradient(
    out: Array,
    g: Array,
    image: Any,
    size: Any,
    stride: Any,
    padding: Any,
    ceil: bool,
    scratch: tuple[Array, Array, Array],
) -> None:
    some, counts = len(scratch[0]), scratch[2]
    _counts(counts, image, size, stride, padding)
    for start in range(0, len(g), some):
        here = slice(start, start + some)
        share, rows = (array[: len(g[here])] for array in scratch[:2])
        np.divide(g[here], counts, out=share)
        _spread(rows, share, 2, size[0], stride[0], padding[0])
        _spread(out[here], rows, 3, size[1], stride[1], padding[1])


def _weighted(out: Spec, x: Spec, *_: Spec, **__: Any) -> list[Spec]:
    return [out.like((images_at_once(x), *out.shape[1:]))]


@backend.kernel(scratch=_weighted)
def subsample(out: Array, x: Array, w: Array, b: Array, stride: Any, scratch: tuple[Array]) -> None:
    some = len(scratch[0])
    height, width = (
        (size - 1) * step + 1 for size, step in zip(out.shape[2:], stride, strict=True)
    )
    for start in range(0, len(x), some):
        here = slice(start, start + some)
        work = scratch[0][: len(x[here])]
        out[here] = b
        for i, j in np.ndindex(w.shape):
            seen = x[here, :, i : i + height : stride[0], j : j + width : stride[1]]
            np.multiply(seen, w[i, j], out=work)
            np.add(out[here], work, out=out[here])
