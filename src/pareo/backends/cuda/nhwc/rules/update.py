"""Updates of parameters: small ones in one launch, a dense layer's fused with its gradient."""

from dataclasses import dataclass

import numpy as np

from pareo.backends.cuda.nhwc.kernels import dense
from pareo.backends.cuda.nhwc.kernels.update import SLOTS, rule_of, update_all
from pareo.backends.cuda.nhwc.lowering import Lowering
from pareo.backends.cuda.nhwc.rules.averages import add_averages, average_of
from pareo.backends.cuda.nhwc.rules.table import rule
from pareo.program.ir import Instruction

ALONE = 1 << 20  # a parameter with at least so many elements is updated by itself

MOST_ROWS = 2048  # of a product that is fused with the update; cuBLAS is faster for more


@dataclass(frozen=True)
class Update:
    """A parameter's update: by an optimizer's operator, or plainly by `scale` and `sub`."""

    kind: str  # one of `SLOTS`
    parameter: int
    gradient: int
    slots: tuple[int, ...]  # the velocity, or the moments
    numbers: tuple[int, ...]  # rate, momentum and others, in the order of the operator
    outputs: tuple[int, ...]
    flops: int


def _update(lowering: Lowering, last: Instruction) -> Update | None:
    """The update that ends with an instruction."""
    kind = rule_of(last)
    if kind != "DESCEND":
        parameter, gradient, *rest = last.inputs
        slots, numbers = rest[: SLOTS[kind]], rest[SLOTS[kind] :]
        found = Update(
            kind, parameter, gradient, (*slots,), (*numbers,), last.outputs, last.flops
        )  # fmt: skip
    else:
        scale = lowering.producer.get(last.inputs[1])
        if scale is None or scale.name != "scale" or lowering.only_reader(scale.outputs[0]) is None:
            return None
        rate, gradient = scale.inputs
        flops = last.flops + scale.flops
        found = Update(kind, last.inputs[0], gradient, (), (rate,), last.outputs, flops)
    specs = lowering.program.specs
    alike = specs[found.parameter] == specs[found.gradient]
    single = all(specs[number].shape == () for number in found.numbers)
    known = all(
        number in lowering.plain for number in (found.parameter, *found.slots, *found.numbers)
    )
    in_float32 = specs[found.parameter].dtype == np.float32
    alone = all(not lowering.reader_positions[number] for number in found.outputs)
    return found if alike and single and known and in_float32 and alone else None


def _update_by(lowering: Lowering, gradient: int) -> Update | None:
    """The update that is the only reader of a gradient."""
    reader = lowering.only_reader(gradient)
    if reader is not None and reader.name == "scale":
        reader = lowering.only_reader(reader.outputs[0])
    if reader is None or reader.name not in ("sgd", "adam", "lion", "sub"):
        return None
    update = _update(lowering, reader)
    return update if update is not None and update.gradient == gradient else None


def defer_to_update(lowering: Lowering, dot: Instruction) -> bool:
    """Leave a product to the update that is its only reader, where one kernel can do both."""
    transpose = lowering.producer.get(dot.inputs[0])
    update = _update_by(lowering, dot.outputs[0])
    if lowering.precision == "float32" or update is None or transpose is None:
        return False
    if update.kind not in ("MOMENTUM", "DESCEND"):
        return False
    spec = lowering.program.specs[update.parameter]
    matrix = (
        transpose.name == "transpose" and transpose.attributes["axes"] == (1, 0) and spec.ndim == 2
    )
    few = lowering.program.specs[dot.inputs[1]].shape[0] <= MOST_ROWS
    if not matrix or not few or spec.size < ALONE or not dense.fits(*spec.shape):
        return False
    lowering.deferred_products[dot.outputs[0]] = (transpose.inputs[0], dot.inputs[1], dot.flops)
    return True


