"""The formulas for FLOPs and bytes, held against what an instrumented `sequential` run counts.

A share of the roofline is as honest as these formulas: one that promises too much work would let an
operator pass 100 %.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators.cases import CASES
from operators.counting import Counted, Watched, counted

from pareo import op
from pareo.backends.sequential import numbers


def said_and_counted(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """(FLOPs, bytes) of a call by formula, and as counted."""
    operands, attributes, specs, result = operator.bind(args, kwargs)
    said = (
        operator.count_flops(result, specs, attributes),
        operator.count_bytes(result, specs, attributes),
    )
    return said, counted(operator, operands, attributes, result)


@pytest.mark.parametrize("name", op.registry)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(data=st.data())
@settings(max_examples=20, derandomize=True, deadline=None, database=None)
def test_formulas_are_what_is_counted(name: str, dtype: str, data: Any) -> None:
    call = data.draw(CASES[name].calls(dtype))
    args = (call.operands,) if call.many else call.operands
    said, found = said_and_counted(op.registry[name], *args, **call.attributes)
    if name in ("augment", "take"):  # which elements are read depends on the numbers themselves
        assert said[0] == found[0]
        assert said[1] >= found[1]
    else:
        assert said == found


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


@pytest.mark.parametrize(
    ("operator", "args", "kwargs", "flops", "floats"),
    [
        # One pixel of four is met by a window of 1 x 1 at stride 2.
        (op.conv, (ones(1, 1, 4, 4), ones(1, 1, 1, 1)), {"stride": 2}, 8, 4 + 1 + 4),
        (op.max_pool, (ones(1, 1, 4, 4), 1, 2), {}, 4, 4 + 4),
        # A window of 3 x 3 at a corner has four places inside the image, at an edge six.
        (op.average_pool, (ones(1, 1, 3, 3), 3, 1, 1), {}, 4 * 4 + 4 * 6 + 9 + 9, 9 + 9),
        # The first and the last of four channels have one neighbour, the others two.
        (op.lrn, (ones(1, 4, 1, 1), 3), {}, 2 * (2 + 3 + 3 + 2) + 4 * 4, 4 + 4),
        (op.subsample, (ones(1, 1, 4, 4), ones(2, 2), 0.5, 2), {}, 4 * 8, 16 + 4 + 1 + 4),
        # A part of an array is read alone, and an empty result needs nothing.
        (op.part, (ones(8, 4), 0, (2, 3)), {}, 0, 4 + 4),
        (op.dot, (ones(0, 5), ones(5, 7)), {}, 0, 0),
    ],
)
def test_costs_worked_out_by_hand(
    operator: Any, args: Any, kwargs: Any, flops: int, floats: int
) -> None:
    by_hand = (flops, 4 * floats)
    assert said_and_counted(operator, *args, **kwargs) == (by_hand, by_hand)


def test_numbers_count_what_is_done_to_them() -> None:
    Counted.flops = 0
    a = Counted(3.0)
    results = [1 + a, a - 1, 2 * a, 6 / a, a > 1, a == 3.0]
    assert Counted.flops == 6
    assert [float(result) for result in results] == [4, 2, 6, 2, True, True]
    assert all(isinstance(result, Counted) for result in [*results[:4], -a, abs(a)])
    assert Counted.flops == 6, "a change of sign costs nothing"


def test_arrays_remember_each_element_once() -> None:
    array = Watched(np.zeros((2, 3)))
    assert array[0, 1] == array[0, 1] == 0
    array.reshape(-1)[5] = 1.0
    assert array.read.sum() == array.written.sum() == 1
    assert array.written[1, 2]


def test_the_count_leaves_sequential_as_it_was() -> None:
    before = dict(vars(numbers))
    said_and_counted(op.sigmoid, ones(3))
    assert dict(vars(numbers)) == before
    assert type(numbers.at(ones(1), (0,))) is float
