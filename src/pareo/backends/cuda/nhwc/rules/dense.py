"""Dense layers, where the working precision is bfloat16."""

from typing import Any

import numpy as np

from pareo.backends.cuda.nhwc.lowering import Lowering
from pareo.backends.cuda.nhwc.rules.table import rule
from pareo.backends.cuda.nhwc.rules.tokens import as_images, defer_bias
from pareo.backends.cuda.nhwc.rules.update import defer_to_update
from pareo.program.ir import Instruction


def _reduced(lowering: Lowering, *numbers: int) -> bool:
    """Whether values are matrices, and the working precision is not float32."""
    shapes = [lowering.program.specs[number].shape for number in numbers]
    return lowering.dtype != np.float32 and all(len(shape) == 2 for shape in shapes)


def _without_transpose(lowering: Lowering, number: int) -> tuple[int, bool]:
    """A matrix, and whether the product must transpose it: a transpose is left to the product."""
    made = lowering.producer.get(number)
    if made is not None and made.name == "transpose" and made.attributes["axes"] == (1, 0):
        return made.inputs[0], True
    return number, False


@rule
def dot(lowering: Lowering, dot: Instruction) -> bool:
    """In working precision; a result that the loss or the optimiser reads is float32."""
    if defer_to_update(lowering, dot):
        return True
    if not _reduced(lowering, *dot.inputs):
        return False
    (a, a_transposed), (b, b_transposed) = (_without_transpose(lowering, n) for n in dot.inputs)
    operands = lowering.as_working(a), lowering.as_working(b)
    more: dict[str, Any] = {"transposed": (a_transposed, b_transposed), "flops": dot.flops}
    result = dot.outputs[0]
    if any(name not in WORKING_READERS for name in _readers_of(lowering, result)):
        (lowering.plain[result],) = lowering.add(
            "dot_working", operands, lowering.program.specs[result], **more
        )
        return True
    return lowering.add_working("dot_working", operands, result, **more)


def _readers_of(lowering: Lowering, number: int) -> list[str]:
    """The names of a value's readers, looking through biases and transposes."""
    found = ["a result"] if number in lowering.program.outputs else []
    for position in lowering.reader_positions[number]:
        reader = lowering.program.instructions[position]
        if reader.name in ("add_bias", "transpose"):
            found += _readers_of(lowering, reader.outputs[0])
        else:
            found.append(reader.name)
    return found


WORKING_READERS = ("dot", "relu", "dropout", "relu_gradient", "reshape", "sum")


@rule
def transpose(lowering: Lowering, transpose: Instruction) -> bool:
    """Left out where only products read it: they transpose their operands themselves."""
    result = transpose.outputs[0]
    if as_images(lowering, transpose):
        return True
    if result in lowering.program.outputs or transpose.attributes["axes"] != (1, 0):
        return False
    reading = [lowering.program.instructions[p] for p in lowering.reader_positions[result]]
    return all(i.name == "dot" and _reduced(lowering, *i.inputs) for i in reading)


@rule
def add_bias(lowering: Lowering, add: Instruction) -> bool:
    x, b = add.inputs
    if not (_reduced(lowering, x) and x in lowering.working):
        return False
    relu, result, flops = lowering.only_reader(add.outputs[0]), add.outputs[0], add.flops
    if relu is not None and relu.name == "relu":
        result, flops = relu.outputs[0], flops + relu.flops
        lowering.mark_done(relu)
    elif defer_bias(lowering, add):
        return True
    else:
        relu = None
    operands = lowering.working[x], lowering.as_plain(b)
    return lowering.add_working(
        "bias_forward", operands, result, flops=flops, relu=relu is not None
    )


@rule
def dropout(lowering: Lowering, dropout: Instruction) -> bool:
    x, seed = dropout.inputs
    if not (_reduced(lowering, x) and x in lowering.working):
        return False
    operands = lowering.working[x], lowering.as_plain(seed)
    more = dict(dropout.attributes, flops=dropout.flops)
    return lowering.add_working("dropout_working", operands, dropout.outputs[0], **more)