def _is_grouped(lowering: Lowering, update: Update) -> bool:
    """Whether an update is grouped with other small ones; a large one frees its gradient sooner."""
    return lowering.program.specs[update.parameter].size < ALONE


def _reads_filters(lowering: Lowering, update: Update) -> bool:
    """Whether an update reads a gradient of filters as it is, channels last."""
    filters = lowering.program.specs[update.parameter].ndim == 4
    return filters and update.gradient in lowering.working


@rule
def scale(lowering: Lowering, scale: Instruction) -> bool:
    """Left out where it is part of an update that another instruction computes."""
    following = lowering.only_reader(scale.outputs[0])
    if following is not None and following.name == "add" and average_of(lowering, following):
        return True
    update = _update_by(lowering, scale.inputs[1])
    if update is None or update.numbers != scale.inputs[:1] or update.slots:
        return False
    if update.gradient in lowering.deferred_products or _is_grouped(lowering, update):
        return True
    return _reads_filters(lowering, update)


@rule
def sub(lowering: Lowering, last: Instruction) -> bool:
    return sgd(lowering, last)


@rule
def adam(lowering: Lowering, last: Instruction) -> bool:
    return sgd(lowering, last)


@rule
def lion(lowering: Lowering, last: Instruction) -> bool:
    return sgd(lowering, last)


@rule
def sgd(lowering: Lowering, last: Instruction) -> bool:
    update = _update(lowering, last)
    if update is None or _update_by(lowering, update.gradient) != update:
        return False
    if update.gradient in lowering.deferred_products:
        _with_its_gradient(lowering, update)
        return True
    if _is_grouped(lowering, update):
        lowering.deferred_updates.append(update)
    elif _reads_filters(lowering, update):
        _add_updates(lowering, [update])
    else:
        return False
    return True


def _with_its_gradient(lowering: Lowering, update: Update) -> None:
    x, g, flops = lowering.deferred_products[update.gradient]
    operands = (
        lowering.as_working(x), lowering.as_working(g),
        *map(lowering.as_plain, (update.parameter, *update.slots, *update.numbers)),
    )  # fmt: skip
    name = "dense_momentum" if update.slots else "dense_descend"
    specs = (lowering.program.specs[number] for number in update.outputs)
    found = lowering.add(name, operands, *specs, flops=flops + update.flops)
    lowering.plain |= dict(zip(update.outputs, found, strict=True))


def add_grouped_updates(lowering: Lowering) -> None:
    """Add the grouped updates, one instruction for each rule and its numbers; and averages."""
    groups: dict[tuple[object, ...], list[Update]] = {}
    for update in lowering.deferred_updates:
        groups.setdefault((update.kind, *update.numbers), []).append(update)
    for group in groups.values():
        _add_updates(lowering, group)
    add_averages(lowering)


def _add_updates(lowering: Lowering, updates: list[Update]) -> None:
    operands = list(map(lowering.as_plain, updates[0].numbers))
    taps: list[int] = []
    for update in updates:
        given, count = _gradient(lowering, update.gradient)
        operands += [lowering.plain[update.parameter], given]
        operands += [lowering.plain[number] for number in update.slots]
        taps.append(count)
    outputs = tuple(number for update in updates for number in update.outputs)
    moved = sum(lowering.specs[number].nbytes for number in (*operands, *outputs))
    fusion = update_all(updates[0].kind, len(updates))
    how, flops = {"taps": tuple(taps)}, sum(update.flops for update in updates)
    lowering.instructions.append(Instruction(fusion, tuple(operands), outputs, how, flops, moved))
    lowering.plain |= {number: number for number in outputs}


def _gradient(lowering: Lowering, number: int) -> tuple[int, int]:
    """A gradient as the update reads it, and the number of taps that precede its channels."""
    if number in lowering.plain:
        return lowering.plain[number], 1
    shape = lowering.program.specs[number].shape
    taps = shape[2] * shape[3] if len(shape) == 4 and shape[1] > 1 else 1
    return lowering.contiguous_working(number), taps
