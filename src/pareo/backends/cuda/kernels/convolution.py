"""Convolution as matrix products of columns (im2col); `depthwise` has kernels of its own.

Images are processed in chunks whose columns take at most LIMIT bytes. A window of one pixel needs
no columns: the images themselves are the columns.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.kernels import depthwise
from pareo.backends.cuda.kernels.elementwise import apply
from pareo.backends.cuda.kernels.linear import add_biased
from pareo.backends.cuda.runtime import cublas, launch
from pareo.backends.cuda.table import backend
from pareo.spec import Spec

LIMIT = 256 << 20  # bytes of columns at a time


class Tiling(NamedTuple):
    """How one convolution is split into matrix products."""

    images: tuple[int, ...]  # (N, C, H, W)
    output: tuple[int, ...]  # (N, K, OH, OW)
    window: tuple[int, ...]
    stride: tuple[int, int]
    padding: tuple[int, ...]
    dilation: tuple[int, int]
    groups: int
    chunk: int  # images at a time

    @classmethod
    def of(
        cls,
        images: Array | Spec,
        output: Array | Spec,
        window: Sequence[int],
        how: Mapping[str, Any],
    ) -> "Tiling":
        depth, pixels = images.shape[1] * math.prod(window), math.prod(output.shape[2:])
        chunk = LIMIT // max(1, depth * pixels * images.dtype.itemsize)
        chunk = max(1, min(chunk, images.shape[0]))
        return cls(
            images.shape, output.shape, tuple(window), how["stride"], how["padding"],
            how["dilation"], how["groups"], chunk,
        )  # fmt: skip

    @property
    def pointwise(self) -> bool:
        """Whether the images themselves are the columns."""
        return self.window == self.stride == (1, 1) and not any(self.padding)

    @property
    def depth(self) -> int:
        return self.images[1] * math.prod(self.window)

    @property
    def pixels(self) -> int:
        return math.prod(self.output[2:])

    @property
    def column_elements(self) -> int:
        """Elements of the columns of one chunk."""
        return self.chunk * self.depth * self.pixels

    def im2col(self, images: int, side_by_side: bool) -> np.ndarray:
        """The struct Im2col of columns.cu."""
        return launch.struct(
            images, self.images[1:], self.output[2:], self.window, self.stride, self.padding[:2],
            self.dilation, side_by_side, of=np.int32,
        )  # fmt: skip

    def to_columns(self, work: Array, x: Array, side_by_side: bool) -> Array:
        """Columns of images x: (n, depth, pixels), or (depth, n * pixels) side by side."""
        n = len(x)
        columns = work[: n * self.depth * self.pixels]
        arguments = ("to_columns", x.dtype.char, columns, x, self.im2col(n, side_by_side))
        launch.planes(n * self.depth, self.pixels, "columns", *arguments)
        return columns.reshape(
            (self.depth, n * self.pixels) if side_by_side else (n, self.depth, self.pixels)
        )

    def group(self, array: Array, number: int, axis: int) -> Array:
        """One group's part of an array along an axis."""
        size = array.shape[axis] // self.groups
        return array[(slice(None),) * axis + (slice(number * size, (number + 1) * size),)]


def _for_output(out: Spec, x: Spec, w: Spec, *_: Spec, **how: Any) -> list[Spec]:
    if depthwise.is_depthwise(x, how):
        return []
    tiling = Tiling.of(x, out, w.shape[2:], how)
    return [x.like((0 if tiling.pointwise else tiling.column_elements,))]


@backend.kernel(strided=False, scratch=_for_output)
def conv(out: Array, x: Array, w: Array, scratch: Sequence[Array], **how: Any) -> None:
    if out.size == 0:
        return
    if depthwise.is_depthwise(x, how):
        depthwise.forward(out, x, w, how)
        return
    tiling = Tiling.of(x, out, w.shape[2:], how)
    filters = w.reshape(1, len(w), -1)
    for start in range(0, len(x), tiling.chunk):
        images = x[start : start + tiling.chunk]
        target = out[start : start + tiling.chunk].reshape(len(images), len(w), tiling.pixels)
        if tiling.pointwise:
            columns = images.reshape(len(images), tiling.depth, tiling.pixels)
        else:
            columns = tiling.to_columns(scratch[0], images, side_by_side=False)
        for number in range(tiling.groups):
            cublas.multiply(
                tiling.group(target, number, 1),
                tiling.group(filters, number, 1),
                tiling.group(columns, number, 1),
            )


