"""Updates: results that replace an argument, as a training step replaces its parameters."""

from collections.abc import Mapping

from pareo.backends.base import Backend
from pareo.program.ir import Instruction, Program, readers
from pareo.program.passes import rewrite
from pareo.program.plan import kernel_of

Updates = Mapping[int, int]  # from the position of a result to that of the argument it replaces


@rewrite
def hasten_updates(program: Program, updates: Updates) -> Program:
    """Move what only serves an update to where the argument was read for the last time.

    There it can be done in place, and the gradient's memory is free again for the next layer's.
    """
    made = {program.outputs[result]: program.inputs[given] for result, given in updates.items()}
    serving = _serving(program, set(made))
    reading = readers(program)
    read_at = {
        number: [p for seen in _with_views(program, given) for p in reading[seen]]
        for number, given in made.items()
    }
    waiting = [i for i in program.instructions if i.outputs[0] in serving]
    ready = set(program.inputs) | set(program.constants)
    done: list[Instruction] = []
    placed: set[int] = set()

    def may_go(instruction: Instruction) -> bool:
        if not ready.issuperset(instruction.inputs):
            return False
        own = program.instructions.index(instruction)
        return all(p in placed or p == own for p in read_at.get(instruction.outputs[0], ()))

    def place(instruction: Instruction) -> None:
        done.append(instruction)
        placed.add(program.instructions.index(instruction))
        ready.update(instruction.outputs)

    for instruction in program.instructions:
        if instruction.outputs[0] not in serving:
            place(instruction)
        for other in list(waiting):
            if may_go(other):
                place(other)
                waiting.remove(other)
    for instruction in waiting:  # arguments that are read by each other's updates
        place(instruction)
    return program.changed(instructions=tuple(done))


def _serving(program: Program, made: set[int]) -> set[int]:
    """The values that are updates, or small steps on the way to one that nothing else reads."""
    reading = readers(program)
    serving = set(made)
    for instruction in reversed(program.instructions):
        number = instruction.outputs[0]
        if instruction.name in ("scale", "add") and number not in program.outputs:
            served = [program.instructions[p].outputs[0] for p in reading[number]]
            if served and all(n in serving for n in served):
                serving.add(number)
    return serving


def in_place(program: Program, updates: Updates, backend: Backend) -> dict[int, int]:
    """The values that can be written straight over the argument that they replace."""
    reading = readers(program)
    found: dict[int, int] = {}
    for result, given in updates.items():
        number, argument = program.outputs[result], program.inputs[given]
        if program.specs[number] != program.specs[argument]:
            continue
        for position, instruction in enumerate(program.instructions):
            if number not in instruction.outputs or _is_view(instruction):
                continue
            place = instruction.outputs.index(number)
            kernel = kernel_of(instruction, backend)
            seen = _with_views(program, argument)
            before = all(p <= position for n in seen for p in reading[n])
            allowed = all(
                n == argument and kernel.may_overwrite(place, which)
                for which, n in enumerate(instruction.inputs)
                if n in seen
            )
            if before and allowed and program.outputs.count(number) == 1:
                found[number] = argument
    return found


def _with_views(program: Program, argument: int) -> set[int]:
    """An argument and everything that is only another look at it."""
    seen = {argument}
    for instruction in program.instructions:
        if _is_view(instruction) and instruction.inputs[0] in seen:
            seen.add(instruction.outputs[0])
    return seen


def _is_view(instruction: Instruction) -> bool:
    """Whether an instruction only looks anew at memory that lies where it lies."""
    return getattr(instruction.operator, "look", None) is not None
