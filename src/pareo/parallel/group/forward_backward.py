"""Part of a network as two programs, forward and backward, that may run at different times.

The two are cut from one traced program: whatever leads to the outputs is the forward pass, all else
the backward pass. Values of the forward pass that the backward pass reads are kept in between.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pareo.device import Device
from pareo.nn.layers import Parameter
from pareo.parallel.group.shared_programs import (
    GradientLayout,
    argument_updates,
    exchanged_values,
    layout_of_program,
    writing_into_arguments,
)
from pareo.program import Executable, Instruction, Program, remove_common, remove_dead, tree
from pareo.program.differentiate import pull_back
from pareo.program.trace import Builder
from pareo.spec import Spec
from pareo.training.recipe import Recipe

Specs = dict[str, Spec]


@dataclass(frozen=True)
class TracedPart:
    """Part of a network as one program, forward and backward, and the numbers of its values.

    The program reads parameters, the part's input, other arguments, and the gradients of its
    outputs.

    outputs:          what the forward pass computes
    output_gradients: the gradients of these, which come from outside
    input_gradient:   the gradient of the input; None if it is not wanted
    gradients:        the gradients of the parameters that are trained, by path
    state:            by path, the number of a state before the forward pass, and after it
    """

    program: Program
    outputs: tuple[int, ...]
    output_gradients: tuple[int, ...]
    input_gradient: int | None
    gradients: dict[str, int]
    state: dict[str, tuple[int, int]]

    def layout(
        self, batch: int, declared: Mapping[str, Parameter], recipe: Recipe, dtype: str
    ) -> GradientLayout:
        """How this part's gradients are kept until the batch is complete.

        `declared` are the parameters of the part.
        """
        return layout_of_program(self.program, self.gradients, batch, declared, recipe, dtype)


def trace_part(
    function: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]],
    parameters: Specs,
    x: Spec,
    others: Any = (),
    wants_input_gradient: bool = True,
    known_gradients: Callable[[Builder, tuple[Any, ...]], dict[Any, Any]] | None = None,
    trained: Collection[str] | None = None,
) -> TracedPart:
    """Trace function(parameters, x, *others), and the backward pass from its outputs.

    `function` returns outputs and the new state of layers by path. `known_gradients` gives the
    gradients of outputs that do not come from outside, such as a loss's. `trained` are the paths
    whose gradients are wanted; None is all.
    """
    builder = Builder()
    given = {path: builder.input(spec) for path, spec in parameters.items()}
    image = builder.input(x)
    rest = tree.transform(builder.input, others)
    outputs, new_state = function(given, image, *rest)
    known = known_gradients(builder, outputs) if known_gradients else {}
    arriving = {out: builder.input(out.spec) for out in outputs if out not in known}
    moving = [path for path in given if trained is None or path in trained]
    wrt = [given[path] for path in moving] + ([image] if wants_input_gradient else [])
    gradients = pull_back(builder, {**known, **arriving}, wrt)
    before = gradients.pop() if wants_input_gradient else None
    program = builder.program(
        (*outputs, *gradients, *new_state.values(), *([] if before is None else [before]))
    )
    program = remove_dead(remove_common(program))
    results, first = program.outputs, len(outputs) + len(moving)
    return TracedPart(
        program,
        results[: len(outputs)],
        tuple(symbol.number for symbol in arriving.values()),
        results[-1] if wants_input_gradient else None,
        dict(zip(moving, results[len(outputs) : first], strict=True)),
        {
            path: (given[path].number, number)
            for path, number in zip(new_state, results[first:], strict=False)
        },
    )


class ForwardBackward:
    """The compiled forward and backward pass of part of a network, for some rows of a batch.

    slots: the number of forward passes that may be pending before their backward passes run
    """

    def __init__(
        self, part: TracedPart, layout: GradientLayout, device: Device, slots: int = 1
    ) -> None:
        forward, backward = _cut(part, layout)
        self._kept, self._backward_reads = forward.kept, backward.reads
        self._positions = {n: k for k, n in enumerate(part.program.inputs)}
        self._state = len(part.state)
        updates = argument_updates(forward.program, len(part.outputs))
        for result, (old, _) in enumerate(part.state.values()):
            updates[result] = forward.program.inputs.index(old)
        self._forward: list[Executable] = [
            forward.program.compile(device, updates) for _ in range(slots)
        ]
        written = len(backward.program.outputs)
        self._backward = backward.program.compile(
            device, argument_updates(backward.program, written)
        )

    def forward(self, inputs: Sequence[Any], targets: Sequence[Any], slot: int = 0) -> list[Any]:
        """Write the outputs into `targets`; return what the backward pass needs.

        The returned arrays lie in the slot. `inputs` are those of the traced program, with None in
        place of gradients that arrive later. The state of layers among them is replaced.
        """
        read = [array for array in inputs if array is not None]
        return list(self._forward[slot](read, list(targets)))[self._state :]

    def backward(self, inputs: Sequence[Any], kept: Sequence[Any], targets: Sequence[Any]) -> None:
        """Write the `exchanged_values`, then the input's gradient if it is wanted."""
        values = dict(zip(self._kept, kept, strict=True))
        read = [
            inputs[self._positions[number]] if number in self._positions else values[number]
            for number in self._backward_reads
        ]
        self._backward(read, list(targets))


