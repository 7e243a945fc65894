"""Tracing: what a function did, as a program."""

import numpy as np
import pytest

from pareo import Spec, op, trace
from pareo.errors import DtypeError, PareoError, ShapeError

pytestmark = pytest.mark.smoke


def test_instructions_in_order_with_costs() -> None:
    program = trace(lambda x, w: op.relu(op.dot(x, w)), Spec((8, 4)), Spec((4, 2)))
    assert [i.name for i in program.instructions] == ["dot", "relu"]
    assert program.flops == 2 * 8 * 4 * 2 + 8 * 2
    assert program.bytes == 4 * (32 + 8 + 16) + 4 * (16 + 16)


def test_arrays_closed_over_are_kept_by_reference() -> None:
    held = np.ones(3)
    program = trace(lambda x: op.add(x, held), Spec((3,), "float64"))
    run = program.compile()
    assert run(np.zeros(3)).tolist() == [1, 1, 1]
    held[:] = 5
    assert run(np.zeros(3)).tolist() == [5, 5, 5]


def test_nested_arguments_and_results() -> None:
    def function(parameters: dict, x: np.ndarray) -> dict:
        hidden = op.dot(x, parameters["w"])
        return {"sum": op.sum(hidden), "all": (hidden, [op.relu(hidden)])}

    arguments = {"w": np.ones((2, 2))}, np.array([[1.0, -3.0]])
    found = trace(function, *arguments).compile()(*arguments)
    assert found["sum"] == -4
    assert found["all"][0].tolist() == [[-2, -2]]
    assert found["all"][1][0].tolist() == [[0, 0]]


def test_a_function_may_return_its_argument_and_a_constant() -> None:
    x, y = trace(lambda x: (x, np.ones(2)), Spec((2,))).compile()(np.zeros(2, np.float32))
    assert x.tolist() == [0, 0]
    assert y.tolist() == [1, 1]


def test_several_results_of_one_operator() -> None:
    def step(p: np.ndarray, g: np.ndarray, v: np.ndarray) -> tuple:
        return op.sgd(p, g, v, rate=0.5, momentum=0.5)

    new, speed = trace(step, *[Spec((1,), "float64")] * 3).compile()(
        np.array([1.0]), np.array([2.0]), np.array([4.0])
    )
    assert speed.tolist() == [4]
    assert new.tolist() == [-1]


def test_batch_axis_is_rebuilt() -> None:
    program = trace(lambda x: op.sum(x, axis=0), Spec((3, 5), batch=0))
    assert program.with_batch(7).specs[0].shape == (7, 5)
    assert program.with_batch(7).with_batch(2).specs[0].shape == (2, 5)


@pytest.mark.parametrize(
    ("call", "kind", "sentence"),
    [
        (lambda: trace(lambda x: 3, Spec((2,))), DtypeError, "must return arrays; it returned 3"),
        (lambda: trace(lambda x: x, "abc"), DtypeError, "expects arrays or specs; got 'abc'"),
        (
            lambda: trace(lambda x: op.add(x, x, out=np.ones(2)), Spec((2,))),
            PareoError,
            "add takes no out= while it is being traced",
        ),
        (lambda: trace(lambda x: x, Spec((2,))).with_batch(3), ShapeError, "has no batch axis"),
        (
            lambda: trace(lambda x: x, Spec((2,), batch=0)).with_batch(0),
            ShapeError,
            "at least 1; got 0",
        ),
        (lambda: Spec((2, -1)), ShapeError, "sizes of 0 or more"),
        (lambda: Spec(5), ShapeError, "expects a shape such as"),
        (lambda: Spec((2,), "floaty"), DtypeError, "expects a dtype"),
        (lambda: Spec((2,), batch=1), ShapeError, "batch to be an axis"),
    ],
)
def test_wrong_use_is_one_clear_sentence(call, kind, sentence) -> None:
    with pytest.raises(kind, match=sentence):
        call()


def test_a_symbol_that_outlived_its_trace_is_refused() -> None:
    kept = []
    trace(lambda x: kept.append(x) or op.relu(x), Spec((2,)))
    with pytest.raises(PareoError, match="used outside the trace"):
        trace(lambda x: op.add(x, kept[0]), Spec((2,)))


def test_listing_shows_what_differs_from_the_defaults() -> None:
    program = trace(lambda x, w: op.conv(x, w, padding=1), Spec((1, 1, 4, 4)), Spec((2, 1, 3, 3)))
    line = str(program).splitlines()[2]
    assert "%2 = conv(%0, %1, padding=(1, 1, 1, 1))" in line
    assert "float32[1, 2, 4, 4]" in line
    assert "576 FLOP" in line
