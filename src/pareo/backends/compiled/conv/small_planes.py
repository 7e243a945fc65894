"""Convolution of small images as matrix products, with the columns of several images in one.

The filters are read once for all these images, and the products are wide enough for BLAS. The
results of a product lie filter by filter, and are copied to where each image has its own.
"""

from pareo.array import Array
from pareo.backends import blas
from pareo.backends.compiled.backend import Sizes
from pareo.backends.compiled.conv.columns import gather, scatter
from pareo.backends.compiled.kernels.linear import bias_activation_planes
from pareo.backends.compiled.runtime.arrays import add_parts, add_to, fill
from pareo.backends.compiled.runtime.gemm import product
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import least_items, split_numbered, workers
from pareo.backends.sums import CHUNK
from pareo.spec import Spec

MOST_PIXELS = 256  # of an image's results: larger ones are wide enough on their own
MOST_POINTWISE_PIXELS = 64  # the same where images are their own columns, and need no copy
AT_ONCE = 512  # results of all images of a product


def suits(results: Spec | Array, groups: int, pointwise: bool) -> bool:
    """Whether several images of such results are worth one product."""
    pixels = results.shape[2] * results.shape[3]
    most = MOST_POINTWISE_PIXELS if pointwise else MOST_PIXELS
    return groups == 1 and 0 < pixels <= most and _together(results) > 1


def _together(results: Spec | Array) -> int:
    """How many images share a product."""
    pixels = results.shape[2] * results.shape[3]
    return min(AT_ONCE // max(1, pixels), -(-results.shape[0] // workers()))


def scratch(x: Spec, results: Spec, window: Sizes) -> list[Spec]:
    """For every worker: the columns of some images, and as many results."""
    wide = _together(results) * results.shape[2] * results.shape[3]
    depth = x.shape[1] * window[0] * window[1]
    return [x.like((workers(), rows, wide)) for rows in (depth, results.shape[1])]


@jit
def _side_by_side(matrix: Array, planes: Array) -> None:
    """matrix[c, (n, p)] = planes[n, c, p]."""
    pixels = planes.shape[2]
    for c in range(planes.shape[1]):
        for n in range(planes.shape[0]):
            for p in range(pixels):
                matrix[c, n * pixels + p] = planes[n, c, p]


@jit
def _apart(planes: Array, matrix: Array) -> None:
    """planes[n, c, p] = matrix[c, (n, p)]."""
    pixels = planes.shape[2]
    for n in range(planes.shape[0]):
        for c in range(planes.shape[1]):
            for p in range(pixels):
                planes[n, c, p] = matrix[c, n * pixels + p]


def _planes(a: Array) -> Array:
    return a.reshape(*a.shape[:2], a.shape[2] * a.shape[3])


def _cut(memory: Array, wide: int) -> Array:
    """A matrix of this width with as many rows as the memory has, at its start."""
    return memory.reshape(-1)[: len(memory) * wide].reshape(len(memory), wide)


@jit
def _gather_all(
    columns: Array, x: Array, height: int, width: int, kh: int, kw: int,
    sh: int, sw: int, top: int, left: int, dh: int, dw: int,
) -> None:  # fmt: skip
    for n in range(x.shape[0]):
        at = n * height * width
        gather(columns, at, x[n], height, width, kh, kw, sh, sw, top, left, dh, dw)


@jit
def _scatter_all(
    out: Array, columns: Array, height: int, width: int, kh: int, kw: int,
    sh: int, sw: int, top: int, left: int, dh: int, dw: int,
) -> None:  # fmt: skip
    out[:] = 0
    for n in range(out.shape[0]):
        at = n * height * width
        scatter(out[n], columns, at, height, width, kh, kw, sh, sw, top, left, dh, dw)


def forward(
    out: Array, x: Array, w: Array, b: Array | None, activation: int,
    shape: Sizes, scratch: tuple[Array, ...],
) -> None:  # fmt: skip
    """out = activation(conv(x, w) + b); without a bias b is None.

    shape has the window, the stride, the padding at the top and on the left, and the dilation.
    """
    filters, together = w.reshape(w.shape[0], scratch[0].shape[1]), _together(out)
    pixels = out.shape[2] * out.shape[3]

    def work(part: int, lo: int, hi: int) -> None:
        for first in range(lo, hi, together):
            last = min(first + together, hi)
            columns, results = (_cut(a[part], (last - first) * pixels) for a in scratch)
            _gather_all(columns, x[first:last], *out.shape[2:], *shape)
            product(results, filters, columns)
            target = _planes(out[first:last])
            _apart(target, results)
            if b is not None:
                bias_activation_planes(target, target, b, activation)

    blas.threads(1)
    split_numbered(work, len(x), least_items(len(x), 2 * out.size * w[0].size))


def input_gradient(
    out: Array, g: Array, w: Array, shape: Sizes, scratch: tuple[Array, ...]
) -> None:
    """out = the gradient of the images, from that of the outputs."""
    filters, together = w.reshape(w.shape[0], scratch[0].shape[1]), _together(g)
    pixels = g.shape[2] * g.shape[3]

    def work(part: int, lo: int, hi: int) -> None:
        for first in range(lo, hi, together):
            last = min(first + together, hi)
            columns, gradients = (_cut(a[part], (last - first) * pixels) for a in scratch)
            _side_by_side(gradients, _planes(g[first:last]))
            product(columns, filters.T, gradients)
            _scatter_all(out[first:last], columns, *g.shape[2:], *shape)

    blas.threads(1)
    split_numbered(work, len(g), least_items(len(g), 2 * g.size * w[0].size))


def weight_gradient(
    out: Array, x: Array, g: Array, shape: Sizes, scratch: tuple[Array, ...],
    sums: Array, totals: list[Array],
) -> None:  # fmt: skip
    """out = the gradient of the filters; sums and totals are from `im2col.sums_scratch`."""
    together, pixels = _together(g), g.shape[2] * g.shape[3]

    def work(part: int, lo: int, hi: int) -> None:
        total = sums[part, 0]
        for more in totals:
            fill(more[part], 0)
        for number, first in enumerate(range(lo, hi, together)):
            last = min(first + together, hi)
            columns, gradients = (_cut(a[part], (last - first) * pixels) for a in scratch)
            _gather_all(columns, x[first:last], *g.shape[2:], *shape)
            _side_by_side(gradients, _planes(g[first:last]))
            if number and number % CHUNK == 0:
                for more in totals:
                    add_to(more[part], sums[part])
            product(total, gradients, columns.T, keep=number % CHUNK > 0)
        for more in totals:
            add_to(more[part], sums[part])

    blas.threads(1)
    parts = split_numbered(work, len(x), least_items(len(x), 2 * g.size * out[0].size))
    add_parts(out, (totals or [sums])[0], parts)
