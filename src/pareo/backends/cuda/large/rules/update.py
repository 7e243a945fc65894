"""Updates of parameters: put off, and made together."""

from pareo.backends.cuda.large.lowering import Lowering
from pareo.backends.cuda.large.rules.table import rule
from pareo.backends.cuda.large.update import update_all
from pareo.program.ir import Instruction

ALONE = 1 << 20  # elements of a parameter from which it is updated by itself


@rule
def sgd(lowering: Lowering, update: Instruction) -> bool:
    """Small updates together in the end; a large one alone, so that its gradient is freed."""
    parameter, _, velocity, *numbers = update.inputs
    alone = all(not lowering.reading[number] for number in update.outputs)
    single = all(lowering.old.specs[number].shape == () for number in numbers)
    known = all(number in lowering.plain for number in (parameter, velocity, *numbers))
    same = not lowering.updates or lowering.updates[0].inputs[3:] == update.inputs[3:]
    small = lowering.old.specs[parameter].size < ALONE
    if not (alone and single and known and same and small):
        return False
    lowering.updates.append(update)
    return True


def update_together(lowering: Lowering) -> None:
    """The updates that were put off, in one instruction."""
    if not lowering.updates:
        return
    operands = list(map(lowering.as_plain, lowering.updates[0].inputs[3:]))
    taps: list[int] = []
    for update in lowering.updates:
        parameter, gradient, velocity = update.inputs[:3]
        given, many = _gradient(lowering, gradient)
        operands += [lowering.plain[parameter], given, lowering.plain[velocity]]
        taps.append(many)
    outputs = tuple(number for update in lowering.updates for number in update.outputs)
    moved = sum(lowering.specs[number].nbytes for number in (*operands, *outputs))
    flops = sum(update.flops for update in lowering.updates)
    fusion, how = update_all(len(lowering.updates)), {"taps": tuple(taps)}
    lowering.instructions.append(Instruction(fusion, tuple(operands), outputs, how, flops, moved))
    lowering.plain |= {number: number for number in outputs}


def _gradient(lowering: Lowering, number: int) -> tuple[int, int]:
    """A gradient as the update reads it, and how many taps lie before its channels."""
    if number in lowering.plain:
        return lowering.plain[number], 1
    shape = lowering.old.specs[number].shape
    taps = shape[2] * shape[3] if len(shape) == 4 and shape[1] > 1 else 1
    return lowering.whole(number), taps
