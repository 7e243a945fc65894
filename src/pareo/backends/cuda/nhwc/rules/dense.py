"""Dense layers, where they have a precision of their own."""

from typing import Any

import numpy as np

from pareo.backends.cuda.nhwc.lowering import Lowering
from pareo.backends.cuda.nhwc.rules.table import rule
from pareo.backends.cuda.nhwc.rules.update import put_off
from pareo.program.ir import Instruction


def _reduced(lowering: Lowering, *numbers: int) -> bool:
    """Whether values are matrices, and matrices have a precision of their own."""
    shapes = [lowering.old.specs[number].shape for number in numbers]
    return lowering.dtype != np.float32 and all(len(shape) == 2 for shape in shapes)


def _straight(lowering: Lowering, number: int) -> tuple[int, bool]:
    """A matrix, and whether it is to be turned: a transpose is not carried out, but passed on."""
    made = lowering.maker.get(number)
    if made is not None and made.name == "transpose" and made.attributes["axes"] == (1, 0):
        return made.inputs[0], True
    return number, False


@rule
def dot(lowering: Lowering, dot: Instruction) -> bool:
    """In working precision; the results that the loss or the optimiser reads in float32."""
    if put_off(lowering, dot):
        return True
    if not _reduced(lowering, *dot.inputs):
        return False
    (a, a_turned), (b, b_turned) = (_straight(lowering, n) for n in dot.inputs)
    operands = lowering.as_working(a), lowering.as_working(b)
    more: dict[str, Any] = {"turned": (a_turned, b_turned), "flops": dot.flops}
    result = dot.outputs[0]
    if any(name not in WORKING_READERS for name in _readers_of(lowering, result)):
        (lowering.plain[result],) = lowering.add(
            "dot_working", operands, lowering.old.specs[result], **more
        )
        return True
    return lowering.fresh("dot_working", operands, result, **more)


def _readers_of(lowering: Lowering, number: int) -> list[str]:
    """Who reads a value in the end, a bias and transposes passed over."""
    found = ["a result"] if number in lowering.old.outputs else []
    for position in lowering.reading[number]:
        reader = lowering.old.instructions[position]
        if reader.name in ("add_bias", "transpose"):
            found += _readers_of(lowering, reader.outputs[0])
        else:
            found.append(reader.name)
    return found


WORKING_READERS = ("dot", "relu", "dropout", "relu_gradient", "reshape", "sum")


@rule
def transpose(lowering: Lowering, transpose: Instruction) -> bool:
    """Left out where only products read it: they turn their operands themselves."""
    result = transpose.outputs[0]
    if result in lowering.old.outputs or transpose.attributes["axes"] != (1, 0):
        return False
    reading = [lowering.old.instructions[p] for p in lowering.reading[result]]
    return all(i.name == "dot" and _reduced(lowering, *i.inputs) for i in reading)


@rule
def add_bias(lowering: Lowering, add: Instruction) -> bool:
    x, b = add.inputs
    if not (_reduced(lowering, x) and x in lowering.working):
        return False
    relu, result, flops = lowering.only_reader(add.outputs[0]), add.outputs[0], add.flops
    if relu is not None and relu.name == "relu":
        result, flops = relu.outputs[0], flops + relu.flops
        lowering.take(relu)
    else:
        relu = None
    operands = lowering.working[x], lowering.as_plain(b)
    return lowering.fresh("bias_forward", operands, result, flops=flops, relu=relu is not None)


@rule
def dropout(lowering: Lowering, dropout: Instruction) -> bool:
    x, seed = dropout.inputs
    if not (_reduced(lowering, x) and x in lowering.working):
        return False
    operands = lowering.working[x], lowering.as_plain(seed)
    more = dict(dropout.attributes, flops=dropout.flops)
    return lowering.fresh("dropout_working", operands, dropout.outputs[0], **more)
