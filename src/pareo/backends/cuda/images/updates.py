"""Updates of all parameters in few launches."""

import numpy as np

from pareo.backends.cuda.nhwc.kernels.update import SLOTS, rule_of, update_all
from pareo.program.ir import Instruction, Program
from pareo.program.passes import remove_dead, rewrite

Group = tuple[str, tuple[int, ...]]  # the rule, and its numbers


@rewrite
def grouped_updates(program: Program) -> Program:
    """The program with the updates by each rule as one instruction, after all others."""
    made = {n: one for one in program.instructions for n in one.outputs}
    read = {n for one in program.instructions for n in one.inputs}
    groups: dict[Group, list[tuple[tuple[int, ...], Instruction]]] = {}
    for one in program.instructions:
        if read.isdisjoint(one.outputs):
            found = update_of(program, made, one)
            if found is not None:
                group, operands = found
                groups.setdefault(group, []).append((operands, one))
    gone = {id(one) for members in groups.values() for _, one in members}
    kept = [one for one in program.instructions if id(one) not in gone]
    for (kind, numbers), members in groups.items():
        operands = (*numbers, *(n for given, _ in members for n in given))
        outputs = tuple(n for _, one in members for n in one.outputs)
        moved = sum(program.specs[n].nbytes for n in (*operands, *outputs))
        flops = sum(one.flops for _, one in members)
        if kind == "DESCEND":
            flops *= 2  # the instruction that scales the gradient has as many
        how = {"taps": (1,) * len(members)}
        fusion = update_all(kind, len(members))
        kept.append(Instruction(fusion, operands, outputs, how, flops, moved))
    return remove_dead(program.changed(instructions=tuple(kept)))


def update_of(
    program: Program, made: dict[int, Instruction], one: Instruction
) -> tuple[Group, tuple[int, ...]] | None:
    """The rule of an update, and its parameter, gradient and slots."""
    if one.name == "sub":
        scale = made.get(one.inputs[1])
        if scale is None or scale.name != "scale":
            return None
        kind, numbers = "DESCEND", scale.inputs[:1]
        operands: tuple[int, ...] = (one.inputs[0], scale.inputs[1])
    elif one.name in ("sgd", "adam", "lion"):
        kind = rule_of(one)
        operands, numbers = one.inputs[: 2 + SLOTS[kind]], one.inputs[2 + SLOTS[kind] :]
    else:
        return None
    spec = program.specs[operands[0]]
    alike = all(program.specs[n] == spec for n in operands) and spec.dtype == np.float32
    single = all(program.specs[n].shape == () for n in numbers)
    given = operands[0] in program.inputs and all(n in program.inputs for n in operands[2:])
    return ((kind, numbers), operands) if alike and single and given else None