@dataclass(frozen=True)
class _Half:
    """One of the two programs, and the numbers of the values that it keeps or reads."""

    program: Program
    kept: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()


def _cut(part: TracedPart, layout: GradientLayout) -> tuple[_Half, _Half]:
    program = part.program
    results = exchanged_values(program, part.gradients, layout)
    results += () if part.input_gradient is None else (part.input_gradient,)
    state = tuple(new for _, new in part.state.values())
    whole = remove_dead(program.changed(outputs=(*part.outputs, *state, *results)))
    forward = remove_dead(program.changed(outputs=(*part.outputs, *state))).instructions
    backward = _backward_instructions(whole, forward, results)
    made = {number for instruction in forward for number in instruction.outputs}
    reads = _outside_reads(whole, backward, results)
    kept = tuple(number for number in reads if number in made and number not in part.outputs)
    early = tuple(n for n in whole.inputs if n not in part.output_gradients)
    first = writing_into_arguments(_reading(whole, forward, early), (*state, *kept), part.outputs)
    second = writing_into_arguments(_reading(whole, backward, reads), (), results)
    return _Half(first, (*kept, *part.outputs)), _Half(second, reads=reads)


def _reading(
    program: Program, instructions: tuple[Instruction, ...], inputs: tuple[int, ...]
) -> Program:
    """Some instructions of a program, whose argument is a list of the values that they read."""
    form = ([None] * len(inputs),)
    return program.changed(instructions=instructions, inputs=inputs, arguments=form)


def _backward_instructions(
    program: Program, forward: Sequence[Instruction], results: Sequence[int]
) -> tuple[Instruction, ...]:
    """The backward pass; it takes views of the forward pass again, rather than keep them."""
    made = {instruction.outputs[0] for instruction in forward}
    needed = set(results)
    found = []
    for instruction in reversed(program.instructions):
        if not needed.isdisjoint(instruction.outputs) and (
            instruction.is_view or instruction.outputs[0] not in made
        ):
            found.append(instruction)
            needed.update(instruction.inputs)
    return tuple(reversed(found))


def _outside_reads(
    program: Program, backward: Sequence[Instruction], results: Sequence[int]
) -> tuple[int, ...]:
    """The values that the backward pass reads but does not compute, by number."""
    made = {number for instruction in backward for number in instruction.outputs}
    wanted = {number for instruction in backward for number in instruction.inputs} | set(results)
    return tuple(sorted(wanted - made - set(program.constants)))
