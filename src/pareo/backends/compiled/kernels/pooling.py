"""Pooling, plane by plane; a plane is one channel of one image."""

from collections.abc import Callable, Sequence

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import GRAIN, Sizes, backend
from pareo.backends.compiled.kernels import (
    average_pool_lanes,
    average_pool_loops,
    max_pool_lanes,
    max_pool_loops,
)
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.lanes import LANES
from pareo.backends.compiled.runtime.thread_pool import apart, split, split_numbered, workers
from pareo.spec import Spec

kernel = backend.kernel


@jit
def _is_plain_half(
    pooled: Array, x: Array, kh: int, kw: int, sh: int, sw: int, top: int, left: int
) -> bool:
    """Whether the windows are 2x2, do not overlap, and are all inside the image."""
    inside = 2 * pooled.shape[1] <= x.shape[1] and 2 * pooled.shape[2] <= x.shape[2]
    return kh == kw == sh == sw == 2 and top == left == 0 and inside


@jit
def _average_pool(
    out: Array, x: Array, kh: int, kw: int, sh: int, sw: int, top: int, left: int
) -> None:
    if _is_plain_half(out, x, kh, kw, sh, sw, top, left):
        quarter = x.dtype.type(0.25)
        for p in range(x.shape[0]):
            for i in range(out.shape[1]):
                for j in range(out.shape[2]):
                    upper = x[p, 2 * i, 2 * j] + x[p, 2 * i, 2 * j + 1]
                    total = upper + x[p, 2 * i + 1, 2 * j] + x[p, 2 * i + 1, 2 * j + 1]
                    out[p, i, j] = total * quarter
        return
    average_pool_loops.average_pool(out, x, kh, kw, sh, sw, top, left)


