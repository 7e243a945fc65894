"""Running averages, as those of batch normalisation, all in one launch."""

from dataclasses import dataclass

import numpy as np

from pareo.backends.cuda.nhwc.kernels.update import average_all
from pareo.backends.cuda.nhwc.lowering import Lowering
from pareo.program.ir import Instruction


@dataclass(frozen=True)
class Average:
    """A running average: a share of the old vector plus a share of the one that was found."""

    old: int
    found: int
    shares: tuple[float, float]
    result: int
    flops: int


def average_of(lowering: Lowering, add: Instruction) -> Average | None:
    """The running average that an instruction computes: scale(a, old) + scale(b, found)."""
    program, result = lowering.program, add.outputs[0]
    spec = program.specs[result]
    two = [lowering.producer.get(number) for number in add.inputs]
    scales = [one for one in two if one is not None and one.name == "scale"]
    single = all(lowering.only_reader(number) is add for number in add.inputs)
    if len(scales) < 2 or not single or lowering.reader_positions[result]:
        return None
    if spec.ndim != 1 or spec.dtype != np.float32:
        return None
    if any(program.specs[one.inputs[1]] != spec for one in scales):
        return None
    (first, old), (second, found) = (one.inputs for one in scales)
    if old not in program.inputs or not {first, second} <= program.constants.keys():
        return None
    shares = float(program.constants[first]), float(program.constants[second])
    return Average(old, found, shares, result, add.flops + sum(one.flops for one in scales))


def defer_average(lowering: Lowering, add: Instruction) -> bool:
    """Leave a running average to the instruction that computes all of them."""
    average = average_of(lowering, add)
    if average is None:
        return False
    lowering.averages.append(average)
    return True


def add_averages(lowering: Lowering) -> None:
    """Add the running averages as one instruction."""
    averages = lowering.averages
    if not averages:
        return
    pairs = [(lowering.as_plain(one.old), lowering.as_plain(one.found)) for one in averages]
    operands = tuple(number for pair in pairs for number in pair)
    outputs = tuple(one.result for one in averages)
    moved = sum(lowering.specs[number].nbytes for number in (*operands, *outputs))
    how = {"shares": tuple(one.shares for one in averages)}
    flops = sum(one.flops for one in averages)
    fusion = average_all(len(averages))
    lowering.instructions.append(Instruction(fusion, operands, outputs, how, flops, moved))
    lowering.plain |= {number: number for number in outputs}
