"""A stretch of a network as two programs, forward and back, that may run at different times.

The two are cut from one traced program: what leads to the outputs is the way forward, all else the
way back. Values that the way back reads are kept from the way forward.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pareo.device import Device
from pareo.parallel.group.shared_programs import Layout, layout_of, shown, updates, writing
from pareo.program import Instruction, Program, remove_common, remove_dead, tree
from pareo.program.differentiate import pull_back
from pareo.program.trace import Builder
from pareo.spec import Spec

Specs = dict[str, Spec]


@dataclass(frozen=True)
class Traced:
    """One program that goes forward and back, and which of its values are what.

    The program reads parameters, the stretch's input, others, and the gradients by its outputs.

    outputs:   the numbers of what goes on
    arriving:  the numbers of the gradients by them
    before:    the number of the gradient by the input, None where nobody wants it
    gradients: the numbers of the parameters' gradients, by path
    """

    program: Program
    outputs: tuple[int, ...]
    arriving: tuple[int, ...]
    before: int | None
    gradients: dict[str, int]


def traced(
    function: Callable[..., tuple[Any, ...]],
    parameters: Specs,
    x: Spec,
    others: Any = (),
    wants_before: bool = True,
    own: Callable[[Builder, tuple[Any, ...]], dict[Any, Any]] | None = None,
) -> Traced:
    """Trace function(parameters, x, *others), and the way back from its outputs.

    `own` gives gradients that arrive at outputs from nobody but the stretch itself, as at a loss.
    """
    builder = Builder()
    given = {path: builder.input(spec) for path, spec in parameters.items()}
    image = builder.input(x)
    rest = tree.transform(builder.input, others)
    outputs = function(given, image, *rest)
    known = own(builder, outputs) if own else {}
    arriving = {out: builder.input(out.spec) for out in outputs if out not in known}
    wrt = [*given.values(), image] if wants_before else [*given.values()]
    gradients = pull_back(builder, {**known, **arriving}, wrt)
    before = gradients.pop() if wants_before else None
    program = builder.program((*outputs, *gradients, *([before] if before else [])))
    program = remove_dead(remove_common(program))
    ends = program.outputs
    return Traced(
        program,
        ends[: len(outputs)],
        tuple(symbol.number for symbol in arriving.values()),
        ends[-1] if wants_before else None,
        dict(zip(parameters, ends[len(outputs) :], strict=False)),
    )


class Stage:
    """A stretch of a network, compiled for some rows of a batch.

    slots: how many batches may be on their way forward before the first of them comes back
    """

    def __init__(self, stretch: Traced, where: Layout, device: Device, slots: int = 1) -> None:
        there, back = _cut(stretch, where)
        self._kept = there.kept
        self._back_reads = back.reads
        self._positions = {n: k for k, n in enumerate(stretch.program.inputs)}
        self._forward = [
            there.program.compile(device, updates(there.program, len(stretch.outputs)))
            for _ in range(slots)
        ]
        written = len(back.program.outputs)
        self._backward = back.program.compile(device, updates(back.program, written))

    def forward(self, inputs: Sequence[Any], targets: Sequence[Any], slot: int = 0) -> list[Any]:
        """Write the outputs into `targets`; what the way back will need, which lies in the slot.

        inputs: those of the traced program, gradients that arrive later as None
        """
        read = [array for array in inputs if array is not None]
        results = self._forward[slot](read, list(targets))
        return list(results)

    def backward(self, inputs: Sequence[Any], kept: Sequence[Any], targets: Sequence[Any]) -> None:
        """Write what leaves in place of gradients, then the gradient by the input if wanted."""
        values = dict(zip(self._kept, kept, strict=True))
        read = [
            inputs[self._positions[number]] if number in self._positions else values[number]
            for number in self._back_reads
        ]
        self._backward(read, list(targets))


@dataclass(frozen=True)
class _Half:
    """One of the two programs, and the numbers of what it keeps for the other, or reads."""

    program: Program
    kept: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()


def _cut(stretch: Traced, where: Layout) -> tuple[_Half, _Half]:
    program = stretch.program
    left = shown(program, stretch.gradients, where)
    left += () if stretch.before is None else (stretch.before,)
    whole = remove_dead(program.changed(outputs=(*stretch.outputs, *left)))
    onward = remove_dead(program.changed(outputs=stretch.outputs)).instructions
    late = _late(whole, onward, left)
    made = {number for instruction in onward for number in instruction.outputs}
    reads = _reads(whole, late, left)
    kept = tuple(number for number in reads if number in made and number not in stretch.outputs)
    early = tuple(n for n in whole.inputs if n not in stretch.arriving)
    forward = writing(_reading(whole, onward, early), kept, stretch.outputs)
    backward = writing(_reading(whole, late, reads), (), left)
    return _Half(forward, (*kept, *stretch.outputs)), _Half(backward, reads=reads)


def _reading(
    program: Program, instructions: tuple[Instruction, ...], inputs: tuple[int, ...]
) -> Program:
    """Some instructions of a program, on a list of the values that they read."""
    form = ([None] * len(inputs),)
    return program.changed(instructions=instructions, inputs=inputs, arguments=form)


def _late(
    program: Program, onward: Sequence[Instruction], left: Sequence[int]
) -> tuple[Instruction, ...]:
    """The way back; views that the way forward made are looked at anew, rather than kept."""
    ahead = {instruction.outputs[0] for instruction in onward}
    needed = set(left)
    late = []
    for instruction in reversed(program.instructions):
        if not needed.isdisjoint(instruction.outputs) and (
            instruction.is_view or instruction.outputs[0] not in ahead
        ):
            late.append(instruction)
            needed.update(instruction.inputs)
    return tuple(reversed(late))


def _reads(program: Program, late: Sequence[Instruction], left: Sequence[int]) -> tuple[int, ...]:
    """What the way back takes from outside, in the order of the values' numbers."""
    made = {number for instruction in late for number in instruction.outputs}
    wanted = {number for instruction in late for number in instruction.inputs} | set(left)
    return tuple(sorted(wanted - made - set(program.constants)))


def layout_for(stretch: Traced, batch: int, dtype: str) -> Layout:
    """How this stretch's gradients are kept until the batch is whole."""
    return layout_of(stretch.program, stretch.gradients, batch, dtype)
