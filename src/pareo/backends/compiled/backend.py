"""The table of the `compiled` device, which the modules of kernels fill."""

from collections.abc import Callable, Collection, Sequence

import numpy as np

from pareo.array import Array
from pareo.backends.base import Backend, StepRunner, TrainingLoop
from pareo.backends.compiled.runtime.subnormals import flushed
from pareo.backends.compiled.runtime.thread_pool import split_numbered
from pareo.program.executable import Executable
from pareo.program.ir import Program
from pareo.program.kernel import Call
from pareo.program.plan import Plan
from pareo.program.update import Updates

Sizes = tuple[int, ...]  # a shape, window, stride, padding or dilation


class _Compiled(Backend):
    """The backend whose kernels Numba compiles."""

    trains_members_separately = True

    def as_operand(self, name: str, array: Array) -> Array:
        """An operand; a read-only one as a view that is writable.

        Numba would compile every kernel again for read-only arrays, and no kernel writes operands.
        """
        array = super().as_operand(name, array)
        return array if array.flags.writeable else np.asarray(_Writable(array))

    def lower(self, program: Program) -> Program:
        """Let gradients of activations compute normalised values again (see `recompute`)."""
        from pareo.backends.compiled.recompute import recompute

        return recompute(program)

    @flushed
    def execute(self, calls: Sequence[Call], values: list[Array]) -> None:
        """Run the calls of a program one after the other."""
        for call in calls:
            call.run(values)

    def training_loop(self, program: Program, plan: Plan, threads: int) -> TrainingLoop | None:
        """A loop over batches for dense layers, over images for other very small networks."""
        from pareo.backends.compiled.loops import dense, network

        return dense.loop(program, threads) or network.loop(program, plan, threads)

    def general_loop(
        self, program: Program, threads: int, state: Collection[int] = (), batch: int | None = None
    ) -> tuple[TrainingLoop | None, str]:
        """A loop over groups of images, where that is estimated to be fastest."""
        from pareo.backends.compiled.loops.groups.loop import MANY, loop

        return loop(program, threads, state, batch or MANY)

    def step_runner(self, executable: Executable, seeds: int) -> StepRunner | None:
        """Steps in machine code: from a table for programs of matrices, recorded for others."""
        from pareo.backends.compiled.loops.matrices.runner import runner
        from pareo.backends.compiled.loops.replayed import ReplayedSteps

        return runner(executable) or ReplayedSteps(executable, seeds)

    def has_table(self, program: Program, updates: Updates) -> bool:
        """Whether all values are matrices, besides the images of a batch."""
        from pareo.backends.compiled.loops.matrices.runner import has_table

        return has_table(program, updates)

    def split(self, work: Callable[[int, int, int], object], count: int) -> None:
        split_numbered(work, count)


class _Writable:
    """The memory of a read-only array, kept alive, as if it were writable."""

    def __init__(self, array: Array) -> None:
        self.array = array
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


backend = _Compiled("compiled")

# Waking a worker takes about 30 microseconds, as long as this many cheap elements.
GRAIN = 1 << 16
