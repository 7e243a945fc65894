"""Symbols: Python's operators record pareo's, and what would need values is refused in words."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pareo import Spec, grad, op, trace
from pareo.errors import DtypeError, GradientError

A = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
B = np.array([[2.0, 5.0, -4.0], [1.0, 0.25, 1.5]])

EXPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a * b + a,
    "numbers": lambda a, b: 2 * a - b / 4 + 1 - 3.5,
    "numbers first": lambda a, b: 1 - a + 2 / b,
    "minus": lambda a, b: -a + +b,
    "matrices": lambda a, b: a @ b.T,
    "powers": lambda a, b: a**3 + b**2 + a**1 + b**7,
    "NumPy's numbers": lambda a, b: np.float64(3) * a + b * np.float32(0.5) - np.sqrt(2.0),
    "arrays": lambda a, b: B * a + b - A / 2,
    "arrays and matrices": lambda a, b: A.T @ a @ b.T,
    "a row": lambda a, b: a + B[0],
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_are_numpys(name: str) -> None:
    expression = EXPRESSIONS[name]
    program = trace(expression, A, B)
    np.testing.assert_allclose(program.compile()(A, B), expression(A, B), rtol=1e-12)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_gradients_are_numerical_ones(name: str) -> None:
    expression = EXPRESSIONS[name]
    found = grad(lambda a, b: op.sum(expression(a, b)))(A, B)
    step = 1e-6
    for place in np.ndindex(A.shape):
        moved = np.zeros_like(A)
        moved[place] = step
        change = expression(A + moved, B).sum() - expression(A - moved, B).sum()
        assert found[place] == pytest.approx(change / (2 * step), rel=1e-5, abs=1e-6)


@given(st.integers(1, 16))
def test_powers_take_few_products(power: int) -> None:
    program = trace(lambda a: a**power, Spec((3,), "float64"))
    np.testing.assert_allclose(program.compile()(A[0]), A[0] ** power, rtol=1e-12)
    assert len(program.instructions) <= 2 * math.floor(math.log2(power))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda a: np.exp(a), "np.exp was given a symbol, .*: use op.exp"),
        (lambda a: np.maximum(a, 0), "np.maximum was given a symbol, .* operators of pareo.op"),
        (lambda a: np.add(a, a, out=A), "np.add was given a symbol, .*: use op.add"),
        (lambda a: np.add.reduce(a), "np.add was given a symbol"),
        (lambda a: np.sum(a), "np.sum was given a symbol, .*: use op.sum"),
        (lambda a: np.concatenate([a, a]), "np.concatenate was given a symbol"),
        (lambda a: np.asarray(a), "NumPy cannot make an array of it"),
        (lambda a: a if a else -a, "`if`, `while`, `and` and `not` cannot test it"),
        (lambda a: a if a > 0 else -a, "cannot be compared"),
        (lambda a: a >= 1, "cannot be compared"),
        (lambda a: float(a), "cannot become a Python number"),
        (lambda a: int(a), "cannot become a Python number"),
        (lambda a: [1, 2][a], "cannot become a Python number"),
        (lambda a: math.sqrt(a), "cannot become a Python number"),
        (lambda a: list(a), "cannot be iterated"),
        (lambda a: sum(a), "cannot be iterated"),
        (lambda a: abs(a), "np.abs was given a symbol"),
        (lambda a: a[0], "`op.part` and `op.take` select"),
        (lambda a: a**0.5, "raised to a whole number from 1 to 16; got 0.5"),
        (lambda a: a**0, "raised to a whole number from 1 to 16; got 0"),
        (lambda a: a + "b", "add expects an array for b; got 'b'"),
        (lambda a: a - [1.0], "sub expects an array for b; got a list"),
        (lambda a: a + None, "add expects an array for b; got None"),
    ],
)
def test_what_needs_values_is_refused_in_words(wrong: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(DtypeError, match=said):
        trace(wrong, A)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda a: a.reshape(6), "a symbol has no 'reshape', .*: use op.reshape"),
        (lambda a: a.mean(), "a symbol has no 'mean', .*: use op.mean"),
        (lambda a: a.argsort(), "a symbol has no 'argsort', .*: use the operators of pareo.op"),
        (lambda a: a.no_such, "a symbol has no attribute 'no_such'"),
    ],
)
def test_methods_of_numpys_arrays_are_refused_in_words(
    wrong: Callable[[Any], Any], said: str
) -> None:
    with pytest.raises(AttributeError, match=said):
        trace(wrong, A)


def test_a_symbol_tells_its_form() -> None:
    seen: list[Any] = []
    trace(lambda a: seen.extend([len(a), a.size, a.T.shape]) or a, A)
    assert seen == [2, 6, (3, 2)]


def test_a_gradient_of_nothing_is_a_sentence() -> None:
    for arguments in ((), ({},)):
        with pytest.raises(GradientError, match="at least one array; got none"):
            grad(lambda *given: op.sum(A))(*arguments)
