"""`Program`: a traced function as a list of instructions, with what it costs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pareo import device
from pareo.backends.base import Fusion
from pareo.errors import ShapeError
from pareo.operators.core import Operator
from pareo.spec import Spec

if TYPE_CHECKING:
    from pareo.program.executable import Executable


@dataclass(frozen=True)
class Instruction:
    """One operator, or several that a backend fused, applied to values given by their numbers."""

    operator: Operator | Fusion
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Mapping[str, Any]
    flops: int
    bytes: int

    @property
    def name(self) -> str:
        return self.operator.name

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for two instructions that compute the same."""
        return (self.name, self.inputs, tuple(sorted(self.attributes.items())))


@dataclass(frozen=True)
class Program:
    """A function of arrays, written down.

    Values are numbers; `specs` tells each one's shape and dtype. `arguments` and `result` are the
    nesting of what a call takes and gives. Nothing in here runs: `compile` gives something that
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
    constants: Mapping[int, Any]
    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]
    result: Any = field(default=None, compare=False)
    arguments: Any = field(default=None, compare=False)
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
        self, on: "device.Device | None" = None, updates: Mapping[int, int] | None = None
    ) -> "Executable":
        """The program fused, planned and ready to run on a device (the one in scope).

        `updates` maps positions of results to positions of arguments (both as flat lists): such a
        result is written over that argument, as a training step writes its parameters. All results
        follow from the arguments as they were before.

        >>> import numpy as np
        >>> from pareo import Spec, op, trace
        >>> double = trace(lambda x: op.scale(2, x), Spec((3,))).compile()
        >>> double(np.ones(3, np.float32))
        array([2., 2., 2.], dtype=float32)
        """
        from pareo.program.executable import Executable

        return Executable(self, on or device.current(), updates)

    def memory(
        self,
        batch: int | None = None,
        on: "device.Device | None" = None,
        updates: Mapping[int, int] | None = None,
        data: int | None = None,
        tight: bool = False,
    ) -> int:
        """The bytes that a run takes on a device, inputs included, for any batch size.

        The program does not run, and none of its memory is allocated; but a card that does not
        know yet how to run a convolution of these sizes fastest finds out. Inputs that grow with
        the batch are those traced with `Spec(..., batch=axis)`. Results in `updates`, as `compile`
        takes them, need no memory of their own where they can be written over the argument that
        they replace. Nor does the argument `data`, where a device reads batches of it in place.
        `tight` asks for the least that it can do with, whatever is free.

        >>> from pareo import Spec, op, trace
        >>> program = trace(lambda x: op.exp(op.exp(x)), Spec((1, 256), batch=0))
        >>> program.memory(1), program.memory(100)
        (2048, 204800)
        """
        from pareo.program.plan import fitting, plan
        from pareo.program.update import prepared_with

        program = self if batch is None else self.with_batch(batch)
        place = on or device.current()
        with place, place.backend.scope(place):  # work arrays depend on its threads, or its card
            program, over = prepared_with(program, updates or {}, place.backend)
            if tight:
                planned = plan(program, place.backend, over, tight=True).bytes
            else:
                planned = fitting(program, place.backend, over).bytes
        given = list(program.inputs)
        if data is not None and place.backend.in_data(program, given[data]):
            del given[data]
        inputs = sum(program.specs[number].nbytes for number in given)
        constants = sum(constant.nbytes for constant in program.constants.values())
        return inputs + constants + planned

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

    def changed(self, **parts: Any) -> "Program":
        """A copy with some parts replaced."""
        return replace(self, **parts)

    def __str__(self) -> str:
        from pareo.program.text import text

        return text(self)


def readers(program: Program) -> dict[int, list[int]]:
    """For each value, the positions of the instructions that read it."""
    found: dict[int, list[int]] = {number: [] for number in program.specs}
    for position, instruction in enumerate(program.instructions):
        for number in instruction.inputs:
            found[number].append(position)
    return found
