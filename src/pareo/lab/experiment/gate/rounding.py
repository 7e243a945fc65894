"""How far a training step in float64 moves when each of its values is rounded to a precision.

The step's program runs instruction by instruction. Every value is rounded to the bits of the named
precision, on a grid with a random offset. Equal values are rounded alike, as on hardware, so an
error that many equal pixels share adds up here as it does there. A rounded value may cross the kink
of a ReLU, or become the largest of its window: that is measured, too.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pareo.device import Device
from pareo.lab.experiment.gate.grid import BITS, Grid, Normalised, is_normalisation
from pareo.nn.network import Sequential
from pareo.operators.core import Operator
from pareo.program import remove_common, remove_dead, trace, value_and_grad
from pareo.program.ir import Instruction, readers
from pareo.spec import Spec
from pareo.training.losses import CrossEntropy, Loss

# The largest relative error of a rounded number. Products are summed in float32 whatever their
# factors are. A contestant with all arrays in bfloat16 may also add up the gradient of a bias in it
# (JAX does on a CPU, and is off by 0.1 in the first bias of papers-cnn).
UNIT = 2.0**-24
UNITS = {"float32": UNIT, "tf32": UNIT, "bfloat16": 2.0**-8}
DRAWS = 3  # runs on different grids
# Of float32's values few cross a kink, in every step others. Values that are rounded to this many
# bits fewer cross 2^COARSER times as many, whose errors add up to the square root of that.
COARSER = 8
KINKS = ("relu", "leaky_relu", "clip", "hard_sigmoid", "hard_swish", "max_pool", "max")
# How the gradient of a parameter is added up, with the FLOPs that the operator has for each term.
SUMS = {"dot": 2, "sum": 1, "conv_weight_gradient": 2, "batch_norm_gradient": 9}
SUMS["layer_norm_gradient"] = 14


class Found(NamedTuple):
    """What a step computes: its loss, the gradients, and the new state of layers, by path."""

    loss: float
    gradients: dict[str, Any]
    state: dict[str, Any]


@dataclass(frozen=True)
class Reach:
    """The effect of rounding on a batch's loss, gradients and new state, as norms of differences.

    loss: the largest of the draws. gradients: the median of the draws, for each parameter.
    sums: the error of adding up a parameter's gradient, in any order.
    kinks: the error of a gradient because values cross kinks, expected of all draws.
    state: the largest of the draws, for each running statistic.
    """

    loss: float
    gradients: dict[str, float]
    sums: dict[str, float]
    kinks: dict[str, float]
    state: dict[str, float]


class Rounded:
    """Loss, gradients and new state of a batch in float64, each value rounded, or none.

    >>> from pareo import nn
    >>> run = Rounded(nn.Sequential([nn.Dense(2)], (3,)), batch=1)
    >>> parameters = {"0.w": np.eye(3, 2), "0.b": np.zeros(2)}
    >>> run(parameters, np.ones((1, 3)), np.array([0])).gradients["0.b"]
    array([-0.5,  0.5])
    """

    def __init__(
        self,
        network: Sequential,
        batch: int,
        threads: int = 1,
        loss: Loss = CrossEntropy(),  # noqa: B008  (frozen)
    ) -> None:
        shapes = {
            path: Spec(p.shape, "float64") for path, p in network.parameters(network.inputs).items()
        }
        self._paths, self._state = list(shapes), network.state
        images = Spec((batch, *network.inputs), "float64")
        self._labels = loss.targets(batch, network.classes, "float64")
        traced = trace(_step(network, loss), shapes, images, self._labels)
        self._program = remove_dead(remove_common(traced))
        self._device = Device("vectorized", threads=threads)
        self._trained = [path for path in self._paths if path not in self._state]
        self._last = {n: max(at, default=-1) for n, at in readers(self._program).items()}
        self._summed = self._sums()

    def _sums(self) -> dict[int, str]:
        """The parameters, by the value that is the sum of their gradient, before it is reshaped."""
        made = {n: each for each in self._program.instructions for n in each.outputs}
        found = {}
        gradients = self._program.outputs[1 : 1 + len(self._trained)]
        for path, number in zip(self._trained, gradients, strict=True):
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
        grid: Grid | None = None,
        sums: "Sums | None" = None,
    ) -> Found:
        """A step, on a grid or exact; `sums` collects how gradients add up."""
        given = [np.array(parameters[path], np.float64) for path in self._paths]
        given.append(np.array(images, np.float64))
        if grid:
            for path, array in zip(self._paths, given, strict=False):
                if path not in self._state:  # running statistics are float32 in any precision
                    grid.round(array)
            grid.round(given[-1])
        with self._device:
            loss, *rest = self._run([*given, np.asarray(labels, self._labels.dtype)], grid, sums)
        gradients = dict(zip(self._trained, rest, strict=False))
        state = dict(zip(self._state, rest[len(gradients) :], strict=True))
        return Found(float(loss), gradients, state)

    def reach(
        self, parameters: dict[str, Any], images: Any, labels: Any, precision: str
    ) -> tuple[Reach, Found]:
        """The effect of rounding on a step, and the step without rounding."""
        sums = Sums(UNITS[precision])
        exact = self(parameters, images, labels, sums=sums)
        losses, lengths, moves = [], [], []
        for draw in range(DRAWS):
            other = self(parameters, images, labels, Grid(BITS[precision], draw))
            losses.append(abs(other.loss - exact.loss))
            lengths.append(_distances(other.gradients, exact.gradients))
            moves.append(_distances(other.state, exact.state))
        median = dict(zip(self._trained, np.median(lengths, axis=0).tolist(), strict=True))
        furthest = dict(zip(self._state, np.max(moves, axis=0).tolist(), strict=True))
        in_order = UNIT * len(labels) ** 0.5 * abs(exact.loss)  # a mean is a sum, too
        gradients = with_larger(median, exact.gradients)
        kinks = {}
        if precision == "float32" and any(i.name in KINKS for i in self._program.instructions):
            coarse = self(parameters, images, labels, Grid(BITS[precision] - COARSER, DRAWS))
            far = _distances(coarse.gradients, exact.gradients)
            kinks = {path: a / 2 ** (COARSER / 2) for path, a in zip(median, far, strict=True)}
        return Reach(max(losses) + in_order, gradients, sums.errors, kinks, furthest), exact

    def _run(self, arguments: list[Any], grid: Grid | None, sums: "Sums | None") -> list[Any]:
        program = self._program
        values = {**dict(zip(program.inputs, arguments, strict=True)), **program.constants}
        for position, instruction in enumerate(program.instructions):
            operands = [values[number] for number in instruction.inputs]
            made = self._results(instruction, operands)
            if grid and not looks(instruction):
                grid.round_results(instruction, operands, made)
            values.update(zip(instruction.outputs, made, strict=True))
            summed = [number for number in instruction.outputs if number in self._summed]
            if sums is not None and summed:
                sizes = self._sizes(instruction, operands)
                for number, array, size in zip(instruction.outputs, made, sizes, strict=True):
                    if number in summed:
                        sums.add(self._summed[number], instruction, size, array)
            for number in instruction.inputs:
                if self._last[number] == position and number not in program.outputs:
                    values.pop(number, None)
        return [values[number] for number in program.outputs]

    def _sizes(self, instruction: Instruction, operands: list[Any]) -> list[Any]:
        """The results of an instruction that adds up, with all terms made positive."""
        if not is_normalisation(instruction):
            return self._results(instruction, [np.abs(a) for a in operands])
        g, x, scale, *_ = operands
        parts = Normalised.of(instruction, x, scale)
        return [None, parts.total(np.abs(g * parts.normal)), parts.total(np.abs(g))]

    def _results(self, instruction: Instruction, operands: list[Any]) -> list[Any]:
        """The results of an instruction."""
        specs = [self._program.specs[number] for number in instruction.inputs]
        out: Any = tuple(self._program.specs[number] for number in instruction.outputs)
        assert isinstance(instruction.operator, Operator)  # nothing is fused here
        made = self._device.backend.run(
            instruction.operator, None, operands, dict(instruction.attributes), specs,
            out if len(out) > 1 else out[0],
        )  # fmt: skip
        return list(made) if len(out) > 1 else [made]


def _step(network: Sequential, of_outputs: Loss) -> Any:
    """The function that is traced: loss, gradients of what is trained, new state."""
    state = network.state

    def step(parameters: Any, images: Any, labels: Any) -> Any:
        kept = {path: parameters[path] for path in state}
        trained = {path: a for path, a in parameters.items() if path not in kept}
        replaced: dict[str, Any] = {}

        def loss(trained: Any) -> Any:
            total, new = network.loss_and_state(
                {**trained, **kept}, images, labels, loss=of_outputs
            )
            replaced.update(new)
            return total

        found, gradients = value_and_grad(loss)(trained)
        return found, gradients, {path: replaced[path] for path in state}

    return step


def _distances(some: dict[str, Any], others: dict[str, Any]) -> list[float]:
    return [float(np.linalg.norm(some[path] - others[path])) for path in others]


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
        terms = instruction.flops / (SUMS[instruction.name] * max(1, total.size))
        unit = self._unit if instruction.name == "sum" else UNIT
        length = float(np.linalg.norm(sizes + np.abs(total)))
        self.errors[path] = unit * terms**0.5 * length / 2