@jit
def _average_pool_gradient(
    out: Array, g: Array, kh: int, kw: int, sh: int, sw: int, top: int, left: int
) -> None:
    if _is_plain_half(g, out, kh, kw, sh, sw, top, left):
        quarter = g.dtype.type(0.25)
        high, wide = 2 * g.shape[1], 2 * g.shape[2]
        for p in range(out.shape[0]):
            for i in range(high):
                for j in range(g.shape[2]):
                    share = g[p, i // 2, j] * quarter
                    out[p, i, 2 * j] = share
                    out[p, i, 2 * j + 1] = share
                for j in range(wide, out.shape[2]):  # pixels in no window
                    out[p, i, j] = 0
            for i in range(high, out.shape[1]):
                out[p, i, :] = 0
        return
    average_pool_loops.average_pool_gradient(out, g, kh, kw, sh, sw, top, left)


def _planewise(
    loop: Callable[..., None],
    out: Array,
    buffers: Sequence[Array],
    operands: Sequence[Array],
    size: Sizes,
    stride: Sizes,
    padding: Sizes,
    layout: Sizes = (),
) -> None:
    """Run a loop over all planes of images (N, C, H, W), split over the threads."""
    target, *sources = [a.reshape(-1, *a.shape[2:]) for a in (out, *operands)]
    most = max(int(np.prod(a.shape[1:])) for a in (target, *sources)) * size[0] * size[1]

    def work(part: int, lo: int, hi: int) -> None:
        own = [a[part] for a in buffers]
        planes = [a[lo:hi] for a in sources]
        loop(target[lo:hi], *own, *planes, *layout, *size, *stride, *padding[:2])

    split_numbered(work, target.shape[0], max(1, GRAIN // max(1, most)))


def _layout(
    x: tuple[int, ...], pooled: tuple[int, ...], size: Sizes, stride: Sizes, padding: Sizes
) -> tuple[int, int]:
    """Rows and columns of each plane into which `max_pool_loops` divides an image's plane."""
    reach = (
        max((windows - 1) * step + taps, pixels + edge)
        for windows, step, taps, pixels, edge in zip(
            pooled[2:], stride, size, x[2:], padding[:2], strict=True
        )
    )
    rows, pitch = (-(-far // step) for far, step in zip(reach, stride, strict=True))
    return rows, pitch


def _strip(
    x: tuple[int, ...], pooled: tuple[int, ...], size: Sizes, stride: Sizes
) -> tuple[int, int]:
    return max_pool_lanes.strip_sizes(x[2], x[3], pooled[2], size[0], stride[0])


def _groupwise(
    loop: Callable[..., None],
    out: Array,
    buffers: Sequence[Array],
    operands: Sequence[Array],
    pooled: Array,
    size: Sizes,
    stride: Sizes,
    padding: Sizes,
) -> None:
    """Run a loop over groups of as many planes as a register has lanes, split over the threads."""
    target, *sources = [a.reshape(-1, *a.shape[2:]) for a in (out, *operands)]
    number, _ = _strip(operands[-1].shape, pooled.shape, size, stride)
    most = LANES * pooled.shape[2] * pooled.shape[3] * size[0] * size[1]

    def work(part: int, lo: int, hi: int) -> None:
        own = [a[part] for a in buffers]
        loop(target, *own, *sources, number, *size, *stride, *padding[:2], lo, hi)

    split_numbered(work, -(-target.shape[0] // LANES), max(1, GRAIN // most))


def _layout_scratch(
    x: Spec, pooled: Spec, size: Sizes, stride: Sizes, padding: Sizes
) -> list[Spec]:
    """For every worker: a plane as the loops lay it out, maxima of its columns, and of windows."""
    if _in_lanes(x):
        number, rows = _strip(x.shape, pooled.shape, size, stride)
        sizes = [n * LANES for n in (rows * x.shape[3], x.shape[3], number * pooled.shape[3])]
    else:
        rows, pitch = _layout(x.shape, pooled.shape, size, stride, padding)
        sizes = [n * rows * pitch for n in (stride[0] * stride[1], stride[1], 1)]
    return [x.like((workers(), apart(n))) for n in sizes]


def _forward_scratch(
    out: Spec, x: Spec, *, size: Sizes, stride: Sizes, padding: Sizes, ceil: bool
) -> list[Spec]:
    return _layout_scratch(x, out, size, stride, padding)


def _backward_scratch(
    out: Spec, g: Spec, x: Spec, *, size: Sizes, stride: Sizes, padding: Sizes, ceil: bool
) -> list[Spec]:
    plane, columns, windows = _layout_scratch(x, g, size, stride, padding)
    return [plane, columns, windows, plane, windows]


def _in_lanes(x: Spec | Array) -> bool:
    """Whether as many planes are pooled together as a register has lanes."""
    return x.dtype == np.float32 and 2 * x.shape[0] * x.shape[1] > LANES


@kernel(strided=False, scratch=_forward_scratch, replayable=True)
def max_pool(
    out: Array,
    x: Array,
    size: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil: bool,
    scratch: tuple[Array, ...],
) -> None:
    if _in_lanes(x):
        _groupwise(max_pool_lanes.max_pool, out, scratch, [x], out, size, stride, padding)
        return
    layout = _layout(x.shape, out.shape, size, stride, padding)
    _planewise(max_pool_loops.max_pool, out, scratch, [x], size, stride, padding, layout)


@kernel(strided=False, scratch=_backward_scratch, replayable=True)
def max_pool_gradient(
    out: Array,
    g: Array,
    x: Array,
    size: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil: bool,
    scratch: tuple[Array, ...],
) -> None:
    if _in_lanes(x):
        _groupwise(max_pool_lanes.max_pool_gradient, out, scratch, [g, x], g, size, stride, padding)
        return
    layout, loop = (
        _layout(x.shape, g.shape, size, stride, padding),
        max_pool_loops.max_pool_gradient,
    )
    _planewise(loop, out, scratch, [g, x], size, stride, padding, layout)


def _averages_in_lanes(x: Spec | Array, pooled: Spec | Array, how: dict[str, Sizes]) -> bool:
    """Whether as many planes are averaged together as a register has lanes.

    Plain halves need no copy, which takes as long.
    """
    if how["size"] == how["stride"] == (2, 2) or not pooled.shape[2] * pooled.shape[3]:
        return False
    high, wide = average_pool_lanes.buffer_sizes(x.shape, pooled.shape, **how)
    fits = LANES * high * wide <= average_pool_lanes.MOST
    return fits and _in_lanes(x) and x.shape[2] * x.shape[3] >= LANES


def _averages_buffer(x: Spec, pooled: Spec, how: dict[str, Sizes]) -> list[Spec]:
    """For every worker: a pixel of as many planes as a register has lanes, for all pixels."""
    if not _averages_in_lanes(x, pooled, how):
        return []
    high, wide = average_pool_lanes.buffer_sizes(x.shape, pooled.shape, **how)
    return [x.like((workers(), apart(LANES * high * wide)))]


def _average(
    ways: tuple[Callable[..., None], Callable[..., None]],
    out: Array,
    given: Array,
    x: Array,
    pooled: Array,
    how: dict[str, Sizes],
    scratch: tuple[Array, ...],
) -> None:
    """Run a loop over groups of planes, or over single ones."""
    in_lanes, planewise = ways
    if not _averages_in_lanes(x, pooled, how):
        _planewise(planewise, out, [], [given], *how.values())
        return
    target, source = (a.reshape(-1, *a.shape[2:]) for a in (out, given))
    size, stride, padding = how.values()
    sizes = average_pool_lanes.buffer_sizes(x.shape, pooled.shape, size, stride, padding)
    layout = (*sizes, *size, *stride, *padding[:2])

    def work(part: int, lo: int, hi: int) -> None:
        in_lanes(target, scratch[0][part], source, *layout, lo, hi)

    most = LANES * pooled.shape[2] * pooled.shape[3] * (size[0] + size[1])
    split_numbered(work, -(-target.shape[0] // LANES), max(1, GRAIN // most))


def _average_scratch(
    out: Spec, x: Spec, *, size: Sizes, stride: Sizes, padding: Sizes, ceil: bool
) -> list[Spec]:
    return _averages_buffer(x, out, {"size": size, "stride": stride, "padding": padding})


@kernel(strided=False, scratch=_average_scratch, replayable=True)
def average_pool(
    out: Array,
    x: Array,
    size: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil: bool,
    scratch: tuple[Array, ...],
) -> None:
    how = {"size": size, "stride": stride, "padding": padding}
    ways = average_pool_lanes.average_pool, _average_pool
    _average(ways, out, x, x, out, how, scratch)


def _average_gradient_scratch(
    out: Spec, g: Spec, *, image: Sizes, size: Sizes, stride: Sizes, padding: Sizes, ceil: bool
) -> list[Spec]:
    return _averages_buffer(out, g, {"size": size, "stride": stride, "padding": padding})


@kernel(strided=False, scratch=_average_gradient_scratch, replayable=True)
def average_pool_gradient(
    out: Array,
    g: Array,
    image: Sizes,
    size: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil: bool,
    scratch: tuple[Array, ...],
) -> None:
    how = {"size": size, "stride": stride, "padding": padding}
    ways = average_pool_lanes.average_pool_gradient, _average_pool_gradient
    _average(ways, out, g, out, g, how, scratch)


@jit
def _subsample(out: Array, x: Array, w: Array, b: Array, sh: int, sw: int) -> None:
    bias = b[0]
    for p in range(x.shape[0]):
        for i in range(out.shape[1]):
            for j in range(out.shape[2]):
                total = bias
                for u in range(w.shape[0]):
                    for v in range(w.shape[1]):
                        total += w[u, v] * x[p, i * sh + u, j * sw + v]
                out[p, i, j] = total


@kernel(strided=False, replayable=True)
def subsample(out: Array, x: Array, w: Array, b: Array, stride: Sizes) -> None:
    target, planes = out.reshape(-1, *out.shape[2:]), x.reshape(-1, *x.shape[2:])
    bias = b.reshape(-1)
    least = max(1, GRAIN // max(1, out.shape[2] * out.shape[3] * w.size))
    split(
        lambda lo, hi: _subsample(target[lo:hi], planes[lo:hi], w, bias, *stride),
        planes.shape[0],
        least,
    )
