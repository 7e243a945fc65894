"""Elementwise operators as C++ expressions, with the places of broadcast operands."""

from collections.abc import Mapping, Sequence
from typing import Any

# `a` and `b` are the operands: for a gradient, first that of the result.
EXPRESSIONS = {
    "add": "a + b",
    "sub": "a - b",
    "hadamard": "a * b",
    "div": "a / b",
    "scale": "a * b",
    "add_bias": "a + b",
    "broadcast": "a",
    "relu": "a <= 0 ? 0 : a",
    "relu_gradient": "b <= 0 ? 0 : a",
    "sigmoid": "logistic(a)",
    "sigmoid_gradient": "a * (b * (1 - b))",
    "tanh": "tanhf(a)",
    "tanh_gradient": "a * (1 - b * b)",
    "gelu": "a * normal(a)",
    "gelu_tanh": "a * logistic(twice_inside(a))",
    "gelu_gradient": "a * gelu_slope(b)",
    "gelu_tanh_gradient": "a * gelu_tanh_slope(b)",
    "silu": "a * logistic(a)",
    "silu_gradient": "a * silu_slope(b)",
    "hard_sigmoid": "hard(a)",
    "hard_sigmoid_gradient": "b > -3 && b < 3 ? a / 6 : 0",
    "hard_swish": "a * hard(a)",
    "hard_swish_gradient": "hard_swish_back(a, b)",
    "leaky_relu": "a > 0 ? a : {slope} * a",
    "leaky_relu_gradient": "b > 0 ? a : {slope} * a",
    "clip": "clipped(a, {low}, {high})",
    "clip_gradient": "b > {low} && b < {high} ? a : 0",
}


def number(value: float) -> str:
    """A float as C++ writes it.

    >>> number(0.1), number(6.0), number(float("inf"))
    ('0.1f', '6.0f', 'INFINITY')
    """
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"{float(value)!r}f"


def expression(name: str, attributes: Mapping[str, Any]) -> str:
    """The result of an operator at one place.

    >>> expression("clip_gradient", {"low": 0.0, "high": 6.0})
    'b > 0.0f && b < 6.0f ? a : 0'
    """
    if attributes.get("approximate"):
        name = name.replace("gelu", "gelu_tanh")
    numbers = {key: number(v) for key, v in attributes.items() if isinstance(v, float | int)}
    return EXPRESSIONS[name].format(**numbers)


def place(shape: Sequence[int], result: Sequence[int]) -> str | None:
    """Where an operand has what belongs to element i of the result; None if it does not broadcast.

    >>> place((6, 4), (6, 4)), place((6, 1), (6, 4)), place((), (6, 4)), place((4,), (6, 4))
    ('i', 'i / 4', '0', 'i % 4')
    >>> place((2, 1, 5), (2, 3, 5))
    'i / 15 * 5 + i % 5'
    """
    shape = (1,) * (len(result) - len(shape)) + tuple(shape)
    if any(have not in (1, want) for have, want in zip(shape, result, strict=True)):
        return None
    terms: list[str] = []
    axis = 0
    while axis < len(result):
        stop = axis + 1
        repeated = shape[axis] == 1
        while stop < len(result) and (shape[stop] == 1) == repeated:
            stop += 1
        if not repeated or all(size == 1 for size in result[axis:stop]):
            terms += _term(shape, result, axis, stop)
        axis = stop
    return " + ".join(terms) or "0"


def _term(shape: Sequence[int], result: Sequence[int], axis: int, stop: int) -> list[str]:
    """The place along some axes that an operand has as the result has them."""
    size, inner, step = 1, 1, 1
    for number_ in range(axis, stop):
        size *= result[number_]
    for number_ in range(stop, len(result)):
        inner, step = inner * result[number_], step * shape[number_]
    outer = 1
    for number_ in range(axis):
        outer *= result[number_]
    if size == 1:
        return []
    index = "i" if inner == 1 else f"i / {inner}"
    index = index if outer == 1 else f"{index} % {size}"
    return [index if step == 1 else f"{index} * {step}"]
