"""Matrix products by NumPy's BLAS, and the same elements in other places."""

from math import prod
from typing import Any

import numpy as np

from pareo.backends import blas
from pareo.backends.vectorized.table import Array, backend
from pareo.device import current
from pareo.operators.linear import check_index
from pareo.spec import Spec


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


@backend.kernel()
def pad(out: Array, a: Array, widths: Any, value: float) -> None:
    inside: tuple[slice, ...] = ()
    for (before, _), size in zip(widths, a.shape, strict=True):
        out[(*inside, slice(0, before))] = value
        out[(*inside, slice(before + size, None))] = value
        inside = (*inside, slice(before, before + size))
    out[inside] = a


@backend.kernel()
def split(out: Any, a: Array, sizes: Any, axis: int) -> None:
    start = 0
    for part, size in zip(out if isinstance(out, tuple) else (out,), sizes, strict=True):
        np.copyto(part, a[(slice(None),) * axis + (slice(start, start + size),)])
        start += size


@backend.kernel(strided=False, scratch=lambda out, a, index: [Spec(index.shape, np.intp)])
def take(out: Array, a: Array, index: Array, scratch: tuple[Array]) -> None:
    check_index("take", index, len(a))
    np.copyto(scratch[0], index, casting="unsafe")
    np.take(a, scratch[0], axis=0, out=out, mode="clip")


def _row_sums(out: Spec, g: Spec, index: Spec, size: int) -> list[Spec]:
    return [] if out.dtype == np.float64 else [Spec(out.shape, np.float64)]


@backend.kernel(strided=False, scratch=_row_sums)
def take_gradient(
    out: Array, g: Array, index: Array, size: int, scratch: tuple[Array, ...]
) -> None:
    check_index("take_gradient", index, size)
    total = scratch[0] if scratch else out  # of one word there may be thousands of rows
    total[...] = 0
    width = prod(out.shape[1:])
    rows, sums = g.reshape(index.size, width), total.reshape(size, width)
    for place, row in zip(index.reshape(-1).tolist(), rows, strict=True):
        np.add(sums[place], row, out=sums[place])
    if scratch:
        np.copyto(out, total, casting="same_kind")
