"""Initial weights: each parameter has a random stream of its own, from the seed and its path."""

import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from pareo.errors import ShapeError

Draw = Callable[[np.random.Generator, tuple[int, ...], int, int], Any]


def _uniform(bound: Callable[[int, int], float]) -> Draw:
    def draw(random: np.random.Generator, shape: tuple[int, ...], fan_in: int, fan_out: int) -> Any:
        limit = bound(fan_in, fan_out)
        return random.uniform(-limit, limit, shape)

    return draw


def _normal(deviation: Callable[[int, int], float]) -> Draw:
    def draw(random: np.random.Generator, shape: tuple[int, ...], fan_in: int, fan_out: int) -> Any:
        return random.standard_normal(shape) * deviation(fan_in, fan_out)

    return draw


def _he_out(random: np.random.Generator, shape: tuple[int, ...], fan_in: int, fan_out: int) -> Any:
    """By the fan-out of filters (K, C / groups, kh, kw), which PyTorch counts over all groups."""
    outputs = shape[0] * math.prod(shape[2:]) if len(shape) == 4 else fan_out
    return random.standard_normal(shape) * math.sqrt(2 / outputs)


INITIALISERS: dict[str, Draw] = {
    "zeros": lambda random, shape, fan_in, fan_out: np.zeros(shape),
    "ones": lambda random, shape, fan_in, fan_out: np.ones(shape),
    "small": lambda random, shape, fan_in, fan_out: np.full(shape, 1e-6),
    "normal_1e-6": _normal(lambda fan_in, fan_out: 1e-6),
    "normal_0.01": _normal(lambda fan_in, fan_out: 0.01),
    "normal_0.02": _normal(lambda fan_in, fan_out: 0.02),
    "he_out": _he_out,
    "he_uniform": _uniform(lambda fan_in, fan_out: math.sqrt(6 / fan_in)),
    "glorot": _uniform(lambda fan_in, fan_out: math.sqrt(6 / (fan_in + fan_out))),
    "he": _normal(lambda fan_in, fan_out: math.sqrt(2 / fan_in)),
    "lecun": _normal(lambda fan_in, fan_out: math.sqrt(1 / fan_in)),
    "fan_in": _uniform(lambda fan_in, fan_out: math.sqrt(1 / fan_in)),
    "fan_out_uniform": _uniform(lambda fan_in, fan_out: math.sqrt(1 / fan_out)),
}


def initialise(
    name: str, shape: tuple[int, ...], fans: tuple[int, int], seed: int, path: str, dtype: Any
) -> Any:
    """The initial value of the parameter at `path`; `fans` are its fan-in and fan-out.

    >>> initialise("zeros", (2,), (1, 1), seed=0, path="b", dtype="float32")
    array([0., 0.], dtype=float32)
    """
    if name not in INITIALISERS:
        known = ", ".join(INITIALISERS)
        raise ShapeError(f"expected an initialiser of {known}; got '{name}'")
    random = np.random.default_rng([seed, zlib.crc32(path.encode())])
    return np.asarray(INITIALISERS[name](random, shape, *fans), dtype)
