"""Reductions along axes."""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.kernels import strides
from pareo.backends.cuda.runtime import launch
from pareo.backends.cuda.table import backend
from pareo.spec import Spec

BLOCKS = 1024  # enough to keep any GPU of today busy
LEAST = 4096  # elements that are worth a block of their own
LONG = 128  # contiguous elements that a block reads efficiently


class Folding(NamedTuple):
    """How one reduction of a contiguous array is split among blocks."""

    form: str  # of the kernel: rows, nested or columns, see reduction.cu
    results: int
    length: int  # elements that fold into one result
    stretches: int  # parts of them, each folded by its own block first
    threads: tuple[int, ...]
    folds: np.ndarray  # the struct Folds

    @property
    def grid(self) -> tuple[int, int]:
        return (-(-self.results // 32) if self.form == "columns" else self.results, self.stretches)


@lru_cache(4096)
def folding(shape: tuple[int, ...], axes: tuple[int, ...]) -> Folding:
    """How an array of this shape is reduced along these axes."""
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    results, length = (math.prod(shape[axis] for axis in which) for which in (kept, axes))
    walks = [
        strides.walk([shape[axis] for axis in which], [[steps[axis] for axis in which]])
        for which in (kept, axes)
    ]
    wide = [axis for axis in range(len(shape)) if shape[axis] != 1]
    run = walks[1][walks[1][0]]  # along the innermost folded axis
    threads: tuple[int, ...] = (32, 8)
    if wide and wide[-1] not in axes:
        form, units, blocks = "columns", length // 256, -(-results // 32)
    elif walks[1][0] > 1 and run >= LONG:
        form, units, blocks = "nested", length // run, results
        threads = (launch.threads_for(run // 4, 256),)
    else:
        form, units, blocks = "rows", length // LEAST, results
        threads = (launch.threads_for(length // 4, 256),)
    stretches = max(1, min(-(-BLOCKS // max(blocks, 1)), units))
    return Folding(form, results, length, stretches, threads, launch.struct(*walks))


def _partial(out: Spec, a: Spec, axis: tuple[int, ...], **_: Any) -> list[Spec]:
    shared = folding(a.shape, tuple(axis))
    return [out.like((shared.results * shared.stretches if shared.stretches > 1 else 0,))]


def fold(
    name: str, out: Array, a: Array, axes: Sequence[int], partial: Array, divisor: int = 1
) -> None:
    """Reduce a contiguous array; `partial` is the work array for results of the stretches."""
    if out.size == 0:
        return
    shared = folding(a.shape, tuple(axes))
    if shared.length == 0:
        out.fill(0)
        return
    if shared.stretches == 1:
        _launch(name, out, a, shared, divisor)
        return
    _launch(name, partial, a, shared, 1)
    rows = folding((shared.results, shared.stretches), (1,))._replace(stretches=1)
    _launch(name, out, partial, rows, divisor)


def _launch(name: str, out: Array, a: Array, shared: Folding, divisor: int) -> None:
    kernel = launch.kernel("reduction", f"{name}_{shared.form}", a.dtype.char)
    arguments = (out, a, shared.results, shared.length, divisor, shared.folds)
    kernel(shared.grid, shared.threads, arguments)


@backend.kernel(strided=False, scratch=_partial)
def sum_(
    out: Array, a: Array, axis: tuple[int, ...], keepdims: bool, scratch: Sequence[Array]
) -> None:
    fold("sum", out, a, axis, scratch[0])


@backend.kernel(strided=False, scratch=_partial)
def mean(
    out: Array, a: Array, axis: tuple[int, ...], keepdims: bool, scratch: Sequence[Array]
) -> None:
    fold("sum", out, a, axis, scratch[0], a.size // max(out.size, 1))


@backend.kernel(strided=False, scratch=_partial)
def max_(
    out: Array, a: Array, axis: tuple[int, ...], keepdims: bool, scratch: Sequence[Array]
) -> None:
    fold("largest", out, a, axis, scratch[0])


@backend.kernel(strided=False)
def argmax(out: Array, a: Array, axis: int | None) -> None:
    shared = folding(a.shape, tuple(range(a.ndim)) if axis is None else (axis,))
    threads = launch.threads_for(shared.length)
    arguments = (out, a, shared.length, shared.folds)
    launch.blocks(shared.results, threads, "reduction", "argmax", a.dtype.char, *arguments)


@backend.kernel(strided=False)
def max_gradient(out: Array, g: Array, a: Array, y: Array, axis: tuple[int, ...]) -> None:
    shared = folding(a.shape, tuple(axis))
    threads = launch.threads_for(shared.length)
    arguments = (out, g, a, y, shared.length, shared.folds)
    launch.blocks(shared.results, threads, "reduction", "max_gradient", a.dtype.char, *arguments)


MOST_ARRAYS, STRETCH = 64, 8192  # as in norm.cu


def _blocks(size: int) -> int:
    return -(-size // STRETCH)


@backend.kernel(
    strided=False,
    scratch=lambda out, *arrays: [Spec((sum(_blocks(a.size) for a in arrays),), "float64")],
)
def norm(out: Array, *arrays: Array, scratch: Sequence[Array]) -> None:
    (sums,) = scratch
    kind, done = out.dtype.char, 0
    filled = [array for array in arrays if array.size]
    for start in range(0, len(filled), MOST_ARRAYS):
        some = filled[start : start + MOST_ARRAYS]
        firsts = [0, *accumulate(_blocks(array.size) for array in some)]
        rest = [0] * (MOST_ARRAYS - len(some))
        several = launch.struct(
            len(some), [array.data.ptr for array in some], rest,
            [array.size for array in some], rest, firsts, rest,
        )  # fmt: skip
        arguments = (sums[done:], several)
        launch.blocks(firsts[-1], launch.THREADS, "norm", "squares", kind, *arguments)
        done += firsts[-1]
    threads = launch.threads_for(done)
    launch.blocks(1, threads, "norm", "root", kind, out, sums, done)
