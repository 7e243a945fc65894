"""Noise that lasts from one sample to the next: intervals and verdicts are wrong no more often."""

import math

import numpy as np
import pytest

from pareo.cli.compare import _seconds
from pareo.lab.experiment import statistics

ROUNDS = statistics.ROUNDS
RACES = 300
# Two standard errors of RACES trials above 5 %, and above 1 %.
WRONG_INTERVALS, WRONG_VERDICTS = 0.075, 0.0215


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """An eighth of the resamples: the ends of an interval differ by a few percent of its width."""
    monkeypatch.setattr(statistics, "RESAMPLES", 500)


def lasting(draw, rho, noise, rounds=ROUNDS):
    """Noise of which a share is still there in the next sample, around a median of 1 s."""
    fresh = draw.standard_normal(rounds)
    times = [fresh[0]]
    for one in fresh[1:]:
        times.append(rho * times[-1] + math.sqrt(1 - rho**2) * one)
    return np.exp(noise * np.array(times))


@pytest.mark.parametrize(("rho", "told"), [(0.0, 0.97), (0.5, 0.6), (0.8, 0.1)])
def test_an_interval_is_wrong_in_one_race_of_twenty(rho, told):
    draw = np.random.default_rng(31)
    found = [statistics.interval(lasting(draw, rho, 0.05)) for _ in range(RACES)]
    assert sum(not low <= 1 <= high for low, _, high in found) / RACES <= WRONG_INTERVALS
    # Where it cannot tell it says so; and it does not say so for nothing.
    assert sum(statistics.has_ends(low, high) for low, _, high in found) / RACES >= told


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_a_verdict_between_equals_is_wrong_in_one_race_of_a_hundred(rho, interleaved):
    draw = np.random.default_rng(32)
    words = [
        statistics.compare(
            lasting(draw, rho, 0.05), lasting(draw, rho, 0.05), interleaved=interleaved
        ).word
        for _ in range(RACES)
    ]
    assert 1 - words.count("cannot tell") / RACES <= WRONG_VERDICTS


@pytest.mark.parametrize(("rho", "noise"), [(0.0, 0.02), (0.5, 0.02), (0.8, 0.005)])
def test_ending_when_an_interval_is_narrow_does_not_make_it_wrong(rho, noise):
    draw, most, races = np.random.default_rng(33), 4 * ROUNDS, 100
    wrong = ended = 0
    for _ in range(races):
        times = lasting(draw, rho, noise, most)
        # A race looks after every round; here after every fifth, to be quick.
        last = next((n for n in range(ROUNDS, most, 5) if statistics.enough(times[:n])), most)
        low, _, high = statistics.interval(times[:last])
        wrong += not low <= 1 <= high
        ended += last < most
    assert wrong <= 9  # 5 of 100, and two standard errors
    assert ended >= races / 2  # noise like this ends, with time


def test_samples_that_only_rise_tell_nothing():
    rising = np.linspace(1, 1.5, ROUNDS)
    assert statistics.interval(rising) == (0.0, 1.25, math.inf)
    assert str(statistics.compare(rising, np.ones(ROUNDS))) == (
        "cannot tell: too few independent samples"
    )
    assert _seconds(list(rising)) == "1.250 (cannot tell)"
    assert not statistics.enough(rising)


def test_equal_samples_are_no_noise_that_lasts():
    assert statistics.independent(np.full(ROUNDS, 2.0)) > ROUNDS / 2
    assert statistics.interval([2.0] * ROUNDS) == pytest.approx((2.0, 2.0, 2.0))
    assert statistics.enough([2.0] * 8)
