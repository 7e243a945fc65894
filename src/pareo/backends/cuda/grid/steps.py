"""Instructions that take two levels, as two instructions with a value between them.

Results that are sums over the whole batch are computed in parts first: the loss from those of the
rows, the gradients of a layer normalisation's scale and shift from the statistics of the rows, long
sums and the gradients of filters from those of some pixels. The first of the two has all FLOPs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pareo.backends.cuda.grid import tiles
from pareo.backends.cuda.grid.shapes import Product, weight_product
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
UPDATE, GATHER = _step("update"), _step("gather")


def in_steps(instructions: Sequence[Instruction], specs: dict[int, Spec]) -> list[Instruction]:
    """The instructions, some of them as two; adds to `specs`."""
    found: list[Instruction] = []

    def new(*shape: int) -> int:
        number = max(specs) + 1
        specs[number] = Spec(shape)
        return number

    def add(
        fusion: Fusion, inputs: tuple[int, ...], outputs: tuple[int, ...], how: Mapping[str, Any],
        one: Instruction, flops: int = 0,
    ) -> None:  # fmt: skip
        found.append(Instruction(fusion, inputs, outputs, how, flops, one.bytes // 2))

    for one in instructions:
        if one.name == "cross_entropy":
            rows = new(specs[one.inputs[0]].shape[0])
            add(ROW_LOSSES, one.inputs, (rows,), {}, one, one.flops)
            add(ADD_PARTS, (rows,), one.outputs, {"parts": specs[rows].size}, one)
        elif one.name == "layer_norm_gradient":
            g, x, scale = one.inputs
            to_x, *sums = one.outputs
            count = specs[x].size // specs[scale].size
            mean, inverse = new(count), new(count)
            add(LAYER_ROWS, one.inputs, (to_x, mean, inverse), one.attributes, one, one.flops)
            add(LAYER_SUMS, (g, x, mean, inverse), (*sums,), one.attributes, one)
        elif one.name == "sum" and (parts := tiles.parts_of_sum(*_sizes(one, specs))) > 1:
            made = new(parts, specs[one.outputs[0]].size)
            add(PART_SUMS, one.inputs, (made,), {**one.attributes, "parts": parts}, one, one.flops)
            add(ADD_PARTS, (made,), one.outputs, {"parts": parts}, one)
        elif (
            one.name == "conv_weight_gradient"
            and (parts := tiles.parts_of(_product(one, specs))) > 1
        ):
            made = new(parts, specs[one.outputs[0]].size)
            found.append(
                Instruction(one.operator, one.inputs, (made,), one.attributes, one.flops, one.bytes)
            )
            add(ADD_PARTS, (made,), one.outputs, {"parts": parts}, one)
        else:
            found.append(one)
    return found


def _sizes(one: Instruction, specs: dict[int, Spec]) -> tuple[int, int]:
    """How many sums an instruction has, and of how many terms."""
    sums = specs[one.outputs[0]].size
    return sums, specs[one.inputs[0]].size // sums


def _product(one: Instruction, specs: dict[int, Spec]) -> Product:
    images, errors = (specs[n].shape for n in one.inputs)
    return weight_product(images, errors, one.attributes)
