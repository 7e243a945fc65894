"""A lowered program while it is written.

Each value of the old program may appear in two forms in the new one: plain, as it was, or working:
images as (N, H, W, C), and everything in bfloat16 where that is the precision. A value changes its
form where someone needs it in the other.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.backends.cuda.nhwc.conv.cudnn import Convolution
from pareo.backends.cuda.nhwc.instructions import INSTRUCTIONS
from pareo.program.ir import Instruction, Program, readers
from pareo.spec import Spec

Possible = Callable[[Convolution], bool]


class Lowering:
    """The new program while it is written."""

    def __init__(
        self, program: Program, precision: str, possible: Possible, turning: Possible
    ) -> None:
        self.old = program
        self.precision = precision
        self.possible = possible
        self.turning = turning
        self.reading = readers(program)
        self.maker = {n: i for i in program.instructions for n in i.outputs}
        self.specs = dict(program.specs)
        self.instructions: list[Instruction] = []
        self.plain = {n: n for n in (*program.inputs, *program.constants)}
        self.working: dict[int, int] = {}
        self.places: dict[Any, tuple[int, bool]] = {}
        self.blocks: dict[Any, int] = {}
        self.addends: dict[int, tuple[int, ...]] = {}
        self.beside: dict[int, tuple[int, ...]] = {}
        self.updates: list[Any] = []
        self.numbers: tuple[int, ...] = ()  # rate, momentum and decay of these updates
        self.products: dict[int, tuple[int, int, int]] = {}
        self.handled: set[int] = set()
        if precision == "bfloat16":
            import ml_dtypes

            self.dtype = np.dtype(ml_dtypes.bfloat16)
        else:
            self.dtype = np.dtype(np.float32)

    # Writing

    def keep(self, instruction: Instruction) -> None:
        """An instruction as it was, on plain values."""
        inputs = tuple(self.as_plain(number) for number in instruction.inputs)
        self.instructions.append(
            Instruction(
                instruction.operator, inputs, instruction.outputs, instruction.attributes,
                instruction.flops, instruction.bytes,
            )
        )  # fmt: skip
        self.plain |= {n: n for n in instruction.outputs}

    def add(
        self, name: str, inputs: tuple[int, ...], *specs: Spec, flops: int = 0, **attributes: Any
    ) -> tuple[int, ...]:
        """A new instruction; the numbers of its results."""
        outputs = tuple(next_number(self.specs) + i for i in range(len(specs)))
        self.specs |= dict(zip(outputs, specs, strict=True))
        moved = sum(self.specs[n].nbytes for n in (*inputs, *outputs))
        self.instructions.append(
            Instruction(INSTRUCTIONS[name], inputs, outputs, attributes, flops, moved)
        )
        return outputs

    def spec(self, number: int) -> Spec:
        """The spec of an old value in its working form."""
        shape = self.old.specs[number].shape
        if len(shape) == 4:
            shape = (shape[0], shape[2], shape[3], shape[1])
        return Spec(shape, self.dtype)

    def fresh(self, name: str, inputs: tuple[int, ...], result: int, **more: Any) -> bool:
        """A new instruction that gives an old value in its working form."""
        (self.working[result],) = self.add(name, inputs, self.spec(result), **more)
        return True

    # Forms

    def as_working(self, number: int) -> int:
        """A value in its working form."""
        if number not in self.working:
            plain, spec = self.plain[number], self.spec(number)
            if spec.ndim == 4 and self.old.specs[number].shape[2:] != (1, 1):
                self.fresh("channels_last", (plain,), number)
            elif spec == self.old.specs[number]:
                self.working[number] = plain
            elif spec.dtype != self.old.specs[number].dtype:
                self.fresh("cast", (plain,), number)
            else:
                self.working[number] = self.reshaped(plain, spec)
        return self.working[number]

    def as_plain(self, number: int) -> int:
        """A value as it was in the old program."""
        if number not in self.plain:
            working, spec = self.working[number], self.old.specs[number]
            if spec.ndim == 4 and spec.shape[2:] != (1, 1):
                (self.plain[number],) = self.add("channels_first", (self.solid(working),), spec)
            elif spec == self.specs[working]:
                self.plain[number] = working
            elif spec.dtype != self.specs[working].dtype:
                (self.plain[number],) = self.add("cast", (self.solid(working),), spec)
            else:
                self.plain[number] = self.reshaped(working, spec)
        return self.plain[number]

    def solid(self, number: int) -> int:
        """A value whose elements lie side by side."""
        made = next((i for i in reversed(self.instructions) if number in i.outputs), None)
        if made is not None and made.name == "part":
            return self.add("joined", (number,), self.specs[number])[0]
        return number

    def whole(self, number: int) -> int:
        """A value in its working form, its elements side by side."""
        self.working[number] = self.solid(self.as_working(number))
        return self.working[number]

    def reshaped(self, number: int, spec: Spec) -> int:
        """A new number for the same elements in another shape."""
        fresh = next_number(self.specs)
        self.specs[fresh] = spec
        self.instructions.append(
            Instruction(op.reshape, (number,), (fresh,), {"shape": spec.shape}, 0, 0)
        )
        return fresh

    # What the rules ask

    def only_reader(self, number: int) -> Instruction | None:
        """The instruction that alone reads a value, which is no result."""
        positions = self.reading[number]
        if len(positions) != 1 or number in self.old.outputs:
            return None
        return self.old.instructions[positions[0]]

    def reader(self, number: int, name: str, **attributes: Any) -> Instruction | None:
        """An instruction of a name among the readers of a value."""
        for position in self.reading[number]:
            found = self.old.instructions[position]
            if found.name == name and attributes.items() <= dict(found.attributes).items():
                return found
        return None

    def take(self, *instructions: Instruction | None) -> None:
        """Mark instructions as done by what was written for another one."""
        for taken in instructions:
            if taken is not None:
                self.handled.add(self.old.instructions.index(taken))

    def is_image(self, number: int) -> bool:
        """Whether a value is there in its working form, as images."""
        return number in self.working and self.old.specs[number].ndim == 4


def next_number(specs: Mapping[int, Spec]) -> int:
    """The first free number."""
    return max(specs, default=-1) + 1
