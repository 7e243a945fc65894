"""What a program computes: instruction by instruction in float64, and how far rounding moves it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo import Device
from pareo.program import Instruction, Program

UNIT = 2.0**-24  # the largest relative error of one float32 rounding
NOISE = 4 * UNIT  # functions such as tanh are right to 2.6 of them

TRACED = 1e-6  # how far rounding may have moved numbers of about 1, in float32
# Operators that hand their operands' elements on as they are.
MOVING = {
    "argmax", "augment", "broadcast", "clip", "concat", "max", "max_pool", "pad", "part",
    "part_gradient", "relu", "reshape", "split", "take", "transpose",
}  # fmt: skip
# Operators that look for equal elements, which noise would make unequal.
COMPARING = {"max_gradient"}
# Operators that take the difference of numbers near 1 inside, where noise outside is none.
CANCELLING = {
    "batch_norm_gradient", "cross_entropy", "cross_entropy_gradient", "layer_norm_gradient",
    "log_softmax",
}  # fmt: skip


def interpret(
    program: Program, arrays: Sequence[Any], random: np.random.Generator | None = None
) -> list[Any]:
    """The results in float64: no fusion, no plan, no updates.

    With `random`, every instruction reads its operands and leaves its results with relative errors
    of up to `NOISE`, new ones for each reader, as an instruction in float32 would.
    """
    values = dict(zip(program.inputs, arrays, strict=True)) | dict(program.constants)
    place = Device("vectorized", threads=1)
    with place, np.errstate(all="ignore"):
        for instruction in _needed(program):
            operator: Any = instruction.operator
            operands = [values[number] for number in instruction.inputs]
            noisy = random if operator.name not in MOVING else None
            if operator.name not in COMPARING:
                operands = [blurred(operand, noisy) for operand in operands]
            # What calling the operator does, once it knows shapes.
            specs = [program.specs[number] for number in instruction.inputs]
            wanted = tuple(program.specs[number] for number in instruction.outputs)
            result = place.backend.run(
                operator, None, operands, dict(instruction.attributes), specs,
                wanted if len(wanted) > 1 else wanted[0],
            )  # fmt: skip
            results = result if isinstance(result, tuple) else (result,)
            if noisy and operator.name in CANCELLING:
                inside = cancelled(instruction, operands, results[0], noisy)
                results = (results[0] + inside, *results[1:])
            for number, array in zip(instruction.outputs, results, strict=True):
                values[number] = blurred(array, noisy)
    return [np.asarray(values[number]) for number in program.outputs]


def _needed(program: Program) -> list[Instruction]:
    """The instructions that results follow from, in their order."""
    needed, found = set(program.outputs), []
    for instruction in reversed(program.instructions):
        if not needed.isdisjoint(instruction.outputs):
            needed.update(instruction.inputs)
            found.append(instruction)
    return found[::-1]


def blurred(array: Any, random: np.random.Generator | None) -> Any:
    """An array with a small relative error in every element, and float32's range.

    Numbers near the ends of that range may overflow, or become 0, inside an operator.
    """
    if random is None or array.dtype.kind != "f":
        return array
    off = np.asarray(array * (1 + NOISE * random.uniform(-1, 1, array.shape)))
    off[np.abs(off) < 1e-30] = 0
    off[np.abs(off) > 1e30] = np.inf
    return off


def cancelled(
    instruction: Instruction, operands: Sequence[Any], result: Any, random: np.random.Generator
) -> Any:
    """The rounding of a probability that 1 is taken from, of the logarithm of one, or of a slope.

    The gradient of a normalisation takes means from the slopes. Those of a single element are equal
    to it, so that no noise of the operands shows in what is left.
    """
    noise = NOISE * random.uniform(-1, 1, result.shape)
    if instruction.name in ("batch_norm_gradient", "layer_norm_gradient"):
        return noise * _slopes(instruction, operands)
    if instruction.name != "cross_entropy_gradient":
        return noise
    return noise * np.asarray(operands[0])[..., None, None] / result.shape[-2]


def _slopes(instruction: Instruction, operands: Sequence[Any]) -> Any:
    """The largest slopes that a normalisation takes means of."""
    g, x, scale, *statistics = operands
    epsilon = instruction.attributes["epsilon"]
    along = instruction.attributes.get("axis", 1) % x.ndim  # the axis of the scale
    wide = tuple(-1 if axis == along else 1 for axis in range(x.ndim))
    if statistics:
        axes = tuple(axis for axis in range(x.ndim) if axis != along)
        variance = statistics[1].reshape(wide)
    else:
        axes = (along,)
        variance = x.var(axis=along, keepdims=True) if x.size else np.zeros(())
    largest = np.abs(g * scale.reshape(wide)).max(axis=axes, keepdims=True, initial=0)
    return largest / np.sqrt(variance + epsilon)


@dataclass(frozen=True)
class Expected:
    """A result in float64, and how far the noise of float32 moved any of its elements.

    each: how far it moved each of them, where that is known.
    """

    value: Any
    moved: float
    each: Any = None

    @property
    def largest(self) -> float:
        return float(np.abs(self.value).max(initial=0))

    @property
    def stable(self) -> bool:
        """Whether float32 can tell the result at all: no element jumped, nor cancelled."""
        return self.moved <= 1e-3 * max(self.largest, 1e-3)


def expected(
    program: Program, arrays: Sequence[Any], seed: int, runs: int = 4
) -> list[Expected] | None:
    """What each result should be; None where a number is not finite or far out of float32."""
    values = interpret(program, arrays)
    if not all(np.abs(value).max(initial=0) < 1e6 for value in values):  # NaN is not, either
        return None
    # What is made of constants alone is computed when the program is traced, in its own precision:
    # how far rounding took it there cannot be seen here.
    moved = [TRACED if number in program.constants else 0.0 for number in program.outputs]
    for run in range(runs):
        for place, other in enumerate(
            interpret(program, arrays, np.random.default_rng([seed, run]))
        ):
            far = np.abs(other - values[place]).max(initial=0)
            moved[place] = max(moved[place], float(far) if np.isfinite(far) else np.inf)
    return [Expected(value, far) for value, far in zip(values, moved, strict=True)]
