"""Training steps of small networks with one kernel for the forward and backward pass.

Each block computes one image: `rows` finds the instructions that can be, `emit` writes the kernel,
whose layers are in layers.cuh. What an image adds to the gradients of filters and biases is summed
by another kernel; gradients of dense layers are matrix products of rows that the first one saves.
"""

from dataclasses import replace
from math import prod

import pareo.operators as op
from pareo.backends.cuda.images.emit import Source, emit
from pareo.backends.cuda.images.kernel import image_passes, sum_rows
from pareo.backends.cuda.images.rows import Unsupported, split
from pareo.backends.cuda.images.updates import grouped_updates
from pareo.program.ir import Instruction, Program
from pareo.program.passes import remove_dead, rewrite
from pareo.spec import Spec

MULTIPROCESSORS, CLOCK = 132, 1.7e3  # of an H200; cycles of a microsecond
EACH = 2.5  # microseconds of an instruction with a kernel of its own
L2 = 4e6  # bytes of a microsecond


def worth_it(source: Source) -> bool:
    """Whether the kernel is expected to take less time than its instructions would."""
    split = source.split
    specs = split.program.specs
    dense = sum(specs[one.inputs[1]].nbytes for one in split.inside if one.name == "dot")
    blocks = -(-split.batch // MULTIPROCESSORS)
    spilled = 3 * 4 * source.spilled_floats * split.batch
    parts = 2 * 4 * source.width * split.batch
    memory = (dense * split.batch + spilled + parts) / L2
    return source.cycles * blocks / CLOCK + memory < EACH * len(split.inside)


def suits(program: Program) -> bool:
    """Whether a program can be computed image by image, and is expected to be faster."""
    try:
        parts = split(program)
        convolves = any(one.name == "conv" for one in parts.inside)
        return convolves and bool(parts.totals) and worth_it(emit(parts))
    except Unsupported:
        return False


@rewrite
def image_by_image(program: Program) -> Program:
    """The program with one kernel for the forward and backward pass of all images."""
    parts = split(program)
    source = emit(parts)
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
        assert prod(spec.shape) == spec.size
    after = [replace(one) for one in parts.after]
    changed = program.changed(
        specs=specs, instructions=(*parts.before, passes, sums, *views, *after)
    )
    return grouped_updates(remove_dead(changed))
