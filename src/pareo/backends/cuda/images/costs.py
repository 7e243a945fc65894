"""What a training step is expected to take with a block for each image, and without."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from pareo.backends.cuda.images.source import Source
from pareo.backends.cuda.nhwc.lower import worth_lowering
from pareo.program.ir import Instruction, Program

Sizes = tuple[int, ...]
CONVOLUTIONS = {"conv", "conv_input_gradient", "conv_weight_gradient"}
MULTIPROCESSORS, CLOCK = 132, 1.7e3  # of an H200; cycles of a microsecond
L2 = 4e6  # bytes of a microsecond
SPILLED = 5e3  # the same of one multiprocessor, where values of an image do not fit into it
AROUND = 15  # microseconds of a step besides the kernel: sums, matrix products, updates
MORE = 5  # microseconds of another kernel and of its sums


class Rates(NamedTuple):
    """What instructions one by one take, in microseconds; FLOPs and bytes are of a microsecond.

    A convolution is as much slower as its fewer channels or filters have: half as fast with `few`.
    """

    launch: float
    each: float
    convolution: float
    flops: float
    few: float
    bytes: float


# Fitted on an H200. Columns: where convolutions are products of columns, to 29 networks drawn by
# seed 505. The others: where they are lowered to cuDNN, to seven networks of today and 24 drawn by
# seeds 101 and 202, batch 1 to 128. Most take 0.7 to 1.4 times as long as this says. Bytes are
# those before instructions are fused, so tensor cores seem to have more memory than there is.
COLUMNS = Rates(12.0, 1.2, 3.0, 7e6, 0.0, 1.4e6)
FLOAT32 = Rates(24.0, 1.8, 2.0, 90e6, 8.0, 1.5e6)
TENSOR_CORES = Rates(12.0, 2.3, 1.0, 400e6, 12.0, 6e6)
SINGLE = 5e4  # bytes of a microsecond where one channel is convolved with one filter by cuDNN


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
    memory = split.batch * (dense + parts) / L2 + rounds * spilled / SPILLED
    return source.cycles * rounds / CLOCK + memory


def expected_otherwise(program: Program, exact: bool = True) -> float:
    """Microseconds that it is expected to take instruction by instruction.

    If it need not be exact, large convolutions use the tensor cores.
    """
    every = [one for one in program.instructions if not one.is_view]
    moved = sum(one.bytes for one in every)
    rates = FLOAT32 if exact else TENSOR_CORES
    if not worth_lowering(program):
        rates = COLUMNS
        moved += sum(_columns(program, one) for one in every)
    convolutions = [one for one in every if one.name in CONVOLUTIONS]
    time = rates.launch + rates.each * len(every) + moved / rates.bytes
    for one in convolutions:
        time += rates.convolution + _slower(program, one, rates) * one.flops / rates.flops
        if rates is not COLUMNS and _shapes(program, one)[1][:2] == (1, 1):
            time += one.bytes / SINGLE
    return time


def _slower(program: Program, one: Instruction, rates: Rates) -> float:
    """How many times as long a convolution takes as one of many channels and filters."""
    if one.attributes["groups"] > 1:  # has kernels of its own
        return 1.0
    return 1 + rates.few / max(1, min(_shapes(program, one)[1][:2]))


def _shapes(program: Program, one: Instruction) -> tuple[Sizes, Sizes, Sizes]:
    """The shapes of images, filters and results of a convolution or of its gradients."""
    shapes = [program.specs[n].shape for n in (*one.inputs, *one.outputs)]
    match one.name:
        case "conv_input_gradient":
            return shapes[-1], shapes[1], shapes[0]
        case "conv_weight_gradient":
            return shapes[0], shapes[-1], shapes[1]
    return shapes[0], shapes[1], shapes[-1]


def _columns(program: Program, one: Instruction) -> int:
    """The bytes of a convolution's columns, written and read."""
    if one.name not in CONVOLUTIONS:
        return 0
    images, filters, results = _shapes(program, one)
    return 2 * 4 * images[0] * prod(filters[1:]) * prod(results[2:])
