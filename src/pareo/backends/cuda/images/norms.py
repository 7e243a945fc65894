"""Batch normalisation as steps that are computed image by image, with totals between them."""

from pareo.program.ir import Instruction, Program
from pareo.program.kernel import Fusion, Kernel
from pareo.program.passes import rewrite


def _never(*_: object, **__: object) -> None:
    raise AssertionError("these instructions are part of a kernel")


def _step(name: str) -> Fusion:
    return Fusion(name, "", (), (), Kernel(_never))


MOMENTS, NORMALISE = _step("norm_moments"), _step("norm_rows")
SUMS, BACK = _step("norm_sums"), _step("norm_rows_gradient")


@rewrite
def in_steps(program: Program) -> Program:
    """The program with two instructions for each normalisation, forward and backward.

    `norm_moments` returns mean and variance, `norm_rows` normalises with them. `norm_sums` returns
    the gradients of scale and shift, from which `norm_rows_gradient` computes that of x.
    """
    made: list[Instruction] = []
    for one in program.instructions:
        how = one.attributes
        if one.name == "batch_norm":
            (x, *vectors), (y, *moments) = one.inputs, one.outputs
            count = 2 * one.flops // 3
            made.append(Instruction(MOMENTS, (x,), (*moments,), how, count, one.bytes))
            given = (x, *vectors, *moments)
            made.append(Instruction(NORMALISE, given, (y,), how, one.flops - count, one.bytes))
        elif one.name == "batch_norm_gradient":
            (g, x, scale, *moments), (dx, *sums) = one.inputs, one.outputs
            count = one.flops // 2
            made.append(Instruction(SUMS, (g, x, *moments), (*sums,), how, count, one.bytes))
            given = (g, x, scale, *moments, *sums)
            made.append(Instruction(BACK, given, (dx,), how, one.flops - count, one.bytes))
        else:
            made.append(one)
    return program.changed(instructions=tuple(made))
