"""Joins the statistics of small images to the instruction that uses them.

Lowering computes the statistics of a batch normalisation in one instruction and normalises in
another, and likewise backward. Where a cluster of blocks holds the images, one instruction does
both.
"""

from pareo.backends.cuda.nhwc.kernels.normalise_at_once import holds
from pareo.backends.cuda.nhwc.kernels.table import INSTRUCTIONS
from pareo.program.ir import Instruction, Program, readers
from pareo.program.passes import rewrite

FORWARD = ("normalise_forward", "normalise_with_signs")
SUMS = ("normalise_back_sums", "normalise_back_sums_by_signs")
BACK = ("normalise_back", "normalise_back_plus")


@rewrite
def at_once(program: Program) -> Program:
    """The program with both instructions in one, where the images are small enough."""
    instructions: list[Instruction | None] = list(program.instructions)
    reading = readers(program)
    for position, first in enumerate(program.instructions):
        forward = first.name == "channel_statistics"
        if not (forward or first.name in SUMS) or not holds(program.specs[first.inputs[0]]):
            continue
        found = min((p for n in first.outputs for p in reading[n]), default=0)
        second = program.instructions[found]
        if forward and second.name in FORWARD:
            joined = _forward(program, first, second)
        elif not forward and second.name in BACK:
            joined = _back(program, first, second, reading)
        else:
            continue
        if joined is not None:
            instructions[position], instructions[found] = None, joined
    return program.changed(instructions=tuple(i for i in instructions if i is not None))


def _forward(
    program: Program, statistics: Instruction, normalise: Instruction
) -> Instruction | None:
    x, *vectors = normalise.inputs[:5]
    if ((x,), tuple(vectors[:2])) != (statistics.inputs, statistics.outputs):
        return None
    y, *signs = normalise.outputs
    inputs = (x, *vectors[2:], *normalise.inputs[5:])
    flops = statistics.flops + normalise.flops
    return _made(
        program, "normalise_at_once", inputs, (y, *statistics.outputs, *signs),
        dict(normalise.attributes), flops,
    )  # fmt: skip


def _back(
    program: Program, sums: Instruction, back: Instruction, reading: dict[int, list[int]]
) -> Instruction | None:
    x, *vectors = sums.inputs[:5]
    *signs, g = sums.inputs[5:7] if sums.name == SUMS[1] else sums.inputs[5:6]
    others = sums.inputs[6 + len(signs) :]
    kept = sums.outputs[2:]  # the gradient before the activation
    if back.inputs[:4] != (x, *(kept or (g,)), *sums.outputs[:2]):
        return None
    plus = back.inputs[8:]
    named = {"signs": signs, "other": others, "addend": plus}
    more = tuple(name for name, operands in named.items() if operands)
    masks = back if signs else sums  # signs are those of a relu; nothing is left to activate
    attributes = {
        "activation": masks.attributes["activation"], "limits": masks.attributes["limits"],
        "epsilon": sums.attributes["epsilon"], "more": more,
    }  # fmt: skip
    needed = [n for n in kept if len(reading[n]) > 1 or n in program.outputs]
    outputs = (*back.outputs, *sums.outputs[:2], *needed)
    inputs = (x, g, *vectors, *signs, *others, *plus)
    flops = sums.flops + back.flops
    return _made(program, "normalise_back_at_once", inputs, outputs, attributes, flops)


def _made(
    program: Program,
    name: str,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    attributes: dict[str, object],
    flops: int,
) -> Instruction:
    moved = sum(program.specs[n].nbytes for n in (*inputs, *outputs))
    return Instruction(INSTRUCTIONS[name], inputs, outputs, attributes, flops, moved)
