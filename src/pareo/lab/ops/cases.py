"""Operands for every operator, of a given number of bytes in all, the result included.

Rows of matrices have 1024 elements. Images have the shapes of the middle layers of a network.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pareo.errors import PareoError
from pareo.lab.ops.cases_today import MAKERS
from pareo.lab.ops.operands import CLASSES, ROW, Labels, Values, images, rows, same
from pareo.operators.core import Operator, registry

PAPER = ("add", "mul", "dot", "scalar", "sigmoid", "tanh")
NAMES = {"mul": "hadamard", "scalar": "scale"}  # the paper's names, and pareo's


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
    return Case(registry[ours], operands, attributes, many=ours in ("concat", "norm"))


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


def _dot(floats: int) -> Any:
    side = max(1, math.isqrt(floats // 3))
    return (Values((side, side)), Values((side, side))), {}


def _transpose(floats: int) -> Any:
    side = max(1, math.isqrt(floats // 2))
    return (Values((side, side)),), {}


def _part(floats: int) -> Any:
    count, width = rows(floats, 1.5)
    return (Values((count, width)),), {"axis": 1, "between": (0, width // 2)}


def _part_gradient(floats: int) -> Any:
    count, _ = rows(floats, 1.5)
    return (Values((count, ROW // 2)),), {"axis": 1, "between": (0, ROW // 2), "size": ROW}


def _conv(floats: int) -> Any:
    x = images(floats, 64, 56, 0.5)
    return (Values(x), Values((64, 64, 3, 3))), {"padding": 1}


def _conv_input_gradient(floats: int) -> Any:
    g = images(floats, 64, 56, 0.5)
    return (Values(g), Values((64, 64, 3, 3))), {"size": (56, 56), "padding": 1}


def _conv_weight_gradient(floats: int) -> Any:
    x = images(floats, 64, 56, 0.5)
    return (Values(x), Values(x)), {"size": (3, 3), "padding": 1}


def _pool(floats: int) -> Any:
    return (Values(images(floats, 64, 56, 0.8)),), {"size": 2}


def _max_pool_gradient(floats: int) -> Any:
    x = images(floats, 64, 56, 1 / 2.25)
    return (Values((*x[:2], 28, 28)), Values(x)), {"size": 2}


def _average_pool_gradient(floats: int) -> Any:
    x = images(floats, 64, 56, 0.8)
    return (Values((*x[:2], 28, 28)),), {"image": (56, 56), "size": 2}


def _subsample(floats: int) -> Any:
    return (Values(images(floats, 64, 56, 0.8)), Values((2, 2)), 0.5), {"stride": 2}


def _lrn(arrays: int) -> Callable[[int], Any]:
    def maker(floats: int) -> Any:
        x = Values(images(floats, 64, 28, 1 / arrays))
        return (x,) * (arrays - 1), {"size": 5}

    return maker


def _logits(arrays: int) -> Callable[[int], Any]:
    def maker(floats: int) -> Any:
        shape = rows(floats, arrays, CLASSES)
        operands = (Values(shape, -4, 4), Labels(shape[:1]))
        return (operands if arrays == 1 else (Values(()), *operands)), {}

    return maker


def _folded(floats: int) -> Any:
    return (Values(rows(floats, 1), 0, 1),), {}


def _max_gradient(floats: int) -> Any:
    count, width = rows(floats, 2)
    # All elements of a row are its maximum, and share the gradient.
    return (Values((count, 1)), Values((count, width), 1, 1), Values((count, 1), 1, 1)), {"axis": 1}


_two, _positive, _wide = (-1.0, 1.0), (0.5, 1.5), (-4.0, 4.0)
_makers: dict[str, Callable[[int], Any]] = {
    "add": same(2, of=3),
    "sub": same(2, of=3),
    "hadamard": same(2, of=3),
    "div": same(2, _two, _positive, of=3),
    "scale": lambda floats: ((0.5, Values(rows(floats, 2))), {}),
    "exp": same(1, of=2),
    "log": same(1, _positive, of=2),
    "sigmoid": same(1, _wide, of=2),
    "tanh": same(1, _wide, of=2),
    "relu": same(1, of=2),
    "dot": _dot,
    "transpose": _transpose,
    "add_bias": lambda floats: ((Values(rows(floats, 2)), Values((ROW,))), {}),
    "concat": lambda floats: ((Values(rows(floats, 4)),) * 2, {"axis": 1}),
    "part": _part,
    "broadcast": lambda floats: ((Values((1, ROW)),), {"shape": rows(floats, 1)}),
    "conv": _conv,
    "max_pool": _pool,
    "average_pool": _pool,
    "subsample": _subsample,
    "lrn": _lrn(2),
    "dropout": lambda floats: ((Values(rows(floats, 2)),), {"rate": 0.5, "seed": 7}),
    "sum": _folded,
    "mean": _folded,
    "max": _folded,
    "argmax": _folded,
    "softmax": same(1, _wide, of=2),
    "log_softmax": same(1, _wide, of=2),
    "cross_entropy": _logits(1),
    "squared_error": same(2, of=2),
    "sgd": lambda floats: ((*((Values(rows(floats, 5)),) * 3), 0.01, 0.9, 0.001), {}),
    "sigmoid_gradient": same(2, _two, (0.0, 1.0), of=3),
    "tanh_gradient": same(2, of=3),
    "relu_gradient": same(2, of=3),
    "part_gradient": _part_gradient,
    "conv_input_gradient": _conv_input_gradient,
    "conv_weight_gradient": _conv_weight_gradient,
    "max_pool_gradient": _max_pool_gradient,
    "average_pool_gradient": _average_pool_gradient,
    "lrn_gradient": _lrn(3),
    "max_gradient": _max_gradient,
    "cross_entropy_gradient": _logits(2),
    **MAKERS,
}
