"""exp, sigmoid and tanh of the compiled device: as exact as they say, for every kind of number."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from backends.compiled.runtime.function_errors import FUNCTIONS, errors

from pareo import Device, op
from pareo.backends.compiled.runtime.vector_math import BLOCK, LARGEST_ERRORS

pytestmark = pytest.mark.smoke

every_function = pytest.mark.parametrize("name", FUNCTIONS)
both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def around(values: Any, dtype: Any) -> Any:
    """The numbers next to these, on both sides, and they themselves; with either sign."""
    found = np.array(values, dtype)
    below, above = np.nextafter(found, -np.inf, dtype=dtype), np.nextafter(found, np.inf)
    every = np.concatenate([below, found, above])
    return np.concatenate([every, -every])


def boundaries(dtype: Any) -> Any:
    """Where something changes: another power of two, zero, the ends of ranges, the bounds used."""
    limits = np.finfo(dtype)
    powers = np.log(2) * (np.arange(0, 1100) + 0.5)  # where n becomes n + 1
    ends = [0, limits.tiny, limits.smallest_subnormal, limits.max, np.inf, np.nan, 1, limits.eps]
    ends += [np.log(float(limits.max)), -np.log(float(limits.tiny)), 9.1, 20, 88, 89, 103.97, 105]
    ends += [708.4, 709, 710, 744.44, 746, 0.5 * np.log(2), 0.25 * np.log(2)]
    with np.errstate(all="ignore"):
        return np.concatenate([around(ends, dtype), around(powers, dtype)])


def line(dtype: Any, count: int) -> Any:
    """Numbers of every sign and size, evenly by their bits, among them all kinds of NaN."""
    whole = np.uint32 if dtype == np.float32 else np.uint64
    top = int(np.iinfo(whole).max)
    return np.array([top * k // (count - 1) for k in range(count)], whole).view(dtype)


def sample(dtype: Any) -> Any:
    reach = 110 if dtype == np.float32 else 760
    # In float64 the truth is computed in long double, a microsecond a number.
    count = 400_000 if dtype == np.float32 else 4_000
    usual = [np.linspace(-most, most, count, dtype=dtype) for most in (reach, 2)]
    return np.concatenate([*usual, boundaries(dtype), line(dtype, count)])


@every_function
@both_dtypes
def test_no_further_off_than_they_say(name: str, dtype: Any) -> None:
    wider = np.float64 if dtype == np.float32 else np.longdouble
    found = errors(name, sample(dtype), wider)
    assert found.special
    assert found.units <= LARGEST_ERRORS[name]
    limits = np.finfo(dtype)
    smallest = limits.tiny if name == "sigmoid" else limits.smallest_subnormal
    assert found.tiny <= smallest


def test_the_page_states_the_largest_errors() -> None:
    page = (Path(__file__).parents[4] / "docs" / "operators.md").read_text()
    stated = dict(re.findall(r"\| (\w+) \| at most ([\d.]+) \|", page))
    assert {name: float(error) for name, error in stated.items()} == LARGEST_ERRORS


@every_function
@both_dtypes
def test_a_number_gives_the_same_bits_wherever_it_stands(name: str, dtype: Any) -> None:
    lanes = BLOCK // np.dtype(dtype).itemsize
    numbers = np.linspace(-9, 9, 3 * lanes + lanes // 2).astype(dtype)
    with Device("compiled"):
        whole = getattr(op, name)(numbers)
        each = [getattr(op, name)(numbers[i : i + 1])[0] for i in range(numbers.size)]
        out = np.concatenate([numbers, numbers])[numbers.size :]
        getattr(op, name)(out, out=out)
    assert np.array_equal(whole, each)
    assert np.array_equal(whole, out)


@both_dtypes
def test_signs_of_zero(dtype: Any) -> None:
    with Device("compiled"):
        found = op.tanh(np.array([0.0, -0.0], dtype))
    assert np.array_equal(np.signbit(found), [False, True])
