"""The rows of a table: instructions of `interpreter`, and what each worker reads and writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.kernels.elementwise_codes import NONE
from pareo.backends.compiled.loops.matrices.interpreter import BY_ROWS, OPERANDS

NUMBERS = 4  # of an instruction: epsilon, a slope, two limits
ALL = "all"  # a worker may use any part of a value


class Unsupported(Exception):
    """A program has an instruction that tables do not have."""


@dataclass
class Row:
    """One instruction of a table.

    values: the operands' numbers, results first, where the interpreter expects them
    reads:  the values that it reads, each with the part that a worker reads
    writes: the same for those that it writes
    """

    opcode: int
    values: Sequence[int]
    sizes: tuple[int, int, int]
    reads: list[tuple[int, str]]
    writes: list[tuple[int, str]]
    split: int = BY_ROWS
    code: int = NONE
    numbers: tuple[float, ...] = ()
    transposed: tuple[bool, bool] = (False, False)
    rate: int = -1
    barrier: bool = False

    def words(self) -> list[int]:
        """The row of the table."""
        values = [*self.values, *[-1] * (OPERANDS - len(self.values))]
        return [
            self.opcode, self.barrier, self.split, self.code, 0, *self.sizes, *self.transposed,
            self.rate, *values,
        ]  # fmt: skip


@dataclass
class Table:
    """A table.

    scratch:   numbers that stand for work arrays, with the positions of their instructions
    in_panels: the weights that lie in panels while it runs, with their shapes
    partial:   numbers that stand for memory for the parts of workers, with its size in floats
    """

    rows: list[Row]
    scratch: Mapping[int, int] = field(default_factory=dict)
    in_panels: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    partial: Mapping[int, int] = field(default_factory=dict)

    @property
    def words(self) -> Array:
        """The rows as the interpreter reads them."""
        return np.array([row.words() for row in self.rows], np.int64)

    @property
    def numbers(self) -> Array:
        """Slopes, limits and epsilons, a row for each instruction."""
        found = np.zeros((len(self.rows), NUMBERS), np.float32)
        for target, row in zip(found, self.rows, strict=True):
            target[: len(row.numbers)] = row.numbers
        return found
