"""Random choices of a drawing: whole numbers, one of several, and heads or tails."""

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")


@dataclass(frozen=True)
class Chance:
    """A generator of random numbers with the choices that a drawing makes.

    >>> chance = Chance(np.random.default_rng(0))
    >>> chance.whole(1, 6), chance.spread(8, 2048), chance.often(0.5)
    (6, 35, True)
    """

    random: np.random.Generator

    def whole(self, low: int, high: int) -> int:
        """A whole number from low to high, each as likely."""
        return int(self.random.integers(low, high, endpoint=True))

    def spread(self, low: int, high: int) -> int:
        """A whole number from low to high, where 8 to 16 is as likely as 512 to 1024."""
        value = math.exp(self.random.uniform(math.log(low), math.log(high + 1)))
        return min(max(int(value), low), high)

    def one_of(self, *choices: T) -> T:
        """One of several, each as likely."""
        return choices[self.whole(0, len(choices) - 1)]

    def often(self, share: float) -> bool:
        """True in this share of cases."""
        return bool(self.random.random() < share)
