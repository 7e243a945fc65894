"""The instruction that computes a forward and backward pass by all blocks together."""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from pareo.array import Array
from pareo.backends.cuda.grid.source import Source
from pareo.backends.cuda.runtime import source as files
from pareo.backends.cuda.runtime.cupy_module import cupy
from pareo.backends.cuda.runtime.launch import struct
from pareo.program.kernel import Fusion, Kernel
from pareo.spec import Spec


class _Launch:
    """The launch of a kernel, and the word at which its blocks meet."""

    def __init__(self, source: Source) -> None:
        self.text, self.machine = source.text, source.machine
        self._word: Any = None

    def __call__(self, out: Any, *operands: Array, scratch: Sequence[Array]) -> None:
        results = out if isinstance(out, tuple) else (out,)
        if self._word is None:
            self._word = cupy.zeros(1, "uint32")
        arrays = (self._word, *operands, *results, *scratch)
        pointers = struct(*(array.data.ptr for array in arrays))
        kernel = _compiled(self.text, not self.machine.cluster)
        kernel((self.machine.blocks,), (self.machine.threads,), (pointers,))


def together(source: Source) -> Fusion:
    """The instruction: its operands are the source's arguments, its results those of the plan."""
    between = Spec((source.floats_between,))
    kernel = Kernel(_Launch(source), strided=False, scratch=partial(_scratch, between))
    return Fusion("together", "", (), (), kernel)


def _scratch(between: Spec, *_: object, **__: object) -> list[Spec]:
    return [between]


@cache
def _compiled(text: str, cooperative: bool) -> Any:
    return files.module(text, cooperative=cooperative).function("together")