def _for_input(out: Spec, g: Spec, w: Spec, size: tuple[int, int], **how: Any) -> list[Spec]:
    return _for_output(g, out, w, **how)


@backend.kernel(strided=False, scratch=_for_input)
def conv_input_gradient(
    out: Array, g: Array, w: Array, size: tuple[int, int], scratch: Sequence[Array], **how: Any
) -> None:
    if g.size == 0:  # no filters, no pixels or no images: empty sums
        out.fill(0)
    if g.size == 0 or out.size == 0:
        return
    if depthwise.is_depthwise(out, how):
        depthwise.input_gradient(out, g, w, how)
        return
    tiling = Tiling.of(out, g, w.shape[2:], how)
    filters = w.reshape(1, len(w), -1)
    for start in range(0, len(g), tiling.chunk):
        images = out[start : start + tiling.chunk]
        errors = g[start : start + tiling.chunk].reshape(len(images), len(w), tiling.pixels)
        shape = (len(images), tiling.depth, tiling.pixels)
        columns = images if tiling.pointwise else scratch[0][: math.prod(shape)]
        columns = columns.reshape(shape)
        for number in range(tiling.groups):
            cublas.multiply(
                tiling.group(columns, number, 1),
                tiling.group(filters, number, 1).transpose(0, 2, 1),
                tiling.group(errors, number, 1),
            )
        if not tiling.pointwise:
            im2col = tiling.im2col(len(images), False)
            planes, pixels = math.prod(images.shape[:2]), math.prod(images.shape[2:])
            arguments = ("from_columns", g.dtype.char, images, columns, im2col)
            launch.planes(planes, pixels, "columns", *arguments)


def _for_weight(out: Spec, x: Spec, g: Spec, size: tuple[int, int], **how: Any) -> list[Spec]:
    if depthwise.is_depthwise(x, how):
        return [x.like((math.prod(out.shape) * depthwise.parts(x, g, size),))]
    tiling = Tiling.of(x, g, size, how)
    return [x.like((tiling.column_elements,)), x.like((tiling.chunk * g.shape[1] * tiling.pixels,))]


@backend.kernel(strided=False, scratch=_for_weight)
def conv_weight_gradient(
    out: Array, x: Array, g: Array, size: tuple[int, int], scratch: Sequence[Array], **how: Any
) -> None:
    """Columns and errors of a chunk side by side, so that one product sums over its images."""
    if out.size == 0:
        return
    if depthwise.is_depthwise(x, how):
        depthwise.weight_gradient(out, x, g, scratch[0], how)
        return
    tiling = Tiling.of(x, g, size, how)
    filters = out.reshape(len(out), -1)
    if len(x) == 0:
        out.fill(0)
    for start in range(0, len(x), tiling.chunk):
        images = x[start : start + tiling.chunk]
        n = len(images)
        columns = tiling.to_columns(scratch[0], images, side_by_side=True)
        errors = scratch[1][: n * g.shape[1] * tiling.pixels]
        each = g[start : start + n].reshape(n, g.shape[1], tiling.pixels).transpose(1, 0, 2)
        apply("copied", errors.reshape(each.shape), each)
        errors = errors.reshape(g.shape[1], n * tiling.pixels)
        for number in range(tiling.groups):
            cublas.multiply(
                tiling.group(filters, number, 0),
                tiling.group(errors, number, 0),
                tiling.group(columns, number, 0).T,
                add=start > 0,
            )


def _fused(pattern: str, gives: str, activation: str) -> None:
    def kernel(
        out: Array, x: Array, w: Array, b: Array, *, scratch: Sequence[Array], **how: Any
    ) -> None:
        conv(out, x, w, scratch=scratch, **how)
        add_biased(f"bias{activation}", out, out, b)

    kernel.__name__ = f"conv_bias{activation}"
    backend.fusion(pattern, gives, scratch=_for_output)(kernel)


for _name in ("sigmoid", "tanh", "relu"):
    _fused(f"t = conv(x, w)\nu = add_bias(t, b)\ny = {_name}(u)", "y", f"_{_name}")
_fused("t = conv(x, w)\nu = add_bias(t, b)", "u", "")
