"""What launches the kernels: an instruction of a program, or a loop of training steps."""

from collections.abc import Sequence
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.grid.loop import LoopSource
from pareo.backends.cuda.grid.source import Source
from pareo.backends.cuda.runtime import memory
from pareo.backends.cuda.runtime import source as files
from pareo.backends.cuda.runtime.cupy_module import cupy
from pareo.backends.cuda.runtime.launch import struct
from pareo.program.kernel import Fusion, Kernel
from pareo.spec import Spec

UNALIGNED = "#define UNALIGNED\n"  # for pointers that are not multiples of 16 bytes
MOST_STEPS = 4096  # in one launch, so that Ctrl-C is noticed


class Launch:
    """The launch of a kernel, and the word at which its blocks meet."""

    def __init__(self, source: Source) -> None:
        self.source, self._text = source, ""
        self._word: Any = None

    def __call__(self, out: Any, *operands: Array, scratch: Sequence[Array]) -> None:
        results = out if isinstance(out, tuple) else (out,)
        self.launch((*operands, *results, *scratch))

    def launch(self, arrays: Sequence[Array], *numbers: Any) -> None:
        """Launch it with these arrays as pointers."""
        machine = self.source.machine
        if self._word is None:
            self._text, self._word = self.source.text, cupy.zeros(1, "uint32")
        places = [array.data.ptr for array in (self._word, *arrays)]
        shared = self.source.shared_bytes
        text = self._text if all(place % 16 == 0 for place in places) else UNALIGNED + self._text
        kernel = _compiled(text, not machine.cluster, shared)
        pointers = struct(*places)
        kernel((machine.blocks,), (machine.threads,), (pointers, *numbers), shared_mem=shared)


class Loop:
    """Many training steps, of which a launch computes thousands."""

    def __init__(self, source: LoopSource) -> None:
        self._source, self._launch = source, Launch(source)
        self._position = {n: place for place, n in enumerate(source.plan.program.inputs)}

    @cached_property
    def _constants(self) -> dict[int, Array]:
        constants = self._source.plan.program.constants
        wanted = (n for n in self._source.arguments if n not in self._position)
        return {n: memory.to_device(constants[n]) for n in wanted}

    @cached_property
    def _between(self) -> Array:
        return memory.empty((self._source.floats_between,), np.float32)

    @property
    def nbytes(self) -> int:
        """The bytes between the tasks, the batches among them, once it has run."""
        return int(self._between.nbytes) if "_between" in self.__dict__ else 0

    def __call__(
        self, moved: Sequence[Array], images: Array, labels: Array, order: Array, numbers: Array,
        losses: Array,
    ) -> None:  # fmt: skip
        """Update parameters and slots in place; all arrays are on the GPU."""
        given = [
            moved[self._position[n]] if n in self._position else self._constants[n]
            for n in self._source.arguments
        ]
        for start in range(0, len(order), MOST_STEPS):
            rows = [array[start : start + MOST_STEPS] for array in (order, numbers, losses)]
            arrays = *given, images, labels, *rows, self._between
            self._launch.launch(arrays, np.int32(len(rows[0])))


def together(source: Source) -> Fusion:
    """The instruction: its operands are the source's arguments, its results those of the plan."""
    between = Spec((source.floats_between,))
    kernel = Kernel(Launch(source), strided=False, scratch=partial(_scratch, between))
    return Fusion("together", "", (), (), kernel)


def _scratch(between: Spec, *_: object, **__: object) -> list[Spec]:
    return [between]


@cache
def _compiled(text: str, cooperative: bool, shared: int) -> Any:
    return files.module(text, cooperative=cooperative).function("together", shared)
