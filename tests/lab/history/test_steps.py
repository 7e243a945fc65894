"""Steps that are there are found, and noise is none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pareo.lab.history.steps import FEWEST, Step, steps


@given(
    st.integers(0, 10**6),
    st.sampled_from([-0.1, -0.05, 0.05, 0.1]),
    st.integers(20, 60),
)
@settings(max_examples=40, deadline=None)
def test_a_large_step_is_found_where_it_is(seed: int, size: float, at: int) -> None:
    drawn = np.random.default_rng(seed)
    values = np.exp(drawn.normal(0, 0.005, 90))
    values[at:] *= 1 + size
    found = steps(values)
    nearest = min(found, key=lambda step: abs(step.index - at))
    assert abs(nearest.index - at) <= 1
    assert nearest.change == pytest.approx(size, abs=0.02)


def test_a_year_of_noise_has_hardly_a_step() -> None:
    """Ten years of daily runs, with slow days: fewer alarms than one in five years."""
    drawn = np.random.default_rng(7)
    years = [
        np.exp(
            drawn.normal(0, 0.01, 365) + (drawn.random(365) < 0.03) * drawn.exponential(0.2, 365)
        )
        for _ in range(10)
    ]
    assert sum(len(steps(year)) for year in years) <= 2


def test_a_year_of_noise_that_lasts_has_hardly_a_step() -> None:
    drawn = np.random.default_rng(8)
    alarms = 0
    for _ in range(10):
        noise = drawn.normal(0, 0.01, 365)
        for day in range(1, 365):
            noise[day] = 0.6 * noise[day - 1] + 0.8 * noise[day]
        alarms += len(steps(np.exp(noise)))
    assert alarms <= 2


@pytest.mark.smoke
def test_one_slow_run_is_no_step() -> None:
    values = [1.0, 1.01, 0.99] * 8
    values[10] = 3.0
    assert steps(values) == []


def test_two_steps_are_two() -> None:
    values = [1.0, 1.002] * 10 + [1.1, 1.102] * 10 + [1.0, 1.002] * 10
    assert [(step.index, round(step.change, 2)) for step in steps(values)] == [
        (20, 0.1),
        (40, -0.09),
    ]


def test_too_few_points_say_nothing() -> None:
    assert steps([1.0] * (FEWEST - 1) + [2.0] * FEWEST) == []
    assert steps([1.0] * FEWEST + [2.0] * FEWEST) == [Step(FEWEST, 1.0)]
    assert steps([]) == []
