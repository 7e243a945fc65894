"""Many training steps of a program of matrices as one call of machine code."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pareo.array import Array
from pareo.backends import blas
from pareo.backends.compiled.backend import backend
from pareo.backends.compiled.loops.matrices import packed_products
from pareo.backends.compiled.loops.matrices.interpreter import run
from pareo.backends.compiled.loops.matrices.rows import Table, Unsupported
from pareo.backends.compiled.loops.matrices.table import Compiled, data_of, table
from pareo.backends.compiled.runtime import registers
from pareo.backends.compiled.runtime.subnormals import flushed
from pareo.backends.threads import run_concurrently
from pareo.program.compiler import prepared_with
from pareo.program.executable import Executable
from pareo.program.ir import Program
from pareo.program.plan import Plan, plan
from pareo.program.update import Updates

# Of a step for each worker. Workers read what others have written: weights and rows of a batch, at
# about 9 GB/s between two cores of a Xeon. With AVX-512, computing less takes no longer than that.
MIN_FLOPS = 4_000_000 if registers.HAS_AVX512 else 400_000
MIN_WEIGHTS = 1 << 17  # that take as long to read and write as another worker takes to join


class MatrixSteps:
    """Steps of one compiled program, each on the batch given by the next row of an order."""

    def __init__(self, executable: Executable, made: Table, workers: int, product: int) -> None:
        self._executable, self._workers, self._product = executable, workers, product
        self._words, self._numbers = made.words, made.numbers
        program = executable.program
        images, labels = (program.specs[n] for n in data_of(program))
        self._batch = np.empty(images.shape, np.float32)
        self._labels = np.empty(labels.shape, np.int64)
        numbers = [*program.specs, *made.scratch, *made.partial]
        self._at = np.zeros(1 + max(numbers), np.int64)
        self._partial = {n: np.empty(floats, np.float32) for n, floats in made.partial.items()}
        for number, parts in self._partial.items():
            self._at[number] = parts.ctypes.data
        for number in program.specs:
            own = executable.array(number)
            self._at[number] = 0 if own is None else own.ctypes.data
        for number, position in made.scratch.items():
            self._at[number] = executable.scratch(position)[0].ctypes.data
        self._panels = {
            number: packed_products.empty(*shape) for number, shape in made.in_panels.items()
        }
        batch = images.shape[0]
        floats = [packed_products.work_floats(*shape, batch) for shape in made.in_panels.values()]
        self._work = np.empty((workers, max(floats, default=0)), np.float32)

    @flushed
    def __call__(
        self,
        parameters: Mapping[str, Array],
        slots: Mapping[str, Array],
        images: Array,
        labels: Array,
        order: Array,
        numbers: Array,
        seeds: Array,
    ) -> Array:
        """Update parameters and slots in place; return the losses.

        The caller has checked all arguments (see `training.arguments`).
        """
        program, at = self._executable.program, self._at.copy()
        given = [*parameters.values(), *slots.values()]
        for number, array in zip(program.inputs, given, strict=False):
            at[number] = array.ctypes.data
        panels = np.zeros((len(self._panels), 4), np.int64)
        for row, (number, packed) in zip(panels, self._panels.items(), strict=True):
            row[:] = at[number], packed.ctypes.data, *program.specs[number].shape
            at[number] = packed.ctypes.data
        at[program.inputs[len(given)]] = self._batch.ctypes.data
        for number, argument in self._executable.over.items():
            at[number] = at[argument]
        images, labels = (backend.as_operand("a batch", array) for array in (images, labels))
        rates = np.ascontiguousarray(numbers, np.float32)
        first_rate = program.inputs[len(given) + 2] if rates.shape[1] else 0
        losses, shares = np.zeros(len(order)), np.zeros((2, self._workers))
        counter = np.zeros(1, np.int64)
        with self._executable.claimed():
            blas.threads(1)
            run_concurrently(
                self._workers,
                lambda worker: run(
                    worker, self._workers, counter, self._words, at.copy(), self._numbers,
                    self._product, order, images.reshape(len(images), -1), labels,
                    self._batch.ctypes.data, self._labels, rates, first_rate, losses, shares,
                    panels, self._work[worker].ctypes.data,
                ),
            )  # fmt: skip
        return losses

    @property
    def kept_bytes(self) -> int:
        """The weights in panels, memory for work with them, and parts; the batch is an argument."""
        others = (*self._panels.values(), *self._partial.values())
        return self._work.nbytes + sum(array.nbytes for array in others)


def has_table(program: Program, updates: Updates) -> bool:
    """Whether there is a `runner` for a step, as it was traced; nothing is allocated."""
    given = set(program.inputs)
    if any(spec.ndim > 2 and n not in given for n, spec in program.specs.items()):
        return False
    ready, over = prepared_with(program, updates, backend)
    return _table(_Planned(ready, plan(ready, backend, over), over), updates, 1) is not None


@dataclass(frozen=True)
class _Planned:
    """A program that has no memory yet."""

    program: Program
    plan: Plan
    over: Mapping[int, int]


def runner(executable: Executable) -> MatrixSteps | None:
    """Steps of a program in machine code; None if it has anything but matrices."""
    product = blas.address(np.float32)
    flops = executable.program.flops
    program, updated = executable.program, set(executable.updates.values())
    weights = sum(program.specs[program.inputs[position]].size for position in updated)
    useful = max(flops // MIN_FLOPS, weights // MIN_WEIGHTS)
    workers = max(1, min(executable.device.threads, useful))
    made = _table(executable, executable.updates, workers)
    return MatrixSteps(executable, made, workers, product) if made and product else None


def _table(compiled: Compiled, updates: Updates, workers: int) -> Table | None:
    """The table of a step; None if it has anything but matrices, or cannot update in place."""
    program = compiled.program
    numbers = list(program.inputs)
    if blas.address(np.float32) is None or numbers != [*range(numbers[0], numbers[-1] + 1)]:
        return None
    for result, given in updates.items():
        new, old = program.outputs[result], program.inputs[given]
        if new not in compiled.over and new != old:
            return None
    try:
        return table(compiled, workers)
    except Unsupported:
        return None
