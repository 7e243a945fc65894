"""Initial weights by name, each parameter from its own stream: seed and name decide, not order."""

import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from pareo.errors import ShapeError

Draw = Callable[[np.random.Generator, tuple[int, ...], int, int], Any]


def _uniform(bound: Callable[[int, int], float]) -> Draw:
    def draw(random: np.random.Generator, shape: tuple[int, ...], inward: int, outward: int) -> Any:
        limit = bound(inward, outward)
        return random.uniform(-limit, limit, shape)

    return draw


def _normal(deviation: Callable[[int, int], float]) -> Draw:
    def draw(random: np.random.Generator, shape: tuple[int, ...], inward: int, outward: int) -> Any:
        return random.standard_normal(shape) * deviation(inward, outward)

    return draw


INITIALISERS: dict[str, Draw] = {
    "zeros": lambda random, shape, inward, outward: np.zeros(shape),
    "glorot": _uniform(lambda inward, outward: math.sqrt(6 / (inward + outward))),
    "he": _normal(lambda inward, outward: math.sqrt(2 / inward)),
    "lecun": _normal(lambda inward, outward: math.sqrt(1 / inward)),
    "fan_in": _uniform(lambda inward, outward: math.sqrt(1 / inward)),
}


def initialise(
    name: str, shape: tuple[int, ...], fans: tuple[int, int], seed: int, path: str, dtype: Any
) -> Any:
    """The initial value of the parameter at `path`; fans are the inputs and outputs it connects.

    >>> initialise("zeros", (2,), (1, 1), seed=0, path="b", dtype="float32")
    array([0., 0.], dtype=float32)
    """
    if name not in INITIALISERS:
        known = ", ".join(INITIALISERS)
        raise ShapeError(f"an initialiser is one of {known}; got '{name}'")
    random = np.random.default_rng([seed, zlib.crc32(path.encode())])
    return np.asarray(INITIALISERS[name](random, shape, *fans), dtype)
