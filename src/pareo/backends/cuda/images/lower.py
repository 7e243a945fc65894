"""The pass that rewrites a training step to compute each image in a block of its own."""

import pareo.operators as op
from pareo.backends.cuda.images.costs import expected
from pareo.backends.cuda.images.emit import emit
from pareo.backends.cuda.images.kernel import image_passes, merge_moments, sum_rows
from pareo.backends.cuda.images.rows import Unsupported, split
from pareo.backends.cuda.images.source import Source
from pareo.backends.cuda.images.updates import grouped_updates
from pareo.program.ir import Instruction, Program
from pareo.program.passes import remove_dead, rewrite
from pareo.spec import Spec


def kernels_of(program: Program) -> tuple[list[Source], list[Instruction]]:
    """The kernels of a program that has convolutions, and the instructions after the last one.

    Raises:
        Unsupported: it cannot be computed image by image.
    """
    parts = split(program)
    inside = [one for kernel in parts.kernels for one in kernel.inside]
    if not any(one.name == "conv_weight_gradient" for one in inside):
        raise Unsupported("a network without convolutions any faster")
    return [emit(kernel) for kernel in parts.kernels], parts.after


def microseconds(program: Program) -> float | None:
    """What a step is expected to take; None if it cannot be computed image by image."""
    try:
        return expected(kernels_of(program)[0])
    except Unsupported:
        return None


def refusal(program: Program) -> str:
    """Why a program cannot be computed this way; empty if it can.

    >>> from pareo.nn import networks
    >>> from pareo.training.step import step_program
    >>> refusal(step_program(networks.by_name("alexnet-original"), 8))
    'a block for each image cannot compute lrn'
    """
    try:
        kernels_of(program)
    except Unsupported as reason:
        return f"a block for each image cannot compute {reason}"
    return ""


@rewrite
def image_by_image(program: Program) -> Program:
    """The program with a few kernels for the forward and backward pass of all images."""
    sources, after = kernels_of(program)
    specs = dict(program.specs)
    made: list[Instruction] = []
    for source in sources:
        made += [*source.split.before, *_kernel(source, specs)]
    changed = program.changed(specs=specs, instructions=(*made, *after))
    return grouped_updates(remove_dead(changed))


def _kernel(source: Source, specs: dict[int, Spec]) -> list[Instruction]:
    """A kernel, and its totals under their own numbers; adds to `specs`."""
    parts = source.split
    rows, total = max(specs) + 1, max(specs) + 2
    specs[rows] = Spec((parts.batch, max(source.width, 1)))
    specs[total] = Spec((max(source.width, 1),))
    flops = sum(one.flops for one in parts.inside)
    outputs = (rows, *parts.saved)
    moved = sum(specs[n].nbytes for n in (*source.arguments, *outputs))
    fusion, inputs = image_passes(source), tuple(source.arguments)
    made = [Instruction(fusion, inputs, outputs, {}, flops, moved)]
    for one, start in source.moments:
        pixels = parts.size(one.inputs[0]) // parts.program.specs[one.outputs[0]].size
        how = {"start": start, "pixels": pixels}
        made.append(Instruction(merge_moments, (rows,), one.outputs, how, 0, 0))
    if source.parts:
        both = specs[rows].nbytes + specs[total].nbytes
        made.append(Instruction(sum_rows, (rows,), (total,), {}, specs[rows].size, both))
    for number, start in source.parts.items():
        spec, piece = specs[number], max(specs) + 1
        specs[piece] = Spec((spec.size,))
        between = {"axis": 0, "between": (start, start + spec.size)}
        made.append(Instruction(op.part, (total,), (piece,), between, 0, 0))
        made.append(Instruction(op.reshape, (piece,), (number,), {"shape": spec.shape}, 0, 0))
    return made
