"""A lowered program while it is written.

Each value of the old program may have two forms in the new one: plain, as it was, and working:
images as (N, H, W, C), and everything in bfloat16 where that is the precision. A value is converted
where an instruction needs the other form.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import pareo.operators as op
from pareo.backends.cuda.nhwc.attention import Attention
from pareo.backends.cuda.nhwc.conv.problem import Convolution
from pareo.backends.cuda.nhwc.instructions import INSTRUCTIONS
from pareo.program.ir import Instruction, Program, readers
from pareo.spec import Spec

if TYPE_CHECKING:
    from pareo.backends.cuda.nhwc.rules.attention import Match
    from pareo.backends.cuda.nhwc.rules.averages import Average
    from pareo.backends.cuda.nhwc.rules.normalise import Activated, Normalised
    from pareo.backends.cuda.nhwc.rules.normalise_back import Masked
    from pareo.backends.cuda.nhwc.rules.normalise_pool import Pooled
    from pareo.backends.cuda.nhwc.rules.tokens import Biased
    from pareo.backends.cuda.nhwc.rules.update import Update

ConvolutionTest = Callable[[Convolution], bool]
AttentionTest = Callable[[Attention], bool]


class Lowering:
    """The new program while it is written."""

    def __init__(
        self,
        program: Program,
        precision: str,
        has_plan: ConvolutionTest,
        as_forward: ConvolutionTest,
        attends: AttentionTest = lambda _: True,
    ) -> None:
        self.program = program
        self.precision = precision
        self.has_plan = has_plan
        self.as_forward = as_forward
        self.attends = attends
        self.reader_positions = readers(program)
        self.producer = {n: i for i in program.instructions for n in i.outputs}
        self.specs = dict(program.specs)
        self.instructions: list[Instruction] = []
        self.plain = {n: n for n in (*program.inputs, *program.constants)}
        self.working: dict[int, int] = {}
        self.deferred: dict[int, Callable[[], object]] = {}  # how to add what is not added yet
        self.normalised: dict[int, Normalised] = {}
        self.activated: dict[int, Activated] = {}
        self.biased: dict[int, Biased] = {}
        self.partials: dict[int, int] = {}  # partial sums of a value over its rows
        self.attentions: dict[int, Match] = {}
        self.masked: dict[int, Masked] = {}
        self.to_pool: dict[int, Normalised] = {}  # relus that are left to a pooling
        self.pooled: dict[int, Pooled] = {}
        self.pooled_errors: dict[int, tuple[int, Pooled]] = {}
        self.pairs: dict[int, tuple[int, int]] = {}  # deferred sums of two images
        self.pool_indices: dict[tuple[object, ...], tuple[int, bool]] = {}
        self.depth_images: dict[tuple[object, ...], int] = {}
        self.addends: dict[int, tuple[int, ...]] = {}
        self.concatenated: dict[int, tuple[int, ...]] = {}
        self.deferred_updates: list[Update] = []
        self.averages: list[Average] = []
        self.deferred_products: dict[int, tuple[int, int, int]] = {}
        self.done: set[int] = set()
        if precision == "bfloat16":
            import ml_dtypes

            self.dtype = np.dtype(ml_dtypes.bfloat16)
        else:
            self.dtype = np.dtype(np.float32)

    # Writing

    def keep(self, instruction: Instruction) -> None:
        """Copy an instruction as it was, on plain values."""
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
        """Add an instruction; returns the numbers of its results."""
        outputs = tuple(next_number(self.specs) + i for i in range(len(specs)))
        self.specs |= dict(zip(outputs, specs, strict=True))
        moved = sum(self.specs[n].nbytes for n in (*inputs, *outputs))
        self.instructions.append(
            Instruction(INSTRUCTIONS[name], inputs, outputs, attributes, flops, moved)
        )
        return outputs

    def working_spec(self, number: int) -> Spec:
        """The spec of an old value in its working form."""
        shape = self.program.specs[number].shape
        if len(shape) == 4:
            shape = (shape[0], shape[2], shape[3], shape[1])
        return Spec(shape, self.dtype)

    def add_working(self, name: str, inputs: tuple[int, ...], result: int, **more: Any) -> bool:
        """Add an instruction that computes an old value in its working form; returns True."""
        (self.working[result],) = self.add(name, inputs, self.working_spec(result), **more)
        return True

    # Forms

    def as_working(self, number: int) -> int:
        """A value in its working form."""
        if number in self.deferred:
            self.deferred.pop(number)()
        for name, parts in (("add_images", self.addends), ("concat_channels", self.concatenated)):
            if number in parts:  # left to a reader that does not compute it after all
                operands = tuple(map(self.contiguous_working, parts.pop(number)))
                self.add_working(name, operands, number)
        if number not in self.working:
            plain, spec = self.plain[number], self.working_spec(number)
            if spec.ndim == 4 and self.program.specs[number].shape[2:] != (1, 1):
                self.add_working("channels_last", (plain,), number)
            elif spec == self.program.specs[number]:
                self.working[number] = self.contiguous(plain)
            elif spec.dtype != self.program.specs[number].dtype:
                self.add_working("cast", (plain,), number)
            else:
                self.working[number] = self.reshape(plain, spec)
        return self.working[number]

    def as_plain(self, number: int) -> int:
        """A value as it was in the old program."""
        if number not in self.plain:
            working, spec = self.as_working(number), self.program.specs[number]
            if spec.ndim == 4 and spec.shape[2:] != (1, 1):
                (self.plain[number],) = self.add(
                    "channels_first", (self.contiguous(working),), spec
                )
            elif spec == self.specs[working]:
                self.plain[number] = working
            elif spec.dtype != self.specs[working].dtype:
                (self.plain[number],) = self.add("cast", (self.contiguous(working),), spec)
            else:
                self.plain[number] = self.reshape(working, spec)
        return self.plain[number]

    def contiguous(self, number: int) -> int:
        """A value as a contiguous array.

        The channels of an image that are a part of another's are evenly spaced in memory, which
        `concat_channels` supports. Other views need not be; a reshape copies what is scattered.
        """
        made = next((i for i in reversed(self.instructions) if number in i.outputs), None)
        if made is None or made.name not in ("part", "transpose"):
            return number
        if made.name == "part" and self.specs[number].ndim == 4:
            return self.add("concat_channels", (number,), self.specs[number])[0]
        return self.reshape(number, self.specs[number])

    def contiguous_working(self, number: int) -> int:
        """A value in its working form, as a contiguous array."""
        self.working[number] = self.contiguous(self.as_working(number))
        return self.working[number]

    def reshape(self, number: int, spec: Spec) -> int:
        """The same elements in another shape, as a new value."""
        fresh = next_number(self.specs)
        self.specs[fresh] = spec
        self.instructions.append(
            Instruction(op.reshape, (number,), (fresh,), {"shape": spec.shape}, 0, 0)
        )
        return fresh

    # Queries of the rules

    def only_reader(self, number: int) -> Instruction | None:
        """The only reader of a value, if it has one and is not a result of the program."""
        positions = self.reader_positions[number]
        if len(positions) != 1 or number in self.program.outputs:
            return None
        return self.program.instructions[positions[0]]

    def reader(self, number: int, name: str, **attributes: Any) -> Instruction | None:
        """A reader of a value with this name and these attributes."""
        for position in self.reader_positions[number]:
            found = self.program.instructions[position]
            if found.name == name and attributes.items() <= dict(found.attributes).items():
                return found
        return None

    def mark_done(self, *instructions: Instruction | None) -> None:
        """Mark instructions as done: another one's replacement computes them as well."""
        for taken in instructions:
            if taken is not None:
                self.done.add(self.program.instructions.index(taken))

    def is_image(self, number: int) -> bool:
        """Whether a value is images that exist in their working form."""
        made = number in self.working or number in self.deferred
        return made and self.program.specs[number].ndim == 4

    def defer(self, number: int, add: Callable[[], object]) -> bool:
        """Call `add` where a value's working form is needed, if ever; returns True."""
        self.deferred[number] = add
        return True

    def readers_named(self, number: int, name: str) -> list[Instruction]:
        """The readers of a value that have this name."""
        reading = [self.program.instructions[p] for p in self.reader_positions[number]]
        return [instruction for instruction in reading if instruction.name == name]


def next_number(specs: Mapping[int, Spec]) -> int:
    """The first free number."""
    return max(specs, default=-1) + 1
