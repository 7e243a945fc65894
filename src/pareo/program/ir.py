"""`Program`: a traced function as a list of instructions, with what it costs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypedDict, Unpack

from pareo.array import Array
from pareo.device import Device, current
from pareo.errors import ShapeError
from pareo.notebook import table
from pareo.operators.core import Operator
from pareo.program.kernel import Attribute, Fusion
from pareo.program.text import amount
from pareo.spec import Spec

if TYPE_CHECKING:  # for the type that `compile` returns; at run time the backend provides it
    from pareo.program.executable import Executable


@dataclass(frozen=True)
class Instruction:
    """An operator, or a backend's fusion of several, applied to values given by their numbers."""

    operator: Operator | Fusion
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Mapping[str, Attribute]
    flops: int
    bytes: int

    @property
    def name(self) -> str:
        return self.operator.name

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for two instructions that compute the same."""
        return (self.name, self.inputs, tuple(sorted(self.attributes.items())))

    @property
    def is_view(self) -> bool:
        """Whether the result can be a view of the operand's memory."""
        return isinstance(self.operator, Operator) and self.operator.view_function is not None

    def __str__(self) -> str:
        results = ", ".join(f"%{number}" for number in self.outputs)
        arguments = [f"%{number}" for number in self.inputs]
        for name, value in self.attributes.items():
            if isinstance(self.operator, Fusion) or not self.operator.is_default(name, value):
                arguments.append(f"{name}={value}")
        return f"{results} = {self.name}({', '.join(arguments)})"


@dataclass(frozen=True)
class Program:
    """A function of arrays as a list of instructions.

    Values are numbers; `specs` maps each to its shape and dtype. `arguments` and `result` are the
    nesting of what a call takes and returns. Nothing in here runs: `compile` returns something that
    does.

    >>> from pareo import Spec, op, trace
    >>> print(trace(lambda x: op.sum(op.relu(x)), Spec((8, 4))))
    input %0: float32[8, 4]
    %1 = relu(%0)              float32[8, 4]                 32 FLOP      256 B
    %2 = sum(%1, axis=(0, 1))  float32[]                     32 FLOP      132 B
    return %2
    2 instructions, 64 FLOP, 388 B moved
    """

    specs: Mapping[int, Spec]
    inputs: tuple[int, ...]
    constants: Mapping[int, Array]
    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]
    result: object = field(default=None, compare=False)
    arguments: tuple[object, ...] = field(default=(), compare=False)
    rebuild: "Callable[[int], Program] | None" = field(default=None, compare=False, repr=False)

    @property
    def flops(self) -> int:
        """Floating-point operations of one run."""
        return sum(instruction.flops for instruction in self.instructions)

    @property
    def bytes(self) -> int:
        """Bytes that one run moves if every instruction reads and writes memory once."""
        return sum(instruction.bytes for instruction in self.instructions)

    def compile(
        self, on: Device | None = None, updates: Mapping[int, int] | None = None
    ) -> "Executable":
        """The program fused, planned and ready to run on a device (by default the one in scope).

        `updates` maps positions of results to positions of arguments (both as flat lists): such a
        result is written over that argument, as a training step writes its parameters. All results
        are computed from the arguments as they were before.

        >>> import numpy as np
        >>> from pareo import Spec, op, trace
        >>> double = trace(lambda x: op.scale(2, x), Spec((3,))).compile()
        >>> double(np.ones(3, np.float32))
        array([2., 2., 2.], dtype=float32)
        """
        device = on or current()
        return device.backend.compile(self, device, updates or {})

    def memory(
        self,
        batch: int | None = None,
        on: Device | None = None,
        updates: Mapping[int, int] | None = None,
        data: int | None = None,
        tight: bool = False,
    ) -> int:
        """The bytes that a run takes on a device, inputs included, for any batch size.

        The program does not run, and none of its memory is allocated; but a GPU that does not yet
        know the fastest plan for a convolution of these sizes times the candidates. Inputs that
        grow with the batch are those traced with `Spec(..., batch=axis)`. Results in `updates`, as
        `compile` takes them, need no memory of their own where they can be written over the
        argument that they replace. Neither does the argument at position `data`, where a device
        reads batches from the dataset in place. `tight` asks for the smallest plan, however much
        memory is free.

        >>> from pareo import Spec, op, trace
        >>> program = trace(lambda x: op.exp(op.exp(x)), Spec((1, 256), batch=0))
        >>> program.memory(1), program.memory(100)
        (2048, 204800)
        """
        program = self if batch is None else self.with_batch(batch)
        device = on or current()
        return device.backend.memory(program, device, updates or {}, data, tight)

    def with_batch(self, size: int) -> "Program":
        """The same program, traced for another batch size."""
        if self.rebuild is None:
            raise ShapeError(
                "this program has no batch axis: trace it with Spec(..., batch=0) for the inputs "
                "that grow with the batch"
            )
        if size < 1:
            raise ShapeError(f"with_batch expects a batch size of at least 1; got {size}")
        return self.rebuild(size)

    def changed(self, **fields: Unpack["Fields"]) -> "Program":
        """A copy with some fields replaced."""
        return replace(self, **fields)

    def __str__(self) -> str:
        """One line for each instruction, with its shape, FLOPs and bytes."""
        lines = [f"input %{number}: {self.specs[number]}" for number in self.inputs]
        for number, constant in self.constants.items():
            shown = f" = {constant.item():g}" if constant.size == 1 else ""
            lines.append(f"constant %{number}: {self.specs[number]}{shown}")
        calls = [str(instruction) for instruction in self.instructions]
        width = max(map(len, calls), default=0)
        for call, instruction in zip(calls, self.instructions, strict=True):
            shapes = ", ".join(str(self.specs[number]) for number in instruction.outputs)
            cost = f"{amount(instruction.flops, 'FLOP'):>12} {amount(instruction.bytes, 'B'):>10}"
            lines.append(f"{call:<{width}}  {shapes:<24} {cost}")
        lines.append("return " + ", ".join(f"%{number}" for number in self.outputs))
        lines.append(self._totals())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The instructions as a table, for a notebook.

        >>> from pareo import Spec, op, trace
        >>> trace(lambda x: op.relu(x), Spec((8, 4)))._repr_html_()[-43:]
        '<p>1 instructions, 32 FLOP, 256 B moved</p>'
        """
        rows = [[f"input %{number}", str(self.specs[number]), "", ""] for number in self.inputs]
        for one in self.instructions:
            shapes = ", ".join(str(self.specs[number]) for number in one.outputs)
            rows.append([str(one), shapes, amount(one.flops, "FLOP"), amount(one.bytes, "B")])
        rows.append(["return " + ", ".join(f"%{number}" for number in self.outputs), "", "", ""])
        heads = ["instruction", "result", "FLOPs", "moved"]
        return table(heads, rows, left=2, below=self._totals())

    def _totals(self) -> str:
        return (
            f"{len(self.instructions)} instructions, {amount(self.flops, 'FLOP')}, "
            f"{amount(self.bytes, 'B')} moved"
        )


class Fields(TypedDict, total=False):
    """The fields of a program, as `Program.changed` takes them."""

    specs: Mapping[int, Spec]
    inputs: tuple[int, ...]
    constants: Mapping[int, Array]
    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]
    result: object
    arguments: tuple[object, ...]
    rebuild: Callable[[int], Program] | None


def readers(program: Program) -> dict[int, list[int]]:
    """For each value, the positions of the instructions that read it."""
    found: dict[int, list[int]] = {number: [] for number in program.specs}
    for position, instruction in enumerate(program.instructions):
        for number in instruction.inputs:
            found[number].append(position)
    return found
