"""Joins the sums of batch normalisation to the convolution that makes what they sum over.

Lowering computes the statistics of a batch normalisation, and the sums of its backward pass, in
passes over memory of their own. Where a convolution of single pixels makes the images, or the
gradient, it can sum them before it writes them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pareo.backends.cuda.nhwc.conv.convolution import convolution
from pareo.backends.cuda.nhwc.conv.problem import Convolution
from pareo.backends.cuda.nhwc.conv.product_sums import SummedProduct, is_product
from pareo.backends.cuda.nhwc.kernels.table import INSTRUCTIONS
from pareo.program.ir import Instruction, Program, readers
from pareo.program.passes import rewrite
from pareo.spec import Spec

SUMS = ("normalise_back_sums", "normalise_back_sums_by_signs")

# The channels of a tile with which a convolution is faster joined to its sums, or None.
Choice = Callable[[SummedProduct], int | None]


@rewrite
def join_sums(program: Program, choice: Choice) -> Program:
    """The program with a convolution and its sums in one instruction, where that is faster."""
    return _Joining(program, choice).program()


@dataclass(frozen=True)
class _Made:
    """A value that a convolution of single pixels makes."""

    position: int
    conv: Instruction
    problem: Convolution


class _Joining:
    """A program while convolutions are joined to sums."""

    def __init__(self, program: Program, choice: Choice) -> None:
        self.old, self.choice = program, choice
        self.specs = dict(program.specs)
        self.reading = readers(program)
        self.new: list[list[Instruction]] = [[one] for one in program.instructions]
        self.made: dict[int, _Made] = {}
        for position, one in enumerate(program.instructions):
            problem = _problem(program, one)
            if problem is not None and is_product(problem):
                self.made[one.outputs[0]] = _Made(position, one, problem)

    def program(self) -> Program:
        for position, one in enumerate(self.old.instructions):
            if one.name == "channel_statistics":
                self._statistics(position, one)
            elif one.name in SUMS:
                self._back(position, one)
        instructions = tuple(one for some in self.new for one in some)
        return self.old.changed(specs=self.specs, instructions=instructions)

    def _statistics(self, position: int, sums: Instruction) -> None:
        made = self.made.get(sums.inputs[0])
        if made is None or made.conv.name != "conv_forward":
            return
        wide = self.choice(SummedProduct(made.problem, "statistics"))
        if wide is None:
            return
        outputs = (*made.conv.outputs, *sums.outputs)
        flops = made.conv.flops + sums.flops
        joined = self._instruction(
            "product_statistics", made.conv.inputs, outputs, {"wide": wide}, flops
        )
        self.new[made.position], self.new[position] = [joined], []

    def _back(self, position: int, sums: Instruction) -> None:
        signs = sums.name == SUMS[1]
        x, *rest = sums.inputs
        vectors, gradients = tuple(rest[:4]), rest[4 + signs :]
        kept = sums.outputs[2:]  # the gradient before the activation
        for g in gradients:
            made = self.made.get(g)
            if made is None or not self._only_summed(position, sums, g):
                continue
            named = {"signs": tuple(rest[4:5]) if signs else (), "other": tuple(
                other for other in gradients if other != g
            )}  # fmt: skip
            more = tuple(name for name, operands in named.items() if operands)
            activation = "IDENTITY" if signs else sums.attributes["activation"]
            product = SummedProduct(made.problem, "back", activation, more, bool(kept))
            wide = self.choice(product)
            if wide is None:
                continue
            attributes = {
                "activation": activation, "epsilon": sums.attributes["epsilon"], "more": more,
                "limits": (0.0, 0.0) if signs else sums.attributes["limits"],
                "masks": bool(kept), "wide": wide,
            }  # fmt: skip
            self.new[made.position], filters = self._flipped(made)
            inputs = (made.conv.inputs[0], filters, x, *vectors, *named["signs"], *named["other"])
            outputs = (*sums.outputs[:2], *(kept or (g,)))
            flops = made.conv.flops + sums.flops
            joined = self._instruction("product_back_sums", inputs, outputs, attributes, flops)
            self.new[position] = [joined]
            return

    def _only_summed(self, position: int, sums: Instruction, g: int) -> bool:
        """Whether nothing needs a gradient before, or in another form than, the sums leave it."""
        if g in self.old.outputs or sums.inputs.count(g) != 1:
            return False
        others = [p for p in self.reading[g] if p != position]
        return all(p > position for p in others) and not (others and sums.outputs[2:])

    def _flipped(self, made: _Made) -> tuple[list[Instruction], int]:
        """What takes the place of a convolution, and its filters as those of a forward one."""
        filters = made.conv.inputs[1]
        if made.conv.name == "conv_forward":
            return [], filters
        count, *window, channels = self.specs[filters].shape
        number = max(self.specs) + 1
        self.specs[number] = Spec((channels, *window, count), self.specs[filters].dtype)
        return [self._instruction("flipped_filters", (filters,), (number,), {}, 0)], number

    def _instruction(
        self,
        name: str,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        attributes: dict[str, object],
        flops: int,
    ) -> Instruction:
        moved = sum(self.specs[n].nbytes for n in (*inputs, *outputs))
        return Instruction(INSTRUCTIONS[name], inputs, outputs, attributes, flops, moved)


def _problem(program: Program, one: Instruction) -> Convolution | None:
    """The convolution that an instruction computes, if it makes images."""
    if one.name not in ("conv_forward", "conv_backward_data"):
        return None
    first, filters, result = (program.specs[n] for n in (*one.inputs[:2], one.outputs[0]))
    if one.name == "conv_forward":
        return convolution("result", first, filters, result, **one.attributes)
    return convolution("images", result, filters, first, **one.attributes)
