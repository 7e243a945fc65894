"""Convolution as matrix products (im2col): each position in the window becomes a row.

Images are taken some at a time, so that their rows are still in the cache for the product. Rows
are made in two steps, first along the width, then along the height: the second and larger step
copies whole planes. A window of one pixel needs no rows at all: the images are the rows.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from pareo.backends import blas
from pareo.backends.sums import CHUNK
from pareo.backends.vectorized.table import Array, backend
from pareo.backends.windows import from_lines, from_rows, to_lines, to_rows
from pareo.device import current
from pareo.spec import Spec

CACHE = 1 << 20  # bytes for the rows, or the products, of some images: a core's own cache

# BLAS rearranges the filters once per product. With many filters and few pixels per image it takes
# long, and several images in one product are up to 15 % faster. Elsewhere copying them costs more.
MANY_WEIGHTS = 1 << 17
FEW_PIXELS = 192
WIDE = 512  # pixels side by side, enough for the product to run at full speed


class Tiling(NamedTuple):
    """How one convolution is divided into matrix products."""

    some: int  # images at a time
    beside: bool  # whether they are in one matrix, or have one each
    as_is: bool  # whether the images themselves are the rows
    groups: int
    rows: tuple[int, ...]  # (C, kh, kw)
    pixels: tuple[int, ...]  # (OH, OW)
    height: int  # of the images with their padding

    @classmethod
    def of(
        cls, images: Any, window: Any, output: Any, stride: Any, padding: Any, groups: int
    ) -> "Tiling":
        """For images (N, C, H, W), a window (kh, kw) and an output (N, K, OH, OW)."""
        number, channels, height, _ = images.shape
        rows, pixels = (channels, *window), output.shape[2:]
        depth, size = math.prod(rows), math.prod(pixels)
        filters = output.shape[1] // groups
        beside = number > 1 and size < FEW_PIXELS and filters * depth >= MANY_WEIGHTS * groups
        some = CACHE // max(depth * max(size, filters) * images.dtype.itemsize, 1)
        some = max(1, min(number, max(some, -(-WIDE // size) if beside else 1)))
        as_is = not (beside or any(padding)) and (*window, *stride) == (1, 1, 1, 1)
        return cls(some, beside, as_is, groups, rows, pixels, height + padding[0] + padding[2])

    def scratch(self, x: Spec, channels: int) -> list[Spec]:
        """Work arrays: the rows, the lines they are made of, the output's channels side by side."""
        if self.as_is:
            return [x.like((0,))] * 3
        lines = self.rows[0] * self.rows[2] * self.height * self.pixels[1]
        wide = channels * math.prod(self.pixels) if self.beside else 0
        sizes = (math.prod(self.rows) * math.prod(self.pixels), lines, wide)
        return [x.like((self.some * size,)) for size in sizes]

    def in_rows(self, work: Array, images: int) -> tuple[Array, Array]:
        """Room for rows, as (n, C, kh, kw, OH, OW), and the same as matrices."""
        depth, pixels = math.prod(self.rows) // self.groups, math.prod(self.pixels)
        if self.beside:
            room = _shaped(work, *self.rows, images, *self.pixels)
            matrices = room.reshape(1, self.groups, depth, images * pixels)
            return room.transpose(3, 0, 1, 2, 4, 5), matrices
        room = _shaped(work, images, *self.rows, *self.pixels)
        return room, room.reshape(images, self.groups, depth, pixels)

    def in_lines(self, work: Array, images: int) -> Array:
        """Room for images unfolded along their width only: (n, C, kw, H + padding, OW)."""
        return _shaped(work, images, self.rows[0], self.rows[2], self.height, self.pixels[1])

    def outputs(self, work: Array, output: Array) -> tuple[Array, Array]:
        """The output as (n, groups, K / groups, OH * OW), and room for it as matrices."""
        images, pixels = len(output), math.prod(self.pixels)
        channels = output.shape[1] // self.groups
        each = output.reshape(images, self.groups, channels, pixels)
        if not self.beside:
            return each, each
        room = _shaped(work, self.groups, channels, images * pixels)
        return each, room[np.newaxis]


def _shaped(work: Array, *shape: int) -> Array:
    return work[: math.prod(shape)].reshape(shape)


def _side_by_side(matrices: Array, each: Array) -> Array:
    """Matrices (1, groups, K / groups, n * OH * OW), seen image by image."""
    _, groups, channels, _ = matrices.shape
    return matrices.reshape(groups, channels, len(each), each.shape[3]).transpose(2, 0, 1, 3)


def _for_output(out: Spec, x: Spec, w: Spec, stride: Any, padding: Any, **how: Any) -> list[Spec]:
    tiling = Tiling.of(x, w.shape[2:], out, stride, padding, how["groups"])
    return tiling.scratch(x, out.shape[1])


