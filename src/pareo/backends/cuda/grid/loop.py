"""Many training steps in one launch, which gathers batches and updates parameters."""

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from pareo.backends.cuda.grid.plan import Unsupported
from pareo.backends.cuda.grid.source import Source, Work, rounded
from pareo.backends.cuda.grid.tiles import LOAD
from pareo.backends.cuda.grid.updates import replaced

COPIES = 8  # words that a thread gathers at once


@dataclass
class LoopSource(Source):
    """The kernel of many steps, of a plan with its updates.

    Its pointers are the word of the barrier, `arguments`, the dataset's images and labels, the
    order, the numbers, the losses, and the memory between. There are two batches in that memory:
    while one is computed, the next one is gathered.
    """

    title, more = "Steps of training", ", const int steps"

    def __post_init__(self) -> None:
        super().__post_init__()
        program, plan = self.plan.program, self.plan
        self._replaced = replaced(plan)
        self.loss = plan.root(program.outputs[0])
        self.data = program.inputs[len(program.outputs) - 1 :][:2]
        self.numbers = program.inputs[len(program.outputs) + 1 :]
        scalars = all(plan.shape(n) == () for n in (self.loss, *self.numbers))
        if not scalars or any(plan.specs[n].dtype != np.float32 for n in self.numbers):
            raise Unsupported("a step with random numbers, or one of a population")
        if self.loss not in self._made:
            raise Unsupported("a loss that no task makes")
        for argument in self._replaced:
            super().read(argument)

    def read(self, number_: int) -> str:
        root = self.plan.root(number_)
        return f"p{root}" if root in (*self.data, *self.numbers) else super().read(number_)

    @property
    def _outside(self) -> set[int]:
        return {self.loss, *self._replaced.values()}

    @property
    def pointers(self) -> int:
        return 1 + len(self.arguments) + 6

    @cached_property
    def batches(self) -> dict[int, int]:
        """The words of a batch of images, and of their labels."""
        specs = self.plan.specs
        return {n: prod(specs[n].shape) * specs[n].dtype.itemsize // 4 for n in self.data}

    @property
    def _starts(self) -> dict[int, int]:
        """Where the batches start, behind everything else."""
        start, found = rounded(super().floats_between), {}
        for n, words in self.batches.items():
            found[n] = start
            start += 2 * rounded(words)
        return found

    @property
    def floats_between(self) -> int:
        return max(start + 2 * rounded(self.batches[n]) for n, start in self._starts.items())

    @property
    def names(self) -> dict[int, str]:
        first = 1 + len(self.arguments)
        names = {n: f"({self._type(n)})pointers[{i + 1}]" for i, n in enumerate(self.arguments)}
        for argument, result in self._replaced.items():
            names[result] = f"(float*)pointers[{self.arguments.index(argument) + 1}]"
        for place, n in enumerate(self.numbers):
            row = f"step * {len(self.numbers)} + {place}"
            names[n] = f"(const float*)pointers[{first + 3}] + {row}"
        names[self.loss] = f"(float*)pointers[{first + 4}] + step"
        for n in self.data:
            names[n] = f"({self._type(n)})({self._batch(n, 'step')})"
        return names | {n: self._at(start) for n, start in self.between.items()}

    def _batch(self, n: int, step: str) -> str:
        """The batch of a step."""
        return self._at(f"{self._starts[n]} + ({step} & 1) * {rounded(self.batches[n])}")

    def _gathering(self) -> list[Work]:
        """Copies of the next step's batch."""
        first, found = 1 + len(self.arguments), []
        for place, (n, words) in enumerate(self.batches.items()):
            rows = self.plan.shape(n)[0]
            sizes = f"{rows}, {words // rows}, {COPIES}"
            data = f"(const float*)pointers[{first + place}]"
            order = f"(const long long*)pointers[{first + 2}] + (step + 1ll) * {rows}"
            rows_ = self._batch(n, "(step + 1)")
            code = f"if (step + 1 < steps) gather<{sizes}>(tile, {rows_}, {data}, {order});"
            found.append(Work(code, -(-words // (COPIES * self.machine.threads)), 3 * LOAD))
        return found

    @property
    def _with_gathering(self) -> list[list[Work]]:
        """The levels; the one whose tasks take the longest gathers a batch, too."""
        longest = max(self.levels, key=self._duration)
        return [
            [*works, *self._gathering()] if works is longest else works for works in self.levels
        ]

    @property
    def cycles(self) -> float:
        return sum(map(self._duration, self._with_gathering))

    @property
    def body(self) -> str:
        lines = "\n".join(f"{self.shared(w)}\n    all.meet();" for w in self._with_gathering)
        return (
            f"    int step = -1;\n{self.shared(self._gathering())}\n    all.meet();\n"
            f"    for (step = 0; step < steps; step++) {{\n{lines}\n    }}"
        )
