"""Loops that move values of a group of images, or sum them along an axis."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.np.arrayobj import populate_array

from pareo.array import Array
from pareo.backends.compiled.kernels import gradient_sums
from pareo.backends.compiled.runtime.jit import jit, llvm_intrinsic


def _array(sizes: list[Any], number: Any = types.float32) -> Any:
    """The type of an array of numbers, and a generator of one at an address.

    Numba does not count references to it, and compiles it faster than a view of another array.
    """
    kind, each = types.Array(number, len(sizes), "C"), number.bitwidth // 8

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(kind)(context, builder)
        whole = ir.IntType(64)
        shape = arguments[1:]
        strides = [whole(each)]
        for size in shape[:0:-1]:
            strides.insert(0, builder.mul(strides[0], size))
        data = builder.inttoptr(arguments[0], context.get_data_type(number).as_pointer())
        populate_array(array, data, shape, strides, whole(each), None)
        return array._getvalue()

    return kind(types.int64, *[types.int64] * len(sizes)), generate


@llvm_intrinsic
def flat(typingctx, address, size):  # type: ignore[no-untyped-def]
    """The floats at an address."""
    return _array([size])


@llvm_intrinsic
def matrix(typingctx, address, rows, columns):  # type: ignore[no-untyped-def]
    """The floats at an address, as a matrix."""
    return _array([rows, columns])


@llvm_intrinsic
def block(typingctx, address, planes, rows, columns):  # type: ignore[no-untyped-def]
    """The floats at an address, as an array of three axes."""
    return _array([planes, rows, columns])


@llvm_intrinsic
def doubles(typingctx, address, rows, columns):  # type: ignore[no-untyped-def]
    """The numbers of double precision at an address, as a matrix."""
    return _array([rows, columns], types.float64)


@jit
def gather(out: Array, images: Array, chosen: Array, first: int, last: int) -> None:
    """out[i, n] = element i of image `chosen[first + n]`; beyond the last one, that of the last."""
    for n in range(out.shape[1]):
        row = images[chosen[min(first + n, last - 1)]]
        for i in range(out.shape[0]):
            out[i, n] = row[i]


@jit
def to_rows(out: Array, a: Array) -> None:
    """out = a transposed."""
    for n in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[n, j] = a[j, n]


@jit
def from_rows(out: Array, a: Array, count: int) -> None:
    """out = a transposed for the first `count` images, and 0 for the others."""
    for n in range(count):
        for j in range(out.shape[0]):
            out[j, n] = a[n, j]
    for n in range(count, out.shape[1]):
        for j in range(out.shape[0]):
            out[j, n] = 0


@jit
def sum_middle(out: Array, a: Array, share: float) -> None:
    """out (before, after) = share times the sum of a (before, along, after)."""
    if a.shape[2] == 1:  # a single image
        for i in range(a.shape[0]):
            total = a.dtype.type(0)
            for j in range(a.shape[1]):
                total += a[i, j, 0]
            out[i, 0] = total * share
        return
    for i in range(a.shape[0]):
        for k in range(a.shape[2]):
            out[i, k] = 0
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                out[i, k] += a[i, j, k]
        for k in range(a.shape[2]):
            out[i, k] *= share


@jit
def repeat(out: Array, a: Array) -> None:
    """out (before, along, after) = a (before, after)."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for k in range(out.shape[2]):
                out[i, j, k] = a[i, k]


@jit
def spread(out: Array, numbers: Array) -> None:
    """Each row of out = one number."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = numbers[i]


@jit
def divide_windows(out: Array, g: Array, rows: Array, columns: Array, size: int) -> None:
    """out (planes, places, images) = g times `size` over the number of pixels of its window.

    A window has the pixels of its row times those of its column.
    """
    for plane in range(g.shape[0]):
        for i in range(rows.size):
            for j in range(columns.size):
                place = i * columns.size + j
                share = np.float32(size / (rows[i] * columns[j]))
                for n in range(g.shape[2]):
                    out[plane, place, n] = g[plane, place, n] * share


@jit
def put(out: Array, at: Array, a: Array) -> None:
    """out[:, at : at + a's columns] = a; `at` is in an array."""
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, at[0] + j] = a[i, j]


@jit
def get(out: Array, a: Array, at: Array) -> None:
    """out = a[:, at : at + out's columns]; `at` is in an array."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = a[i, at[0] + j]


@jit
def update(
    parameters: Array, velocities: Array, sizes: Array, sums: Array, worker: int, share: float,
    rate: float, momentum: float, decay: float,
) -> None:  # fmt: skip
    """Update a worker's share of all parameters by the sums of all workers' gradients.

    `parameters` and `velocities` are addresses; without momentum, there are no velocities. The sums
    (workers, elements) are added in the order of workers, and set to 0.
    """
    workers, count = sums.shape
    low, high = count * worker // workers, count * (worker + 1) // workers
    for other in range(1, workers):
        for i in range(low, high):
            sums[0, i] += sums[other, i]
    start = 0
    for k in range(sizes.size):
        first, last = max(low, start), min(high, start + sizes[k])
        if first < last:
            parameter = flat(parameters[k] + 4 * (first - start), last - first)
            total = sums[0, first:last]
            if velocities.size:
                velocity = flat(velocities[k] + 4 * (first - start), last - first)
            else:
                velocity = flat(parameters[k], 0)
            gradient_sums.update(parameter, velocity, total, share, rate, momentum, decay)
            for other in range(workers):
                gradient_sums.clear(sums[other, first:last])
        start += sizes[k]
