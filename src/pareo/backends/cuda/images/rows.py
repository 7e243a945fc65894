"""Which parts of a training step can be computed image by image.

A program's values are of three kinds: those of the network (parameters, constants and what follows
from them alone), rows (one for each image, along the first axis), and totals over all images, such
as gradients of parameters. Instructions that make rows or totals of rows belong to a kernel that
has a block for each image; all others run before or after it. A row that depends on a total, as
after the statistics of a batch, begins another kernel.
"""

from dataclasses import dataclass, field

import numpy as np

from pareo.backends.cuda.images.norms import in_steps
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
NORMS = {"norm_rows", "norm_rows_gradient"}
ROWS |= NORMS | {
    "conv",
    "conv_input_gradient",
    "concat",
    "mean",
    "sum",
    "dot",
    "cross_entropy_gradient",
}


class Unsupported(Exception):
    """A program that cannot be computed image by image, and why."""


@dataclass
class Split:
    """The instructions of one kernel, and those that run between it and the one before."""

    program: Program
    batch: int
    rows: set[int]  # of all kernels
    transposed: dict[int, int]  # matrices of the network
    before: list[Instruction] = field(default_factory=list)
    inside: list[Instruction] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)
    saved: list[int] = field(default_factory=list)  # rows that others read

    def dims(self, number: int) -> tuple[int, ...]:
        """The shape of an image's part of a value: its first axis has the batch left out."""
        shape = self.program.specs[number].shape
        return (shape[0] // self.batch, *shape[1:]) if number in self.rows else shape

    def size(self, number: int) -> int:
        """The elements of an image's part of a value."""
        return int(np.prod(self.dims(number), dtype=int))


@dataclass
class Parts:
    """A program as kernels with a block for each image, and what runs after the last of them."""

    kernels: list[Split]
    after: list[Instruction]


def split(program: Program) -> Parts:
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
    program = in_steps(program)
    rows, transposed = set(images), dict[int, int]()
    batch = program.specs[images[0]].shape[0]
    parts = Parts([Split(program, batch, rows, transposed)], [])
    columns: set[int] = set()  # transposed rows
    later: set[int] = set()  # what depends on totals of the current kernel
    for one in program.instructions:
        read = set(one.inputs)
        if read & later and read & rows:
            parts.kernels.append(Split(program, batch, rows, transposed, before=parts.after))
            parts.after, later = [], set()
        current = parts.kernels[-1]
        if read & later or read & columns:
            if read & columns and not _is_product(one, columns, rows):
                raise Unsupported(f"{one.name} of transposed rows")
            parts.after.append(one)
            later.update(one.outputs)
        elif not read & rows:
            current.before.append(one)
            if one.name == "transpose" and one.attributes["axes"] == (1, 0):
                transposed[one.outputs[0]] = one.inputs[0]
        elif one.name == "transpose":
            if one.attributes["axes"] != (1, 0) or program.specs[one.inputs[0]].ndim != 2:
                raise Unsupported("transpose of images")
            parts.after.append(one)
            columns.update(one.outputs)
        elif _is_total(one):
            current.inside.append(one)
            current.totals += one.outputs
            later.update(one.outputs)
        elif one.name in ROWS:
            current.inside.append(one)
            rows.update(one.outputs)
            _check_row(current, one)
        else:
            raise Unsupported(one.name)
    _save(parts)
    return parts


def _is_product(one: Instruction, columns: set[int], rows: set[int]) -> bool:
    return one.name == "dot" and one.inputs[0] in columns and one.inputs[1] in rows


def _save(parts: Parts) -> None:
    """Note the rows that a kernel leaves to others."""
    needed = set(parts.kernels[0].program.outputs)
    needed.update(n for one in parts.after for n in one.inputs)
    for kernel in reversed(parts.kernels):
        made = {n for one in kernel.inside for n in one.outputs} & kernel.rows
        kernel.saved = sorted(made & needed)
        needed.update(n for one in (*kernel.inside, *kernel.before) for n in one.inputs)


def _is_total(one: Instruction) -> bool:
    if one.name in ("conv_weight_gradient", "cross_entropy", "norm_moments", "norm_sums"):
        return True
    return one.name == "sum" and 0 in one.attributes["axis"]


def _check_row(found: Split, one: Instruction) -> None:
    specs = found.program.specs
    shape = specs[one.outputs[0]].shape
    if shape == () or shape[0] % found.batch or specs[one.outputs[0]].dtype != np.float32:
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
    if one.name in NORMS and shape[0] != found.batch:
        raise Unsupported("batch_norm of other shapes")
    weights = one.inputs[1:] if one.name in ("conv", "conv_input_gradient", "subsample") else ()
    if any(number in found.rows for number in weights):
        raise Unsupported(f"{one.name} with filters of each image")
