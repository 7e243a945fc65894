"""Merges 1 x 1 convolutions of the same images into one, with all their filters.

GoogLeNet has three of them in every module. Merged, the images are read once instead of three
times, and in the backward pass their gradient is written once instead of three times and added.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pareo.operators as op
from pareo.operators.core import Operator
from pareo.program.fuse import in_order
from pareo.program.ir import Instruction, Program, readers
from pareo.program.passes import remove_dead, rewrite


@dataclass(frozen=True)
class Layer:
    """One such layer: its forward pass and, in training, its backward pass."""

    conv: Instruction
    bias: Instruction
    relu: Instruction
    relu_back: Instruction | None = None
    sums: Instruction | None = None
    to_filters: Instruction | None = None
    to_images: Instruction | None = None

    @property
    def back(self) -> tuple[Instruction | None, ...]:
        return self.relu_back, self.sums, self.to_filters, self.to_images


@rewrite
def merged(program: Program) -> Program:
    """The program with 1 x 1 convolutions of the same images merged."""
    while groups := _groups(program):
        program = _Merging(program, groups[0]).program()
    return program


def _groups(program: Program) -> list[list[Layer]]:
    """The layers that can be merged: same images, and gradients that go into the same sum."""
    reading = readers(program)
    found = defaultdict(list)
    for layer in _layers(program):
        found[layer.conv.inputs[0], _sum_of(program, reading, layer)].append(layer)
    trained = [
        [layer for layer in group if all(layer.back)]
        for (_, total), group in found.items()
        if total is not None
    ]
    return [group for group in trained if len(group) > 1 and _independent(program, group)]


def _layers(program: Program) -> Iterator[Layer]:
    reading = readers(program)

    def following(number: int, name: str, place: int = 0, **attributes: Any) -> Instruction | None:
        """The only instruction of this name that reads a value as this operand."""
        every = [program.instructions[p] for p in reading[number]]
        every = [i for i in every if i.name == name and i.inputs[place] == number]
        same = [i for i in every if attributes.items() <= dict(i.attributes).items()]
        return same[0] if len(same) == len(every) == 1 else None

    for conv in program.instructions:
        if conv.name != "conv" or not _of_one_pixel(program, conv):
            continue
        bias = following(conv.outputs[0], "add_bias")
        relu = following(bias.outputs[0], "relu") if bias else None
        if bias is None or relu is None or len(reading[conv.outputs[0]]) > 1:
            continue
        relu_back = following(relu.outputs[0], "relu_gradient", 1)
        if relu_back is None:
            continue
        error = relu_back.outputs[0]
        layer = Layer(
            conv, bias, relu, relu_back,
            following(error, "sum", axis=(0, 2, 3), keepdims=False),
            following(error, "conv_weight_gradient", 1),
            following(error, "conv_input_gradient"),
        )  # fmt: skip
        if all(layer.back) and len(reading[error]) == 3 and error not in program.outputs:
            yield layer


def _sum_of(program: Program, reading: dict[int, list[int]], layer: Layer) -> int | None:
    """The sum that is the only reader of a layer's gradient of its images, if there is one."""
    assert layer.to_images is not None
    number = layer.to_images.outputs[0]
    total = None
    while len(reading[number]) == 1 and number not in program.outputs:
        add = program.instructions[reading[number][0]]
        alike = all(program.specs[n] == program.specs[number] for n in add.inputs)
        if add.name != "add" or not alike:
            break
        total = number = add.outputs[0]
    return total


def _independent(program: Program, group: list[Layer]) -> bool:
    """Whether no layer of a group, forward or backward, depends on another one."""
    fronts = [layer.conv.inputs + layer.bias.inputs[1:] for layer in group]
    backs = [layer.relu_back.inputs[:1] for layer in group if layer.relu_back]
    after_any = _reached(program, {layer.relu.outputs[0] for layer in group})
    errors = {layer.relu_back.outputs[0] for layer in group if layer.relu_back}
    after_errors = _reached(program, errors)
    return not any(after_any.intersection(inputs) for inputs in fronts) and not any(
        after_errors.intersection(inputs) for inputs in (*fronts, *backs)
    )


