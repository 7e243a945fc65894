"""Matrix products by NumPy's BLAS, and the same elements in other places."""

from typing import Any

import numpy as np

from pareo.backends import blas
from pareo.backends.vectorized.table import Array, backend
from pareo.device import current


@backend.kernel()
def dot(out: Array, a: Array, b: Array) -> None:
    blas.threads(current().threads)
    np.matmul(a, b, out=out)


@backend.kernel()
def transpose(out: Array, a: Array, axes: Any) -> None:
    np.copyto(out, a.transpose(axes))


@backend.kernel(in_place=True)
def reshape(out: Array, a: Array, shape: Any) -> None:
    np.copyto(out.reshape(a.shape), a)  # out is contiguous: reshaping it copies nothing


@backend.kernel(in_place=True)
def add_bias(out: Array, a: Array, b: Array) -> None:
    np.add(a, b.reshape(-1, *(1,) * (a.ndim - 2)), out=out)


@backend.kernel()
def concat(out: Array, *arrays: Array, axis: int) -> None:
    np.concatenate(arrays, axis=axis, out=out)


@backend.kernel()
def part(out: Array, a: Array, axis: int, between: Any) -> None:
    np.copyto(out, a[(slice(None),) * axis + (slice(*between),)])


@backend.kernel()
def part_gradient(out: Array, g: Array, axis: int, between: Any, size: int) -> None:
    before, after = slice(0, between[0]), slice(between[1], size)
    lead = (slice(None),) * axis
    out[(*lead, before)] = 0
    out[(*lead, after)] = 0
    out[(*lead, slice(*between))] = g
