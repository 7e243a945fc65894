"""Operands of operators: arrays of floats or labels, and shapes of a number of floats."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

ROW = 1024
CLASSES = 1000
BLOCK = 4_000_037  # numbers drawn before they repeat: a prime, so rows differ


@dataclass(frozen=True)
class Values:
    """An operand of floats between two bounds."""

    shape: tuple[int, ...]
    low: float = -1.0
    high: float = 1.0

    def array(self, seed: int) -> Any:
        """The operand, the same for all contestants."""
        count = math.prod(self.shape)
        drawn = np.random.default_rng(seed).random(min(count, BLOCK), np.float32)
        drawn = drawn * np.float32(self.high - self.low) + np.float32(self.low)
        return np.resize(drawn, self.shape)


@dataclass(frozen=True)
class Labels:
    """An operand of whole numbers: a class for each row."""

    shape: tuple[int, ...]

    def array(self, seed: int) -> Any:
        """The operand, the same for all contestants."""
        return np.random.default_rng(seed).integers(0, CLASSES, self.shape)


def rows(floats: float, arrays: float, width: int = ROW) -> tuple[int, int]:
    """The shape of one of the arrays that share the floats."""
    return max(1, round(floats / arrays / width)), width


def same(arrays: int, *bounds: tuple[float, float], of: int) -> Callable[[int], Any]:
    """A maker of operands of one shape; there are `of` arrays in all, with the result."""
    bounds = bounds or ((-1.0, 1.0),) * arrays
    return lambda floats: (tuple(Values(rows(floats, of), *b) for b in bounds), {})


def images(floats: float, channels: int, size: int, share: float) -> tuple[int, ...]:
    """The shape of images that have this share of all floats."""
    return max(1, round(floats * share / (channels * size**2))), channels, size, size
