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
from pareo.backends.cuda.nhwc.lower import worth_lowering
from pareo.program.ir import Instruction, Program
from pareo.program.passes import remove_dead, rewrite
from pareo.spec import Spec

MULTIPROCESSORS, CLOCK = 132, 1.7e3  # of an H200; cycles of a microsecond
L2 = 4e6  # bytes of a microsecond
AROUND = 25  # microseconds of a step besides the kernel: sums, matrix products, updates
# Instruction by instruction, microseconds of each, and bytes of a microsecond. Convolutions of few
# filters are products of columns there: every pixel is written and read again for each tap.
EACH, MEMORY = 1.7, 2.5e6


def expected(source: Source) -> float:
    """Microseconds that a step is expected to take with the kernel."""
    split = source.split
    specs = split.program.specs
    dense = sum(specs[one.inputs[1]].nbytes for one in split.inside if one.name == "dot")
    spilled = 3 * 4 * source.spilled_floats if source.spilled_floats > 1 else 0
    parts = 2 * 4 * source.width
    rounds = -(-split.batch // MULTIPROCESSORS)
    memory = split.batch * (dense + spilled + parts) / L2
    return AROUND + source.cycles * rounds / CLOCK + memory


def expected_otherwise(program: Program) -> float:
    """Microseconds that it is expected to take instruction by instruction."""
    every = [one for one in program.instructions if not one.is_view]
    moved = sum(one.bytes for one in every)
    if not worth_lowering(program):
        moved += sum(_columns(program, one) for one in every)
    return EACH * len(every) + moved / MEMORY


def _columns(program: Program, one: Instruction) -> int:
    """The bytes of a convolution's columns, written and read."""
    if one.name not in ("conv", "conv_input_gradient", "conv_weight_gradient"):
        return 0
    shapes = [program.specs[n].shape for n in (*one.inputs, *one.outputs)]
    images, filters, results = {
        "conv": (0, 1, 2), "conv_input_gradient": (2, 1, 0), "conv_weight_gradient": (0, 2, 1),
    }[one.name]  # fmt: skip
    taps = prod(shapes[filters][1:])
    return 2 * 4 * shapes[images][0] * taps * prod(shapes[results][2:])


def worth_it(source: Source) -> bool:
    """Whether the kernel is expected to take less time than its instructions would."""
    return expected(source) < expected_otherwise(source.split.program)


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