@backend.kernel(strided=False, scratch=_for_output)
def conv(
    out: Array,
    x: Array,
    w: Array,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    scratch: tuple[Array, ...],
) -> None:
    blas.threads(current().threads)
    tiling = Tiling.of(x, w.shape[2:], out, stride, padding, groups)
    filters = w.reshape(groups, len(w) // groups, math.prod(w.shape[1:]))
    if tiling.as_is:
        pixels = math.prod(tiling.pixels)
        rows = x.reshape(len(x), groups, x.shape[1] // groups, pixels)
        np.matmul(filters, rows, out=out.reshape(len(x), *filters.shape[:2], pixels))
        return
    for start in range(0, len(x), tiling.some):
        images = x[start : start + tiling.some]
        places, rows = tiling.in_rows(scratch[0], len(images))
        lines = tiling.in_lines(scratch[1], len(images))
        each, product = tiling.outputs(scratch[2], out[start : start + tiling.some])
        to_lines(lines, images, stride[1], padding, dilation[1])
        to_rows(places, lines, stride[0], dilation[0])
        np.matmul(filters, rows, out=product)
        if tiling.beside:
            np.copyto(each, _side_by_side(product, each))


def _for_input(out: Spec, g: Spec, w: Spec, stride: Any, padding: Any, **how: Any) -> list[Spec]:
    return _for_output(g, out, w, stride, padding, groups=how["groups"])


@backend.kernel(strided=False, scratch=_for_input)
def conv_input_gradient(
    out: Array,
    g: Array,
    w: Array,
    size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    scratch: tuple[Array, ...],
) -> None:
    blas.threads(current().threads)
    tiling = Tiling.of(out, w.shape[2:], g, stride, padding, groups)
    filters = w.reshape(groups, len(w) // groups, math.prod(w.shape[1:])).transpose(0, 2, 1)
    if tiling.as_is:
        errors = g.reshape(len(g), groups, len(w) // groups, math.prod(tiling.pixels))
        np.matmul(filters, errors, out=out.reshape(len(g), *filters.shape[:2], errors.shape[3]))
        return
    for start in range(0, len(g), tiling.some):
        images = out[start : start + tiling.some]
        places, rows = tiling.in_rows(scratch[0], len(images))
        lines = tiling.in_lines(scratch[1], len(images))
        each, errors = tiling.outputs(scratch[2], g[start : start + tiling.some])
        if tiling.beside:
            np.copyto(_side_by_side(errors, each), each)
        np.matmul(filters, errors, out=rows)
        from_rows(lines, places, stride[0], dilation[0])
        from_lines(images, lines, stride[1], padding, dilation[1])


def _for_weight(
    out: Spec, x: Spec, g: Spec, size: Any, stride: Any, padding: Any, groups: int, **_: Any
) -> list[Spec]:
    tiling = Tiling.of(x, size, g, stride, padding, groups)
    products = x.like((1 if tiling.beside else tiling.some, groups, out.size // groups))
    long = x.shape[0] > CHUNK and x.dtype == np.float32
    totals = [Spec((groups, out.size // groups), np.float64)] if long else []
    return [*tiling.scratch(x, g.shape[1]), products, *totals]


@backend.kernel(strided=False, scratch=_for_weight)
def conv_weight_gradient(
    out: Array,
    x: Array,
    g: Array,
    size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    scratch: tuple[Array, ...],
) -> None:
    blas.threads(current().threads)
    tiling = Tiling.of(x, size, g, stride, padding, groups)
    filters = out.reshape(groups, len(out) // groups, math.prod(out.shape[1:]))
    filters.fill(0)
    totals = [array.reshape(filters.shape) for array in scratch[4:]]
    for array in totals:
        array.fill(0)
    added = 0
    for start in range(0, len(x), tiling.some):
        images = x[start : start + tiling.some]
        if tiling.as_is:
            rows = images.reshape(len(images), groups, filters.shape[2], math.prod(g.shape[2:]))
        else:
            places, rows = tiling.in_rows(scratch[0], len(images))
            lines = tiling.in_lines(scratch[1], len(images))
            to_lines(lines, images, stride[1], padding, dilation[1])
            to_rows(places, lines, stride[0], dilation[0])
        each, errors = tiling.outputs(scratch[2], g[start : start + tiling.some])
        if tiling.beside:
            np.copyto(_side_by_side(errors, each), each)
        products = scratch[3][: len(errors)].reshape(len(errors), *filters.shape)
        np.matmul(errors, rows.transpose(0, 1, 3, 2), out=products)
        for product in products:
            np.add(filters, product, out=filters)
            added += 1
            if totals and added % CHUNK == 0:
                np.add(totals[0], filters, out=totals[0])
                filters.fill(0)
    for array in totals:
        np.add(array, filters, out=filters, casting="same_kind")
