"""The pass that rewrites a training step to compute each image in a block of its own."""

import pareo.operators as op
from pareo.backends.cuda.images.costs import expected, expected_otherwise
from pareo.backends.cuda.images.emit import Source, emit
from pareo.backends.cuda.images.kernel import image_passes, sum_rows
from pareo.backends.cuda.images.rows import Unsupported, split
from pareo.backends.cuda.images.updates import grouped_updates
from pareo.program.ir import Instruction, Program
from pareo.program.passes import remove_dead, rewrite
from pareo.spec import Spec


def source_of(program: Program) -> Source:
    """The kernel of a program that has convolutions.

    Raises:
        Unsupported: it cannot be computed image by image.
    """
    parts = split(program)
    if not any(one.name == "conv" for one in parts.inside) or not parts.totals:
        raise Unsupported("a network without convolutions any faster")
    return emit(parts)


def suits(program: Program) -> bool:
    """Whether a program can be computed image by image, and is expected to be faster."""
    try:
        return expected(source_of(program)) < expected_otherwise(program)
    except Unsupported:
        return False


def description(program: Program) -> str:
    """Whether a program is computed image by image, and why.

    >>> from pareo.nn import networks
    >>> from pareo.training.step import step_program
    >>> description(step_program(networks.by_name("resnet8"), 8))
    'not a block for each image, which cannot compute batch_norm'
    """
    try:
        source = source_of(program)
    except Unsupported as reason:
        return f"not a block for each image, which cannot compute {reason}"
    now, otherwise = expected(source), expected_otherwise(program)
    times = f"{now:.0f} us expected, {otherwise:.0f} us otherwise"
    return f"{'' if now < otherwise else 'not '}a block for each image: {times}"


@rewrite
def image_by_image(program: Program) -> Program:
    """The program with one kernel for the forward and backward pass of all images."""
    source = source_of(program)
    parts = source.split
    specs = dict(program.specs)
    rows, total = max(specs) + 1, max(specs) + 2
    specs[rows] = Spec((parts.batch, source.width))
    specs[total] = Spec((source.width,))
    flops = sum(one.flops for one in parts.inside)
    outputs = (rows, *parts.saved)
    moved = sum(specs[n].nbytes for n in (*source.arguments, *outputs))
    passes = Instruction(image_passes(source), tuple(source.arguments), outputs, {}, flops, moved)
    both = specs[rows].nbytes + specs[total].nbytes
    sums = Instruction(sum_rows, (rows,), (total,), {}, specs[rows].size, both)
    views = []
    for number, start in source.parts.items():
        spec = specs[number]
        piece = max(specs) + 1
        specs[piece] = Spec((spec.size,))
        between = start, start + spec.size
        views.append(
            Instruction(op.part, (total,), (piece,), {"axis": 0, "between": between}, 0, 0)
        )
        shape = {"shape": spec.shape}
        views.append(Instruction(op.reshape, (piece,), (number,), shape, 0, 0))
    changed = program.changed(
        specs=specs, instructions=(*parts.before, passes, sums, *views, *parts.after)
    )
    return grouped_updates(remove_dead(changed))
