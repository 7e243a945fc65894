"""What a training step is expected to take with a block for each image, and without."""

from collections.abc import Sequence
from math import prod

from pareo.backends.cuda.images.source import Source
from pareo.backends.cuda.nhwc.lower import worth_lowering
from pareo.program.ir import Instruction, Program

MULTIPROCESSORS, CLOCK = 132, 1.7e3  # of an H200; cycles of a microsecond
L2 = 4e6  # bytes of a microsecond
AROUND = 15  # microseconds of a step besides the kernel: sums, matrix products, updates
MORE = 5  # microseconds of another kernel and of its sums
# Instruction by instruction: microseconds of a step, of each instruction and more of a convolution;
# FLOPs of a microsecond of convolutions in float32, and bytes. Convolutions of few filters are
# products of columns there: every pixel is written and read again for each tap. Fitted to 29
# networks drawn by seed 505, on an H200; most take between 0.6 and 1.7 times as long as this says.
LAUNCH, EACH, CONVOLUTION, RATE, MEMORY = 12.0, 1.2, 3.0, 7e6, 1.4e6
FASTER = 8  # times the FLOPs of a microsecond on tensor cores


def expected(sources: Sequence[Source]) -> float:
    """Microseconds that a step is expected to take with these kernels."""
    return AROUND - MORE + sum(MORE + _kernel(source) for source in sources)


def _kernel(source: Source) -> float:
    split = source.split
    specs = split.program.specs
    dense = sum(specs[one.inputs[1]].nbytes for one in split.inside if one.name == "dot")
    spilled = 3 * 4 * source.spilled_floats if source.spilled_floats > 1 else 0
    parts = 2 * 4 * source.width
    rounds = -(-split.batch // MULTIPROCESSORS)
    memory = split.batch * (dense + spilled + parts) / L2
    return source.cycles * rounds / CLOCK + memory


def expected_otherwise(program: Program, exact: bool = True) -> float:
    """Microseconds that it is expected to take instruction by instruction.

    If it need not be exact, large convolutions use the tensor cores.
    """
    every = [one for one in program.instructions if not one.is_view]
    moved = sum(one.bytes for one in every)
    if not worth_lowering(program):
        moved += sum(_columns(program, one) for one in every)
    convolutions = [one for one in every if one.name.startswith("conv")]
    rate = RATE if exact or not worth_lowering(program) else FASTER * RATE
    computed = sum(one.flops for one in convolutions) / rate
    launched = LAUNCH + EACH * len(every) + CONVOLUTION * len(convolutions)
    return launched + computed + moved / MEMORY


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
