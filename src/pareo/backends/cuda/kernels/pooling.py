"""Pooling."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.runtime import launch
from pareo.backends.cuda.table import backend
from pareo.spec import Spec


def _pool(
    image: Array,
    pooled: Array,
    size: tuple[int, ...],
    stride: tuple[int, int],
    padding: tuple[int, ...],
) -> np.ndarray:
    """The struct Pool of pooling.cu."""
    sides = (image.shape[2:], pooled.shape[2:], size, stride, padding[:2])
    return launch.struct(*sides, of=np.int32)


def _over(target: Array, name: str, kind: str, *arguments: Any) -> None:
    """Launch a kernel over the planes of its output."""
    planes, pixels = math.prod(target.shape[:2]), math.prod(target.shape[2:])
    launch.planes(planes, pixels, "pooling", name, kind, *arguments)


@backend.kernel(strided=False)
def max_pool(
    out: Array,
    x: Array,
    size: tuple[int, ...],
    stride: tuple[int, int],
    padding: tuple[int, ...],
    ceil: bool,
) -> None:
    _over(out, "max_pool", x.dtype.char, out, x, _pool(x, out, size, stride, padding))


def _indices(out: Spec, g: Spec, x: Spec, **_: Any) -> list[Spec]:
    return [Spec(g.shape, "int32")]


@backend.kernel(strided=False, scratch=_indices)
def max_pool_gradient(
    out: Array,
    g: Array,
    x: Array,
    size: tuple[int, ...],
    stride: tuple[int, int],
    padding: tuple[int, ...],
    ceil: bool,
    scratch: Sequence[Array],
) -> None:
    kind, pool = x.dtype.char, _pool(x, g, size, stride, padding)
    (indices,) = scratch
    _over(g, "max_pool_indices", kind, indices, x, pool)
    _over(out, "max_pool_gradient", kind, out, g, indices, pool)


@backend.kernel(strided=False)
def average_pool(
    out: Array,
    x: Array,
    size: tuple[int, ...],
    stride: tuple[int, int],
    padding: tuple[int, ...],
    ceil: bool,
) -> None:
    _over(out, "average_pool", x.dtype.char, out, x, _pool(x, out, size, stride, padding))


@backend.kernel(strided=False)
def average_pool_gradient(
    out: Array,
    g: Array,
    image: tuple[int, int],
    size: tuple[int, ...],
    stride: tuple[int, int],
    padding: tuple[int, ...],
    ceil: bool,
) -> None:
    pool = _pool(out, g, size, stride, padding)
    _over(out, "average_pool_gradient", g.dtype.char, out, g, pool)


@backend.kernel(strided=False)
def subsample(out: Array, x: Array, w: Array, b: Array, stride: tuple[int, int]) -> None:
    _over(out, "subsample", x.dtype.char, out, x, w, b, _pool(x, out, w.shape, stride, (0, 0)))
