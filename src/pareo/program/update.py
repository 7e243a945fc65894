"""Updates: results that replace an argument, as a training step replaces its parameters.

Updates never change what a run computes: every result is computed from the arguments as they were
given. So an update is made in place only after the last instruction that reads the argument, and a
result that is a view of an argument is copied before that memory changes.
"""

from collections.abc import Mapping

from pareo.errors import PareoError
from pareo.program.ir import Instruction, Program, readers
from pareo.program.kernel import Fusion, Kernel
from pareo.program.passes import rewrite
from pareo.program.plan import kernel_of
from pareo.program.target import Target

Updates = Mapping[int, int]  # from the position of a result to that of the argument it replaces


def check(program: Program, updates: Updates) -> None:
    """Raise `PareoError` for updates that a run could not make.

    >>> from pareo import Spec, op, trace
    >>> check(trace(lambda x: op.sum(x), Spec((2,))), {0: 0})
    Traceback (most recent call last):
    pareo.errors.PareoError: result 0, float32[], cannot replace argument 0, float32[2]
    """
    for result, given in updates.items():
        if not (0 <= result < len(program.outputs) and 0 <= given < len(program.inputs)):
            raise PareoError(
                f"updates expects positions of {len(program.outputs)} results and "
                f"{len(program.inputs)} arguments; got {{{result}: {given}}}"
            )
        new, old = program.specs[program.outputs[result]], program.specs[program.inputs[given]]
        if new != old:
            raise PareoError(f"result {result}, {new}, cannot replace argument {given}, {old}")
    twice = sorted(given for given in set(updates.values()) if [*updates.values()].count(given) > 1)
    if twice:
        raise PareoError(f"argument {twice[0]} can be replaced by one result only")


@rewrite
def own_results(program: Program, updates: Updates, target: Target) -> Program:
    """Copy results that are constants, updated arguments, or views of these.

    The caller may write to a result, and a constant must not change with it. A result that is an
    argument must keep its old elements even if an update replaces that argument.
    """
    changing = {program.inputs[given] for given in updates.values()}
    roots = {number: number for number in (*changing, *program.constants)}
    for instruction in program.instructions:
        if instruction.is_view and instruction.inputs[0] in roots:
            roots[instruction.outputs[0]] = roots[instruction.inputs[0]]
    copies: dict[int, int] = {}
    outputs = list(program.outputs)
    for position, number in enumerate(program.outputs):
        stays = position in updates and program.inputs[updates[position]] == number
        if number in roots and not stays:
            copies.setdefault(number, max(program.specs) + 1 + len(copies))
            outputs[position] = copies[number]
    if not copies:
        return program
    specs = {**program.specs, **{new: program.specs[old] for old, new in copies.items()}}
    copying = Fusion("copy", "", ("x",), ("y",), Kernel(target.copy))
    made = {
        old: Instruction(copying, (old,), (new,), {}, 0, 2 * specs[old].nbytes)
        for old, new in copies.items()
    }
    given = {*program.inputs, *program.constants}
    instructions = [one for old, one in made.items() if old in given]
    for instruction in program.instructions:
        instructions.append(instruction)
        instructions += [made[n] for n in instruction.outputs if n in made]
    return program.changed(specs=specs, instructions=tuple(instructions), outputs=tuple(outputs))


@rewrite
def hasten_updates(program: Program, updates: Updates) -> Program:
    """Move each update to just after the last instruction that reads the old argument.

    There it can be made in place, and the gradient's memory is free for the next layer's. An update
    that other instructions read still comes before them.
    """
    made = {program.outputs[result]: program.inputs[given] for result, given in updates.items()}
    serving = _serving(program, set(made))
    reading = readers(program)
    read_at = {
        number: {p for seen in _with_views(program, given) for p in reading[seen]}
        for number, given in made.items()
    }
    maker = {n: p for p, i in enumerate(program.instructions) for n in i.outputs}
    waiting = [p for p, i in enumerate(program.instructions) if i.outputs[0] in serving]
    order: dict[int, None] = {}  # positions in their new order: a set that keeps it

    def place(position: int) -> None:
        if position not in order:
            for number in program.instructions[position].inputs:
                if number in maker:
                    place(maker[number])
            order[position] = None

    def may_go(position: int) -> bool:
        one = program.instructions[position]
        ready = all(maker[n] in order for n in one.inputs if n in maker)
        last = read_at.get(one.outputs[0], ())
        return ready and all(p in order or p == position for p in last)

    for position, instruction in enumerate(program.instructions):
        if instruction.outputs[0] not in serving:
            place(position)
        for other in list(waiting):
            if other in order or may_go(other):
                place(other)
                waiting.remove(other)
    for position in waiting:  # updates that read each other's arguments
        place(position)
    return program.changed(instructions=tuple(program.instructions[p] for p in order))


def _serving(program: Program, made: set[int]) -> set[int]:
    """The updates, and values of `scale` and `add` that are read by updates alone."""
    reading = readers(program)
    serving = set(made)
    for instruction in reversed(program.instructions):
        number = instruction.outputs[0]
        if instruction.name in ("scale", "add") and number not in program.outputs:
            served = [program.instructions[p].outputs[0] for p in reading[number]]
            if served and all(n in serving for n in served):
                serving.add(number)
    return serving


def in_place(program: Program, updates: Updates, target: Target) -> dict[int, int]:
    """The values that can be written over the argument that they replace."""
    reading = readers(program)
    found: dict[int, int] = {}
    for result, given in updates.items():
        number, argument = program.outputs[result], program.inputs[given]
        for position, instruction in enumerate(program.instructions):
            if number not in instruction.outputs or instruction.is_view:
                continue
            place = instruction.outputs.index(number)
            kernel = kernel_of(instruction, target)
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
    """An argument and all views of it."""
    seen = {argument}
    for instruction in program.instructions:
        if instruction.is_view and instruction.inputs[0] in seen:
            seen.add(instruction.outputs[0])
    return seen
