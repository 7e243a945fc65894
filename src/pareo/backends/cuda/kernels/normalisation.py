"""Local response normalisation and dropout."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.runtime import launch
from pareo.backends.cuda.table import backend
from pareo.operators.normalisation import dropout_threshold


def _lrn(x: Array, size: int, alpha: float, beta: float, k: float) -> np.ndarray:
    """The struct Lrn of lrn.cu."""
    integers = (x.shape[1], math.prod(x.shape[2:]), size)
    fields = np.zeros(1, [("integers", np.int64, 3), ("reals", np.float64, 3)])
    fields["integers"], fields["reals"] = integers, (alpha / size, beta, k)
    return fields


def _over(x: Array, name: str, *arguments: Any) -> None:
    planes, pixels = math.prod(x.shape[:2]), math.prod(x.shape[2:])
    launch.planes(planes, pixels, "lrn", name, x.dtype.char, *arguments)


@backend.kernel(strided=False)
def lrn(out: Array, x: Array, size: int, alpha: float, beta: float, k: float) -> None:
    _over(x, "lrn", out, x, _lrn(x, size, alpha, beta, k))


@backend.kernel(strided=False, scratch=lambda out, g, x, **_: [x])
def lrn_gradient(
    out: Array,
    g: Array,
    x: Array,
    size: int,
    alpha: float,
    beta: float,
    k: float,
    scratch: Sequence[Array],
) -> None:
    how = _lrn(x, size, alpha, beta, k)
    (pulls,) = scratch
    _over(x, "lrn_pulls", out, pulls, g, x, how)
    _over(x, "lrn_gradient", out, pulls, x, how)


@backend.kernel(in_place=True, strided=False)
def dropout(out: Array, x: Array, seed: Array, rate: float) -> None:
    factor = x.dtype.type(1 / (1 - rate))
    threshold = np.uint32(dropout_threshold(rate))
    arguments = (out, x, seed.astype(np.int64, copy=False), x.size, threshold, factor)
    launch.over(x.size, "dropout", "dropout", x.dtype.char, *arguments)
