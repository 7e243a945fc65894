"""Axes folded into one value each."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from pareo.backends.cuda import launch, layout
from pareo.backends.cuda.table import backend
from pareo.spec import Spec

BLOCKS = 1024  # enough to keep any card of today busy
LEAST = 1024  # elements that are worth a block of their own


class Folding(NamedTuple):
    """How one reduction of a contiguous array is shared out."""

    results: int
    length: int  # elements that fold into one result
    stretches: int  # in which they are folded first
    inner: bool  # whether the innermost axis is folded
    kept: list[int]
    folded: list[int]

    @classmethod
    def of(cls, a: Any, axes: Sequence[int]) -> "Folding":
        steps = [math.prod(a.shape[axis + 1 :]) for axis in range(len(a.shape))]
        kept = [axis for axis in range(len(a.shape)) if axis not in axes]
        sizes = [[a.shape[axis] for axis in which] for which in (kept, axes)]
        results, length = (math.prod(size) for size in sizes)
        wide = [axis for axis in range(len(a.shape)) if a.shape[axis] != 1]
        inner = not wide or wide[-1] in axes
        blocks = results if inner else -(-results // 32)
        share = LEAST if inner else LEAST // 32
        stretches = max(1, min(-(-BLOCKS // max(blocks, 1)), length // share))
        walks = [
            layout.walk(size, [[steps[axis] for axis in which]])
            for size, which in zip(sizes, (kept, axes), strict=True)
        ]
        return cls(results, length, stretches, inner, *walks)

    @property
    def folds(self) -> Any:
        return launch.struct(self.kept, self.folded)


def _partial(out: Spec, a: Spec, axis: Any, **_: Any) -> list[Spec]:
    folding = Folding.of(a, axis)
    return [out.like((folding.results * folding.stretches if folding.stretches > 1 else 0,))]


def fold(name: str, out: Any, a: Any, axes: Sequence[int], partial: Any, divisor: int = 1) -> None:
    """Fold a contiguous array; `partial` is room for the stretches."""
    if out.size == 0:
        return
    folding = Folding.of(a, axes)
    if folding.length == 0:
        out.fill(0)
        return
    several = folding.stretches > 1
    target, share = (partial, 1) if several else (out, divisor)
    _launch(name, target, a, folding, share)
    if several:
        pairs = partial.reshape(folding.results, folding.stretches)
        rows = Folding.of(pairs, (1,))._replace(stretches=1)
        _launch(name, out, pairs, rows, divisor)


def _launch(name: str, target: Any, a: Any, folding: Folding, divisor: int) -> None:
    kind = a.dtype.char
    arguments = (target, a, folding.results, folding.length, divisor, folding.folds)
    if folding.inner:
        threads = launch.threads_for(-(-folding.length // folding.stretches), 256)
        grid: tuple[int, int] = (folding.results, folding.stretches)
        launch.kernel("reduction", f"{name}_rows", kind)(grid, (threads,), arguments)
    else:
        grid = (-(-folding.results // 32), folding.stretches)
        launch.kernel("reduction", f"{name}_columns", kind)(grid, (32, 8), arguments)


@backend.kernel(strided=False, scratch=_partial)
def sum_(out: Any, a: Any, axis: Any, keepdims: bool, scratch: Any) -> None:
    fold("sum", out, a, axis, scratch[0])


@backend.kernel(strided=False, scratch=_partial)
def mean(out: Any, a: Any, axis: Any, keepdims: bool, scratch: Any) -> None:
    fold("sum", out, a, axis, scratch[0], a.size // max(out.size, 1))


@backend.kernel(strided=False, scratch=_partial)
def max_(out: Any, a: Any, axis: Any, keepdims: bool, scratch: Any) -> None:
    fold("largest", out, a, axis, scratch[0])


@backend.kernel(strided=False)
def argmax(out: Any, a: Any, axis: int | None) -> None:
    folding = Folding.of(a, range(a.ndim) if axis is None else (axis,))
    threads = launch.threads_for(folding.length)
    arguments = (out, a, folding.length, folding.folds)
    launch.blocks(folding.results, threads, "reduction", "argmax", a.dtype.char, *arguments)


@backend.kernel(strided=False)
def max_gradient(out: Any, g: Any, a: Any, y: Any, axis: Any) -> None:
    folding = Folding.of(a, axis)
    threads = launch.threads_for(folding.length)
    arguments = (out, g, a, y, folding.length, folding.folds)
    launch.blocks(folding.results, threads, "reduction", "max_gradient", a.dtype.char, *arguments)
