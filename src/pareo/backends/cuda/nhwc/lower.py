"""The pass that rewrites a program of large convolutions to channels-last layout.

The rewritten program computes the same values, in the device's precision. An instruction without a
rule stays as it is.
"""

import numpy as np

from pareo.backends.cuda.nhwc.at_once import at_once
from pareo.backends.cuda.nhwc.join_sums import Choice, join_sums
from pareo.backends.cuda.nhwc.lowering import AttentionTest, ConvolutionTest, Lowering
from pareo.backends.cuda.nhwc.merge import merged
from pareo.backends.cuda.nhwc.rules import RULES, add_grouped_updates, find_attention
from pareo.program.ir import Program
from pareo.program.passes import remove_dead, rewrite

LARGE = 4096  # weights of a convolution that make lowering worthwhile


def worth_lowering(program: Program) -> bool:
    """Whether a program has a large convolution, and all its convolutions are float32."""
    filters = [program.specs[i.inputs[1]] for i in program.instructions if i.name == "conv"]
    in_float32 = all(spec.dtype == np.float32 for spec in filters)
    return in_float32 and any(spec.size >= LARGE for spec in filters)


@rewrite
def lowered(
    program: Program,
    precision: str,
    has_plan: ConvolutionTest,
    as_forward: ConvolutionTest = lambda _: False,
    attends: AttentionTest = lambda _: True,
    clusters: bool = True,
    choice: Choice = lambda _: None,
) -> Program:
    """The lowered program.

    Args:
        program: the program.
        precision: 'float32', 'tf32' or 'bfloat16'.
        has_plan: whether a convolution has a plan; others are not lowered.
        as_forward: whether a gradient of images is fastest as a forward convolution with flipped
            filters.
        attends: whether cuDNN computes an attention.
        clusters: whether the GPU has clusters of blocks, as those from Hopper on do.
        choice: how a convolution of single pixels is joined to the sums of a normalisation, if so.
    """
    program = merged(program)
    lowering = Lowering(program, precision, has_plan, as_forward, attends)
    find_attention(lowering)
    for position, instruction in enumerate(program.instructions):
        if position in lowering.done:
            continue
        rule = RULES.get(instruction.name)
        if rule is None or not rule(lowering, instruction):
            lowering.keep(instruction)
    add_grouped_updates(lowering)
    outputs = tuple(map(lowering.as_plain, program.outputs))
    changed = program.changed(
        specs=lowering.specs, instructions=tuple(lowering.instructions), outputs=outputs
    )
    changed = remove_dead(changed)
    return join_sums(at_once(changed) if clusters else changed, choice)
