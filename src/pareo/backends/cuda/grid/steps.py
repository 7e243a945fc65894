"""Instructions that take two levels, as two instructions with a value between them.

Results that are sums over the whole batch are computed in parts first: the loss from those of the
rows, the gradients of a layer normalisation's scale and shift from the statistics of the rows, long
sums and products, the gradients of filters and the statistics of large channels from those of some
pixels. The first of the two has all FLOPs.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from pareo.backends.cuda.grid import parts as split
from pareo.backends.cuda.grid.direct import sizes_of
from pareo.backends.cuda.grid.shapes import Product, weight_product
from pareo.operators.core import Operator
from pareo.program.ir import Instruction
from pareo.program.kernel import Fusion, Kernel
from pareo.spec import Spec


def _never(*_: object, **__: object) -> None:
    raise AssertionError("these instructions are part of a kernel")


def _step(name: str) -> Fusion:
    return Fusion(name, "", (), (), Kernel(_never))


ROW_LOSSES, ADD_PARTS = _step("row_losses"), _step("add_parts")
PART_SUMS = _step("part_sums")
LAYER_ROWS, LAYER_SUMS = _step("layer_rows"), _step("layer_sums")
MOMENTS, NORM_OF_PARTS = _step("batch_moments"), _step("batch_norm_of_parts")
BATCH_SUMS, BACK_OF_PARTS = _step("batch_sums"), _step("batch_norm_back_of_parts")
FEW = 8  # images, for which weights are read more often than anything else
UPDATE, GATHER = _step("update"), _step("gather")


def in_steps(instructions: Sequence[Instruction], specs: dict[int, Spec]) -> list[Instruction]:
    """The instructions, some of them as two; adds to `specs`."""
    steps = _Steps(specs, _logits(instructions))
    for one in instructions:
        SPLIT.get(one.name, _Steps.keep)(steps, one)
    return steps.found


class _Steps:
    """The instructions that have been found, and the specs of their results."""

    def __init__(self, specs: dict[int, Spec], logits: set[int]) -> None:
        self.found: list[Instruction] = []
        self.specs, self._logits = specs, logits
        self._transposed: set[int] = set()

    def keep(self, one: Instruction) -> None:
        """It is computed at once."""
        self.found.append(one)

    def _new(self, *shape: int) -> int:
        number = max(self.specs) + 1
        self.specs[number] = Spec(shape)
        return number

    def _add(
        self, operator: Operator | Fusion, inputs: Sequence[int], outputs: Sequence[int],
        how: Mapping[str, Any], one: Instruction, flops: int = 0,
    ) -> None:  # fmt: skip
        moved = one.bytes // 2
        self.found.append(Instruction(operator, (*inputs,), (*outputs,), how, flops, moved))

    def _add_up(self, made: int, result: int, parts: int, one: Instruction) -> None:
        self._add(ADD_PARTS, [made], [result], {"parts": parts}, one)

    def loss(self, one: Instruction) -> None:
        rows = self._new(self.specs[one.inputs[0]].shape[0])
        self._add(ROW_LOSSES, one.inputs, [rows], {}, one, one.flops)
        self._add_up(rows, one.outputs[0], self.specs[rows].size, one)

    def layer_norm_back(self, one: Instruction) -> None:
        g, x, scale = one.inputs
        to_x, *sums = one.outputs
        count = self.specs[x].size // self.specs[scale].size
        mean, inverse = self._new(count), self._new(count)
        self._add(LAYER_ROWS, one.inputs, [to_x, mean, inverse], one.attributes, one, one.flops)
        parts = split.parts_of_rows(count)
        made = [self._new(parts, self.specs[n].size) for n in sums] if parts > 1 else sums
        how = {**one.attributes, "parts": parts}
        self._add(LAYER_SUMS, [g, x, mean, inverse], made, how, one)
        if parts > 1:
            for sums_of_parts, result in zip(made, sums, strict=True):
                self._add_up(sums_of_parts, result, parts, one)

    def batch_norm(self, one: Instruction) -> None:
        images, channels, *pixels = self.specs[one.outputs[0]].shape
        parts = split.parts_of_channels(channels, images * prod(pixels)) if prod(pixels) > 1 else 1
        if parts == 1:
            self.keep(one)
            return
        back = one.name == "batch_norm_gradient"
        made = [self._new(parts, channels), self._new(parts, channels)]
        how = {**one.attributes, "parts": parts}
        if back:
            g, x, _, *statistics = one.inputs
            self._add(BATCH_SUMS, [g, x, *statistics], made, how, one, one.flops)
        else:
            self._add(MOMENTS, one.inputs[:1], made, how, one, one.flops)
        last = BACK_OF_PARTS if back else NORM_OF_PARTS
        self._add(last, [*one.inputs, *made], one.outputs, how, one)

    def sum(self, one: Instruction) -> None:
        sums = self.specs[one.outputs[0]].size
        parts = split.parts_of_sum(sums, self.specs[one.inputs[0]].size // sums)
        if parts == 1:
            self.keep(one)
            return
        made, how = self._new(parts, sums), {**one.attributes, "parts": parts}
        self._add(PART_SUMS, one.inputs, [made], how, one, one.flops)
        self._add_up(made, one.outputs[0], parts, one)

    def transpose(self, one: Instruction) -> None:
        self._transposed.update(one.outputs)
        self.keep(one)

    def dot(self, one: Instruction) -> None:
        if one.outputs[0] in self._logits or any(self.specs[n].ndim != 2 for n in one.inputs):
            self.keep(one)
            return
        (m, k), (_, n) = (self.specs[x].shape for x in one.inputs)
        left, right = (x in self._transposed for x in one.inputs)
        along = "k" if right and not left else "n"
        if along == "k" and m <= FEW:  # which may be computed with the update of its weights
            self.keep(one)
            return
        parts = split.parts_of_product(Product(1, m, n, k, along))
        if parts == 1:
            self.keep(one)
            return
        made = self._new(parts, m * n)
        self._add(one.operator, one.inputs, [made], one.attributes, one, one.flops)
        self._add_up(made, one.outputs[0], parts, one)

    def filters_back(self, one: Instruction) -> None:
        images, errors = (self.specs[n].shape for n in one.inputs)
        how = one.attributes
        sizes = sizes_of(images, errors, how["size"], how)
        parts = split.parts_of(weight_product(images, errors, how), sizes)
        if parts == 1:
            self.keep(one)
            return
        made = self._new(parts, self.specs[one.outputs[0]].size)
        self._add(one.operator, one.inputs, [made], one.attributes, one, one.flops)
        self._add_up(made, one.outputs[0], parts, one)


SPLIT: dict[str, Callable[[_Steps, Instruction], None]] = {
    "cross_entropy": _Steps.loss,
    "layer_norm_gradient": _Steps.layer_norm_back,
    "batch_norm": _Steps.batch_norm,
    "batch_norm_gradient": _Steps.batch_norm,
    "sum": _Steps.sum,
    "conv_weight_gradient": _Steps.filters_back,
    "transpose": _Steps.transpose,
    "dot": _Steps.dot,
}


def _logits(instructions: Sequence[Instruction]) -> set[int]:
    """Products from which the loss follows: the blocks that make them compute it, too."""
    made = {n: one for one in instructions for n in one.outputs}
    waiting = [one.inputs[0] for one in instructions if one.name == "cross_entropy"]
    found = set[int]()
    while waiting:
        number = waiting.pop()
        if number in made and number not in found:
            found.add(number)
            if made[number].name != "dot":
                waiting += made[number].inputs
    return found
