"""Operands for every operator, of a given number of bytes in all, the result included.

Rows of matrices have 1024 elements. Images have the shapes of the middle layers of a network.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pareo.errors import PareoError
from pareo.operators.core import Operator, registry

PAPER = ("add", "mul", "dot", "scalar", "sigmoid", "tanh")
NAMES = {"mul": "hadamard", "scalar": "scale"}  # the paper's names, and pareo's
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


@dataclass(frozen=True)
class Case:
    """One call of an operator: arrays, numbers and attributes."""

    operator: Operator
    operands: tuple[Values | Labels | float, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    many: bool = False  # whether the operands are one list

    def arrays(self) -> list[Any]:
        """The operands that are arrays."""
        return [o.array(seed) for seed, o in enumerate(self.operands) if not isinstance(o, float)]

    def filled(self, arrays: Any) -> list[Any]:
        """The operands, with these arrays in their places among the numbers."""
        left = iter(arrays)
        found = [o if isinstance(o, float) else next(left) for o in self.operands]
        return [found] if self.many else found


def case_of(name: str, nbytes: int) -> Case:
    """The call of an operator whose operands and result have about `nbytes`.

    >>> case_of("mul", 12 * 1024).operands[0].shape
    (1, 1024)
    """
    ours = NAMES.get(name, name)
    if ours not in _makers:
        raise PareoError(_unknown(name))
    operands, attributes = _makers[ours](max(1, nbytes // 4))
    return Case(registry[ours], operands, attributes, many=ours == "concat")


def names() -> list[str]:
    """Every operator that can be measured, by its name in pareo."""
    return list(_makers)


def checked(given: list[str]) -> list[str]:
    """The same names, if each is an operator; PareoError otherwise."""
    for name in given:
        if NAMES.get(name, name) not in _makers:
            raise PareoError(_unknown(name))
    return given


def _unknown(name: str) -> str:
    if name == "reshape":
        return "reshape moves nothing and computes nothing: there is nothing to measure"
    return f"no operator is called {name!r}; there are {', '.join([*NAMES, *_makers])}"


def _rows(floats: float, arrays: float, width: int = ROW) -> tuple[int, int]:
    """The shape of one of the arrays that share the floats."""
    return max(1, round(floats / arrays / width)), width


def _same(arrays: int, *bounds: tuple[float, float], of: int) -> Callable[[int], Any]:
    """A maker of operands of one shape; there are `of` arrays in all, with the result."""
    bounds = bounds or ((-1.0, 1.0),) * arrays
    return lambda floats: (tuple(Values(_rows(floats, of), *b) for b in bounds), {})


def _images(floats: float, channels: int, size: int, share: float) -> tuple[int, ...]:
    """The shape of images that have this share of all floats."""
    return max(1, round(floats * share / (channels * size**2))), channels, size, size


def _dot(floats: int) -> Any:
    side = max(1, math.isqrt(floats // 3))
    return (Values((side, side)), Values((side, side))), {}


def _transpose(floats: int) -> Any:
    side = max(1, math.isqrt(floats // 2))
    return (Values((side, side)),), {}


def _part(floats: int) -> Any:
    rows, width = _rows(floats, 1.5)
    return (Values((rows, width)),), {"axis": 1, "between": (0, width // 2)}


def _part_gradient(floats: int) -> Any:
    rows, _ = _rows(floats, 1.5)
    return (Values((rows, ROW // 2)),), {"axis": 1, "between": (0, ROW // 2), "size": ROW}


def _conv(floats: int) -> Any:
    x = _images(floats, 64, 56, 0.5)
    return (Values(x), Values((64, 64, 3, 3))), {"padding": 1}


def _conv_input_gradient(floats: int) -> Any:
    g = _images(floats, 64, 56, 0.5)
    return (Values(g), Values((64, 64, 3, 3))), {"size": (56, 56), "padding": 1}


def _conv_weight_gradient(floats: int) -> Any:
    x = _images(floats, 64, 56, 0.5)
    return (Values(x), Values(x)), {"size": (3, 3), "padding": 1}


def _pool(floats: int) -> Any:
    return (Values(_images(floats, 64, 56, 0.8)),), {"size": 2}


def _max_pool_gradient(floats: int) -> Any:
    x = _images(floats, 64, 56, 1 / 2.25)
    return (Values((*x[:2], 28, 28)), Values(x)), {"size": 2}


def _average_pool_gradient(floats: int) -> Any:
    x = _images(floats, 64, 56, 0.8)
    return (Values((*x[:2], 28, 28)),), {"image": (56, 56), "size": 2}


def _subsample(floats: int) -> Any:
    return (Values(_images(floats, 64, 56, 0.8)), Values((2, 2)), 0.5), {"stride": 2}


def _lrn(arrays: int) -> Callable[[int], Any]:
    def maker(floats: int) -> Any:
        x = Values(_images(floats, 64, 28, 1 / arrays))
        return (x,) * (arrays - 1), {"size": 5}

    return maker


def _logits(arrays: int) -> Callable[[int], Any]:
    def maker(floats: int) -> Any:
        shape = _rows(floats, arrays, CLASSES)
        operands = (Values(shape, -4, 4), Labels(shape[:1]))
        return (operands if arrays == 1 else (Values(()), *operands)), {}

    return maker


def _folded(floats: int) -> Any:
    return (Values(_rows(floats, 1), 0, 1),), {}


def _max_gradient(floats: int) -> Any:
    rows, width = _rows(floats, 2)
    # All elements of a row are its maximum, and share the gradient.
    return (Values((rows, 1)), Values((rows, width), 1, 1), Values((rows, 1), 1, 1)), {"axis": 1}


_two, _positive, _wide = (-1.0, 1.0), (0.5, 1.5), (-4.0, 4.0)
_makers: dict[str, Callable[[int], Any]] = {
    "add": _same(2, of=3),
    "sub": _same(2, of=3),
    "hadamard": _same(2, of=3),
    "div": _same(2, _two, _positive, of=3),
    "scale": lambda floats: ((0.5, Values(_rows(floats, 2))), {}),
    "exp": _same(1, of=2),
    "log": _same(1, _positive, of=2),
    "sigmoid": _same(1, _wide, of=2),
    "tanh": _same(1, _wide, of=2),
    "relu": _same(1, of=2),
    "dot": _dot,
    "transpose": _transpose,
    "add_bias": lambda floats: ((Values(_rows(floats, 2)), Values((ROW,))), {}),
    "concat": lambda floats: ((Values(_rows(floats, 4)),) * 2, {"axis": 1}),
    "part": _part,
    "broadcast": lambda floats: ((Values((1, ROW)),), {"shape": _rows(floats, 1)}),
    "conv": _conv,
    "max_pool": _pool,
    "average_pool": _pool,
    "subsample": _subsample,
    "lrn": _lrn(2),
    "dropout": lambda floats: ((Values(_rows(floats, 2)),), {"rate": 0.5, "seed": 7}),
    "sum": _folded,
    "mean": _folded,
    "max": _folded,
    "argmax": _folded,
    "softmax": _same(1, _wide, of=2),
    "log_softmax": _same(1, _wide, of=2),
    "cross_entropy": _logits(1),
    "squared_error": _same(2, of=2),
    "sgd": lambda floats: ((*((Values(_rows(floats, 5)),) * 3), 0.01, 0.9, 0.001), {}),
    "sigmoid_gradient": _same(2, _two, (0.0, 1.0), of=3),
    "tanh_gradient": _same(2, of=3),
    "relu_gradient": _same(2, of=3),
    "part_gradient": _part_gradient,
    "conv_input_gradient": _conv_input_gradient,
    "conv_weight_gradient": _conv_weight_gradient,
    "max_pool_gradient": _max_pool_gradient,
    "average_pool_gradient": _average_pool_gradient,
    "lrn_gradient": _lrn(3),
    "max_gradient": _max_gradient,
    "cross_entropy_gradient": _logits(2),
}
