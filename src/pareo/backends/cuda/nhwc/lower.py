"""Lowering: a program of large convolutions, rewritten channels last and in the card's precision.

The rewritten program computes the same values; an instruction without a rule stays as it is.
"""

import numpy as np

from pareo.backends.cuda.nhwc.lowering import Lowering, Possible
from pareo.backends.cuda.nhwc.merge import merged
from pareo.backends.cuda.nhwc.rules import RULES, update_together
from pareo.program.ir import Program
from pareo.program.passes import remove_dead, rewrite

LARGE = 4096  # weights of a convolution from which lowering a program pays


def worth_lowering(program: Program) -> bool:
    """Whether a program has a convolution that is large enough, all of them in float32."""
    filters = [program.specs[i.inputs[1]] for i in program.instructions if i.name == "conv"]
    in_float32 = all(spec.dtype == np.float32 for spec in filters)
    return in_float32 and any(spec.size >= LARGE for spec in filters)


@rewrite
def lowered(
    program: Program, precision: str, possible: Possible, turning: Possible = lambda _: False
) -> Program:
    """The program as cuDNN and the kernels beside this file run it.

    `precision` is 'float32', 'tf32' or 'bfloat16'; `possible` tells which convolutions have a plan,
    and `turning` whose gradients of images are best a convolution with turned filters.
    """
    program = merged(program)
    lowering = Lowering(program, precision, possible, turning)
    for position, instruction in enumerate(program.instructions):
        if position in lowering.handled:
            continue
        rule = RULES.get(instruction.name)
        if rule is None or not rule(lowering, instruction):
            lowering.keep(instruction)
    update_together(lowering)
    outputs = tuple(map(lowering.as_plain, program.outputs))
    changed = program.changed(
        specs=lowering.specs, instructions=tuple(lowering.instructions), outputs=outputs
    )
    return remove_dead(changed)
