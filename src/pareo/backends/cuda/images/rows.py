"""Which part of a training step can be computed image by image.

A program's values are of three kinds: those of the network (parameters, constants and what follows
from them alone), rows (one for each image, along the first axis), and totals over all images, such
as gradients of parameters. An instruction that makes rows or totals of rows belongs to the kernel
that has a block for each image; all others run before or after it.
"""

from dataclasses import dataclass, field

import numpy as np

from pareo.program.ir import Instruction, Program

ELEMENTWISE = {
    "add", "sub", "hadamard", "div", "scale", "add_bias", "broadcast", "relu", "relu_gradient",
    "sigmoid", "sigmoid_gradient", "tanh", "tanh_gradient", "gelu", "gelu_gradient", "silu",
    "silu_gradient", "hard_sigmoid", "hard_sigmoid_gradient", "hard_swish", "hard_swish_gradient",
    "leaky_relu", "leaky_relu_gradient", "clip", "clip_gradient",
}  # fmt: skip
POOLS = {"max_pool", "max_pool_gradient", "average_pool", "average_pool_gradient", "subsample"}
VIEWS = {"reshape", "part"}
ROWS = ELEMENTWISE | POOLS | VIEWS
ROWS |= {"conv", "conv_input_gradient", "concat", "mean", "sum", "dot", "cross_entropy_gradient"}


class Unsupported(Exception):
    """A program that cannot be computed image by image, and why."""


@dataclass
class Split:
    """A program in three parts: before the kernel, in it, and after it."""

    program: Program
    batch: int
    before: list[Instruction] = field(default_factory=list)
    inside: list[Instruction] = field(default_factory=list)
    after: list[Instruction] = field(default_factory=list)
    rows: set[int] = field(default_factory=set)
    totals: list[int] = field(default_factory=list)  # that the kernel leaves in parts
    saved: list[int] = field(default_factory=list)  # rows that instructions after it read
    transposed: dict[int, int] = field(default_factory=dict)  # matrices of the network

    def dims(self, number: int) -> tuple[int, ...]:
        """The shape of an image's part of a value: its first axis has the batch left out."""
        shape = self.program.specs[number].shape
        return (shape[0] // self.batch, *shape[1:]) if number in self.rows else shape

    def size(self, number: int) -> int:
        """The elements of an image's part of a value."""
        return int(np.prod(self.dims(number), dtype=int))


def split(program: Program) -> Split:
    """The parts of a training step.

    Raises:
        Unsupported: it cannot be computed image by image.
    """
    images = [n for n in program.inputs if program.specs[n].batch == 0]
    kinds = [program.specs[n].dtype for n in images]
    if kinds != [np.dtype(np.float32), np.dtype(np.int64)]:
        raise Unsupported("other data than images and labels")
    if any(program.specs[n].batch not in (None, 0) for n in program.inputs):
        raise Unsupported("batches along another axis")
    found = Split(program, program.specs[images[0]].shape[0])
    found.rows.update(images)
    columns: set[int] = set()  # transposed rows
    later: set[int] = set()  # what depends on totals
    for one in program.instructions:
        read = set(one.inputs)
        if read & later:
            if read & (found.rows | columns):
                raise Unsupported(f"{one.name} reads images and totals")
            found.after.append(one)
            later.update(one.outputs)
        elif read & columns:
            if one.name != "dot" or not (one.inputs[0] in columns and one.inputs[1] in found.rows):
                raise Unsupported(f"{one.name} of transposed rows")
            found.after.append(one)
            found.saved.append(one.inputs[1])
            later.update(one.outputs)
        elif not read & found.rows:
            found.before.append(one)
            if one.name == "transpose" and one.attributes["axes"] == (1, 0):
                found.transposed[one.outputs[0]] = one.inputs[0]
        elif one.name == "transpose":
            if one.attributes["axes"] != (1, 0) or program.specs[one.inputs[0]].ndim != 2:
                raise Unsupported("transpose of images")
            found.after.append(one)
            found.saved.append(one.inputs[0])
            columns.update(one.outputs)
        elif _is_total(one):
            found.inside.append(one)
            found.totals += one.outputs
            later.update(one.outputs)
        elif one.name in ROWS:
            found.inside.append(one)
            found.rows.update(one.outputs)
            if any(program.specs[n].shape[:1] == () for n in one.outputs):
                raise Unsupported(one.name)
            _check_row(found, one)
        else:
            raise Unsupported(one.name)
    found.saved += [n for n in program.outputs if n in found.rows]
    found.saved = [n for n in dict.fromkeys(found.saved) if n not in program.inputs]
    return found


def _is_total(one: Instruction) -> bool:
    if one.name in ("conv_weight_gradient", "cross_entropy"):
        return True
    return one.name == "sum" and 0 in one.attributes["axis"]


def _check_row(found: Split, one: Instruction) -> None:
    specs = found.program.specs
    shape = specs[one.outputs[0]].shape
    if shape[0] % found.batch or specs[one.outputs[0]].dtype != np.float32:
        raise Unsupported(f"{one.name} of other shapes")
    if one.name in ("part", "concat") and (one.attributes["axis"] != 1 or shape[0] != found.batch):
        raise Unsupported(f"{one.name} along axis {one.attributes['axis']}")
    if one.name in ("mean", "sum") and 0 in one.attributes["axis"]:
        raise Unsupported(f"{one.name} over images")
    if one.name == "dot" and (
        one.inputs[0] not in found.rows
        or one.inputs[1] in found.rows
        or specs[one.inputs[0]].ndim != 2
        or shape[0] != found.batch
    ):
        raise Unsupported("dot of other shapes")
    weights = one.inputs[1:] if one.name in ("conv", "conv_input_gradient", "subsample") else ()
    if any(number in found.rows for number in weights):
        raise Unsupported(f"{one.name} with filters of each image")
