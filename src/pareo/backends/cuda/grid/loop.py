"""Many training steps in one launch, which gathers batches and updates parameters."""

from dataclasses import dataclass
from functools import cached_property, partial
from math import prod

import numpy as np

from pareo.backends.cuda.grid.memory import rounded
from pareo.backends.cuda.grid.plan import Unsupported
from pareo.backends.cuda.grid.sharing import Level, Options, Work
from pareo.backends.cuda.grid.source import Source
from pareo.backends.cuda.grid.tiles import LOAD

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
        self.loss = plan.root(program.outputs[0])
        self.data = program.inputs[len(program.outputs) - 1 :][:2]
        self.numbers = program.inputs[len(program.outputs) + 1 :]
        scalars = all(plan.shape(n) == () for n in (self.loss, *self.numbers))
        if not scalars or any(plan.specs[n].dtype != np.float32 for n in self.numbers):
            raise Unsupported("a step with random numbers, or one of a population")
        if self.loss not in self._made:
            raise Unsupported("a loss that no task makes")
        for argument in self.plan.over:
            super().read(argument)

    def read(self, number_: int) -> str:
        root = self.plan.root(number_)
        return f"p{root}" if root in (*self.data, *self.numbers) else super().read(number_)

    @property
    def _outside(self) -> set[int]:
        return {self.loss, *self.plan.over.values()}

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
        names = {
            n: f"global<{self._type(n)}>(pointers[{i + 1}])" for i, n in enumerate(self.arguments)
        }
        for argument, result in self.plan.over.items():
            names[result] = f"global<float>(pointers[{self.arguments.index(argument) + 1}])"
        for place, n in enumerate(self.numbers):
            row = f"step * {len(self.numbers)} + {place}"
            names[n] = f"global<const float>(pointers[{first + 3}]) + {row}"
        names[self.loss] = f"global<float>(pointers[{first + 4}]) + step"
        for n in self.data:
            names[n] = f"({self._type(n)}*)({self._batch(n, 'step')})"
        return names | {n: self._at(start) for n, start in self.between.items()}

    def _batch(self, n: int, step: str) -> str:
        """The batch of a step."""
        return self._at(f"{self._starts[n]} + ({step} & 1) * {rounded(self.batches[n])}")

    @cached_property
    def _gathering(self) -> list[Options]:
        """Copies of the next step's batch."""
        first, found = 1 + len(self.arguments), list[Options]()
        for place, (n, words) in enumerate(self.batches.items()):
            code = partial(self._gather, n, first + place, first + 2)
            tiles = -(-words // (COPIES * self.machine.threads))
            found.append([Work(code, tiles, 300 + 2 * LOAD)])
        return found

    def _gather(self, n: int, data: int, order: int) -> str:
        rows = self.plan.shape(n)[0]
        sizes = f"{rows}, {self.batches[n] // rows}, {COPIES}"
        row = f"global<const long long>(pointers[{order}]) + (step + 1ll) * {rows}"
        copied = f"{self._batch(n, '(step + 1)')}, global<const float>(pointers[{data}]), {row}"
        return f"if (step + 1 < steps) gather<{sizes}>(tile, {copied});"

    @cached_property
    def levels(self) -> list[Level]:
        """One of the levels gathers the next batch, too: the one that this delays the least."""
        found = [self._shared(tasks) for tasks in self.tasks]
        both = [self._shared([*tasks, *self._gathering]) for tasks in self.tasks]
        delays = [more.cycles - one.cycles for one, more in zip(found, both, strict=True)]
        place = delays.index(min(delays))
        return [*found[:place], both[place], *found[place + 1 :]]

    @property
    def body(self) -> str:
        lines = "\n".join(f"{self.written(level)}\n    all.meet();" for level in self.levels)
        return (
            f"    int step = -1;\n{self.written(self._shared(self._gathering))}\n    all.meet();\n"
            f"    for (step = 0; step < steps; step++) {{\n{lines}\n    }}"
        )
