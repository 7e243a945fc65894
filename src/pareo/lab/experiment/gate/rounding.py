"""How far a training step in float64 moves when each of its values is rounded to a precision.

The step's program runs instruction by instruction. Every value is rounded to as many bits as the
named precision has, on a grid whose place is drawn: equal values are rounded alike, as on hardware,
so an error that many equal pixels share adds up here as it does there. A rounded value may fall on
the other side of a ReLU's kink, or become the largest of its window: that is measured, too.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo.device import Device
from pareo.nn.network import Sequential
from pareo.operators.core import Operator
from pareo.program import remove_common, remove_dead, trace, value_and_grad
from pareo.program.ir import Instruction, readers
from pareo.spec import Spec

# Bits of a value. float32 has 24; most values are the end of a sum in which each step was rounded:
# two bits less stand for that. Factors of products have 11 bits in tf32 and 8 in bfloat16, and sums
# are float32's, far more exact.
BITS = {"float32": 22, "tf32": 11, "bfloat16": 8}
DOUBLE = 53  # bits of float64
# The largest part by which a number is off that is rounded. Products are summed in float32 whatever
# their factors are; who has all arrays in bfloat16 may add up a bias' gradient in it, too (JAX does
# on a CPU, and is off by 0.1 in the first bias of papers-cnn).
UNIT = 2.0**-24
UNITS = {"float32": UNIT, "tf32": UNIT, "bfloat16": 2.0**-8}
DRAWS = 3  # runs on different grids
PIECE = 1 << 15  # elements that are rounded at once, in the cache
SUMS = ("dot", "sum", "conv_weight_gradient")  # how the gradient of a parameter is added up


@dataclass(frozen=True)
class Reach:
    """How far rounding takes a batch's loss and gradients, as the length of the difference.

    loss: the largest of the draws. gradients: the median of the draws, for each parameter.
    sums: what adding up a parameter's gradient, in any order, may cost.
    """

    loss: float
    gradients: dict[str, float]
    sums: dict[str, float]


class Rounded:
    """Loss and gradients of a batch in float64, each value rounded, or none.

    >>> from pareo import nn
    >>> run = Rounded(nn.Sequential([nn.Dense(2)], (3,)), batch=1)
    >>> parameters = {"0.w": np.eye(3, 2), "0.b": np.zeros(2)}
    >>> loss, gradients = run(parameters, np.ones((1, 3)), np.array([0]))
    >>> gradients["0.b"]
    array([-0.5,  0.5])
    """

    def __init__(self, network: Sequential, batch: int, threads: int = 1) -> None:
        shapes = {
            path: Spec(p.shape, "float64") for path, p in network.parameters(network.inputs).items()
        }
        images, labels = Spec((batch, *network.inputs), "float64"), Spec((batch,), "int64")
        traced = trace(value_and_grad(network.loss), shapes, images, labels)
        self._program = remove_dead(remove_common(traced))
        self._device = Device("vectorized", threads=threads)
        self._paths = list(shapes)
        self._last = {n: max(at, default=-1) for n, at in readers(self._program).items()}
        self._summed = self._sums()

    def _sums(self) -> dict[int, str]:
        """The parameters, by the value that is the sum of their gradient, before it is reshaped."""
        made = {n: each for each in self._program.instructions for n in each.outputs}
        found = {}
        for path, number in zip(self._paths, self._program.outputs[1:], strict=True):
            while number in made and looks(made[number]):
                number = made[number].inputs[0]
            if number in made and made[number].name in SUMS:
                found[number] = path
        return found

    def __call__(
        self,
        parameters: dict[str, Any],
        images: Any,
        labels: Any,
        grid: "Grid | None" = None,
        sums: "Sums | None" = None,
    ) -> tuple[float, dict[str, Any]]:
        """Loss and gradients, on a grid or exact; `sums` collects how gradients add up."""
        given = [np.array(parameters[path], np.float64) for path in self._paths]
        given.append(np.array(images, np.float64))
        if grid:
            for array in given:
                grid.round(array)
        with self._device:
            loss, *gradients = self._run([*given, labels], grid, sums)
        return float(loss), dict(zip(self._paths, gradients, strict=True))

    def reach(
        self, parameters: dict[str, Any], images: Any, labels: Any, precision: str
    ) -> tuple[Reach, float, dict[str, Any]]:
        """How far rounding takes loss and gradients, and both as they are."""
        sums = Sums(UNITS[precision])
        loss, exact = self(parameters, images, labels, sums=sums)
        losses, lengths = [], []
        for draw in range(DRAWS):
            other, rounded = self(parameters, images, labels, Grid(BITS[precision], draw))
            losses.append(abs(other - loss))
            lengths.append([float(np.linalg.norm(rounded[path] - exact[path])) for path in exact])
        median = dict(zip(exact, np.median(lengths, axis=0).tolist(), strict=True))
        in_order = UNIT * len(labels) ** 0.5 * abs(loss)  # a mean is a sum, too
        return Reach(max(losses) + in_order, with_larger(median, exact), sums.errors), loss, exact

    def _run(self, arguments: list[Any], grid: "Grid | None", sums: "Sums | None") -> list[Any]:
        program = self._program
        values = {**dict(zip(program.inputs, arguments, strict=True)), **program.constants}
        for position, instruction in enumerate(program.instructions):
            operands = [values[number] for number in instruction.inputs]
            for number, array in self._results(instruction, operands):
                values[number] = array
                if grid and not looks(instruction):
                    grid.round_result(instruction, operands, array)
                if sums is not None and number in self._summed:
                    ((_, sizes),) = self._results(instruction, [np.abs(a) for a in operands])
                    sums.add(self._summed[number], instruction, sizes, array)
            for number in instruction.inputs:
                if self._last[number] == position and number not in program.outputs:
                    values.pop(number, None)
        return [values[number] for number in program.outputs]

    def _results(self, instruction: Instruction, operands: list[Any]) -> list[tuple[int, Any]]:
        """What an instruction makes of its operands, by number."""
        specs = [self._program.specs[number] for number in instruction.inputs]
        out: Any = tuple(self._program.specs[number] for number in instruction.outputs)
        assert isinstance(instruction.operator, Operator)  # nothing is fused here
        made = self._device.backend.run(
            instruction.operator, None, operands, dict(instruction.attributes), specs,
            out if len(out) > 1 else out[0],
        )  # fmt: skip
        return list(zip(instruction.outputs, made if len(out) > 1 else (made,), strict=True))


def looks(instruction: Instruction) -> bool:
    """Whether an instruction computes nothing: its result is a view."""
    return instruction.is_view


def with_larger(lengths: dict[str, float], gradients: dict[str, Any]) -> dict[str, float]:
    """Lengths of which none is by chance smaller than that of a larger parameter of its layer.

    Draws may hardly move a bias that is one number, which is then off by more in any honest step;
    it is a sum of the same gradients as its layer's weights, so they say what to expect.

    >>> with_larger({"0.w": 0.2, "0.b": 0.001}, {"0.w": np.ones((2, 2)), "0.b": np.ones(1)})
    {'0.w': 0.2, '0.b': 0.1}
    """
    whole = {path: float(np.linalg.norm(gradient)) for path, gradient in gradients.items()}
    found = dict(lengths)
    for path in lengths:
        for other in lengths:
            of_layer = path.rpartition(".")[0] == other.rpartition(".")[0]
            if of_layer and gradients[other].size > gradients[path].size and whole[other]:
                found[path] = max(found[path], lengths[other] / whole[other] * whole[path])
    return found


class Sums:
    """How far the sum of a parameter's gradient may be off, of terms that are added one by one.

    Each partial sum is rounded by a part of up to one unit. None is larger than half of what the
    terms' sizes and the total's add up to, and n roundings that are independent add up to sqrt(n)
    of them (Higham and Mary, 2019). A sum that cancels is small beside that.
    """

    def __init__(self, unit: float) -> None:
        self._unit = unit
        self.errors: dict[str, float] = {}

    def add(self, path: str, instruction: Instruction, sizes: Any, total: Any) -> None:
        """Note a parameter's sum, of terms whose sizes add up to `sizes`."""
        plain = instruction.name == "sum"
        terms = instruction.flops / ((1 if plain else 2) * max(1, total.size))
        unit = self._unit if plain else UNIT
        length = float(np.linalg.norm(sizes + np.abs(total)))
        self.errors[path] = unit * terms**0.5 * length / 2


