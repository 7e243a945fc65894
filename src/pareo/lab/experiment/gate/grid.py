"""Rounding of values to a number of bits, as hardware of a precision does it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo.program.ir import Instruction

# Bits of a value. float32 has 24; most values are the result of a sum in which each step was
# rounded, which two bits less account for. Factors of products have 11 bits in tf32 and 8 in
# bfloat16; sums are in float32, far more exact.
BITS = {"float32": 22, "tf32": 11, "bfloat16": 8}
DOUBLE = 53  # bits of float64
PIECE = 1 << 15  # elements that are rounded at once, in the cache


class Grid:
    """Rounds arrays in place to a number of bits, on a grid that is drawn for each array.

    >>> x = np.array([1.0, 1.0, 3.0, 0.0])
    >>> Grid(8, draw=0).round(x)
    >>> bool(x[0] == x[1] != 1.0), float(x[3]), bool(abs(x[2] - 3) < 3 / 256)
    (True, 0.0, True)
    """

    def __init__(self, bits: int, draw: int) -> None:
        self._draw = np.random.default_rng(draw)
        self._bits = bits

    def round(self, array: Any, bits: int | None = None) -> None:
        """Round each element: of its bits, times a number between 1 and 2, the first ones stay."""
        drop = DOUBLE - (bits or self._bits)
        scale = self._draw.uniform(1, 2)
        flat = array.reshape(-1)
        for start in range(0, flat.size, PIECE):
            piece = flat[start : start + PIECE]
            piece *= scale
            found = piece.view(np.int64)
            found += 1 << (drop - 1)
            found &= -(1 << drop)
            piece /= scale

    def round_results(self, instruction: Instruction, operands: list[Any], made: list[Any]) -> None:
        """Round results; where an operator ends in a difference, round what it subtracts from.

        What normalisations compute inside, and statistics, is float32 in any precision.
        """
        match instruction.name:
            case "cross_entropy":  # the logarithm of a sum that is 1 or more
                made[0] += 1
                self.round(made[0])
                made[0] -= 1
            case "cross_entropy_gradient":  # probabilities, less 1 where the label is
                gradient, _, labels = operands
                rows, one = np.arange(len(labels)), gradient / len(labels)
                made[0][rows, labels] += one
                self.round(made[0])
                made[0][rows, labels] -= one
            case "batch_norm":
                self._round_statistics(made[1], made[2])
                x, scale, shift = operands
                parts = Normalised.of(instruction, x, scale, made[1], made[2])
                made[0][...] = parts.normal * parts.wide(scale) + parts.wide(shift)
                self.round(made[0])
            case "layer_norm":
                x, scale, _ = operands
                made[0] += self._fine_error(x) * Normalised.of(instruction, x, scale).slope
                self.round(made[0])
            case "batch_norm_gradient" | "layer_norm_gradient":
                g, x, scale, *statistics = operands
                slope = Normalised.of(instruction, x, scale, *statistics).slope
                made[0] += self._fine_error(g * slope)
                self.round(made[0])
                for sums in made[1:]:
                    self.round(sums, BITS["float32"])
            case "attention_with_sums":
                self.round(made[0])
                self.round(made[1], BITS["float32"])
            case _:
                for array in made:
                    self.round(array)

    def _round_statistics(self, mean: Any, variance: Any) -> None:
        """A mean is a sum that may cancel; a variance may be the mean square less its square."""
        spread, square = np.sqrt(variance), mean * mean
        for array, beside in ((mean, spread), (variance, square)):
            array += beside
            self.round(array, BITS["float32"])
            array -= beside
        np.maximum(variance, 0, out=variance)

    def _fine_error(self, array: Any) -> Any:
        """What rounding to float32 changes."""
        rounded = array.copy()
        self.round(rounded, BITS["float32"])
        return rounded - array


def is_normalisation(instruction: Instruction) -> bool:
    """Whether an instruction is batch or layer normalisation, or the gradient of it."""
    return instruction.name.removesuffix("_gradient") in ("batch_norm", "layer_norm")


@dataclass(frozen=True)
class Normalised:
    """The parts of a normalisation.

    normal: x with mean 0 and variance 1. slope: what each element of x is multiplied by.
    axis: where the scale lies.
    """

    normal: Any
    slope: Any
    axis: int

    @classmethod
    def of(
        cls, instruction: Instruction, x: Any, scale: Any, mean: Any = None, variance: Any = None
    ) -> "Normalised":
        """The parts of an instruction's result, with statistics that are given or x's own."""
        epsilon: Any = instruction.attributes["epsilon"]
        by_batch = instruction.name.startswith("batch_norm")
        axis = 1 if by_batch else int(instruction.attributes["axis"]) % x.ndim
        own = tuple(a for a in range(x.ndim) if a != axis) if by_batch else axis
        if mean is None:
            mean, variance = x.mean(axis=own, keepdims=True), x.var(axis=own, keepdims=True)
        else:
            mean, variance = along(mean, x, axis), along(variance, x, axis)
        inverse = 1 / np.sqrt(variance + epsilon)
        return cls((x - mean) * inverse, inverse * along(scale, x, axis), axis)

    def wide(self, vector: Any) -> Any:
        """A scale or a shift, in a shape that broadcasts."""
        return along(vector, self.normal, self.axis)

    def total(self, array: Any) -> Any:
        """The sum of all that is multiplied by one element of the scale."""
        return array.sum(axis=tuple(a for a in range(array.ndim) if a != self.axis))


def along(vector: Any, x: Any, axis: int) -> Any:
    """A vector along one axis of x, in a shape that broadcasts."""
    shape = [1] * x.ndim
    shape[axis] = -1
    return vector.reshape(shape)