def _reached(program: Program, start: set[int]) -> set[int]:
    """The values that depend on some values, and these themselves."""
    found = set(start)
    for instruction in program.instructions:
        if not found.isdisjoint(instruction.inputs):
            found.update(instruction.outputs)
    return found


def _of_one_pixel(program: Program, conv: Instruction) -> bool:
    plain = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    return dict(conv.attributes) == plain and program.specs[conv.inputs[1]].shape[2:] == (1, 1)


class _Merging:
    """Rewrites one group of layers as one layer."""

    def __init__(self, program: Program, group: list[Layer]) -> None:
        self.old, self.group = program, group
        self.specs = dict(program.specs)
        self.new: list[Instruction] = []

    def program(self) -> Program:
        group, first = self.group, self.group[0]
        x, how = first.conv.inputs[0], dict(first.conv.attributes)
        w = self.add(op.concat, [layer.conv.inputs[1] for layer in group], axis=0)
        b = self.add(op.concat, [layer.bias.inputs[1] for layer in group], axis=0)
        y = self.add(op.relu, [self.add(op.add_bias, [self.add(op.conv, [x, w], **how), b])])
        self.parts(y, [layer.relu.outputs[0] for layer in group], axis=1)
        backs = [layer.relu_back for layer in group if layer.relu_back]
        g = self.add(op.concat, [back.inputs[0] for back in backs], axis=1)
        d = self.add(op.relu_gradient, [g, y])
        sums = self.add(op.sum, [d], axis=(0, 2, 3), keepdims=False)
        self.parts(sums, [layer.sums.outputs[0] for layer in group if layer.sums], axis=0)
        to_filters = self.add(op.conv_weight_gradient, [x, d], size=(1, 1), **how)
        ends = [layer.to_filters.outputs[0] for layer in group if layer.to_filters]
        self.parts(to_filters, ends, axis=0)
        size = self.old.specs[x].shape[2:]
        to_images = [layer.to_images for layer in group if layer.to_images]
        kept = to_images[-1].outputs[0]
        self.add(op.conv_input_gradient, [d, w], result=kept, size=size, **how)
        return self.without({back.outputs[0] for back in to_images[:-1]})

    def add(
        self, operator: Operator, inputs: list[int], result: int | None = None, **attributes: Any
    ) -> int:
        """Add an instruction; returns the number of its result."""
        specs = [self.specs[n] for n in inputs]
        spec = operator.infer(specs, attributes)
        number = max(self.specs) + 1 if result is None else result
        self.specs[number] = spec
        flops = operator.count_flops(spec, specs, attributes)
        moved = operator.count_bytes(spec, specs, attributes)
        one = Instruction(operator, tuple(inputs), (number,), attributes, flops, moved)
        self.new.append(one)
        return number

    def parts(self, whole: int, results: list[int], axis: int) -> None:
        """Split a merged value into the values of the old program."""
        start = 0
        for result in results:
            stop = start + self.old.specs[result].shape[axis]
            self.add(op.part, [whole], result=result, axis=axis, between=(start, stop))
            start = stop

    def without(self, dropped: set[int]) -> Program:
        """The program with the group replaced, and `dropped` values removed from their sums."""
        members = [(layer.conv, layer.bias, layer.relu, *layer.back) for layer in self.group]
        gone = {id(one) for layer in members for one in layer}
        same: dict[int, int] = {}
        kept = []
        for one in self.old.instructions:
            if id(one) in gone:
                continue
            inputs = tuple(same.get(number, number) for number in one.inputs)
            left = [number for number in inputs if number not in dropped]
            if one.name != "add" or len(left) == 2:
                kept.append(replace(one, inputs=inputs))
            elif left:
                same[one.outputs[0]] = left[0]
            else:
                dropped.add(one.outputs[0])
        for one in self.new:
            kept.append(replace(one, inputs=tuple(same.get(n, n) for n in one.inputs)))
        outputs = tuple(same.get(number, number) for number in self.old.outputs)
        changed = self.old.changed(
            specs=self.specs, instructions=in_order(self.old, kept), outputs=outputs
        )
        return remove_dead(changed)