class Grid:
    """Rounds arrays in place to a number of bits, on a grid that is drawn for each array.

    >>> x = np.array([1.0, 1.0, 3.0, 0.0])
    >>> Grid(8, draw=0).round(x)
    >>> bool(x[0] == x[1] != 1.0), float(x[3]), bool(abs(x[2] - 3) < 3 / 256)
    (True, 0.0, True)
    """

    def __init__(self, bits: int, draw: int) -> None:
        self._draw = np.random.default_rng(draw)
        self._drop = DOUBLE - bits

    def round(self, array: Any) -> None:
        """Round each element: of its bits, times a number between 1 and 2, the first ones stay."""
        scale = self._draw.uniform(1, 2)
        flat = array.reshape(-1)
        for start in range(0, flat.size, PIECE):
            piece = flat[start : start + PIECE]
            piece *= scale
            bits = piece.view(np.int64)
            bits += 1 << (self._drop - 1)
            bits &= -(1 << self._drop)
            piece /= scale

    def round_result(self, instruction: Instruction, operands: list[Any], array: Any) -> None:
        """Round a result; where an operator ends in a difference, round what it subtracts from."""
        match instruction.name:
            case "cross_entropy":  # the logarithm of a sum that is 1 or more
                array += 1
                self.round(array)
                array -= 1
            case "cross_entropy_gradient":  # probabilities, less 1 where the label is
                gradient, _, labels = operands
                rows, one = np.arange(len(labels)), gradient / len(labels)
                array[rows, labels] += one
                self.round(array)
                array[rows, labels] -= one
            case _:
                self.round(array)
