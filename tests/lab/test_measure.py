"""Statistics of timings, on simulated noise whose truth is known."""

import math
import time

import numpy as np
import pytest

from pareo.lab import measure

# With 15 rounds the skewed noise below hides 10 % from one race in seven (600 races: 86 % told);
# with 25 it does so from one in eighty. Equals are told apart in at most 1.3 % of races either way.
ROUNDS = 25
RACES = 50


def normal(draw, count):
    """A quiet machine: 2 % around one second."""
    return 1 + 0.02 * draw.standard_normal(count)


def skewed(draw, count):
    """A shared machine: times have a hard lower end, a long tail, and one in twelve is far off."""
    times = 1 + 0.02 * draw.exponential(size=count)
    return times * np.where(draw.random(count) < 1 / 12, 1.4, 1)


def heavy(draw, count):
    """Student's t with 3 degrees of freedom: outliers to both sides."""
    return np.maximum(1 + 0.015 * draw.standard_t(3, count), 0.5)


NOISES = [normal, skewed, heavy]


def verdicts(noise, slowed, interleaved=True):
    """RACES races of a contestant, slowed by a factor, against itself; clocks wander for both."""
    draw = np.random.default_rng(5)
    found = []
    for _ in range(RACES):
        clock = 1 + 0.1 * np.cumsum(draw.standard_normal(ROUNDS)) / ROUNDS if interleaved else 1
        this = slowed * clock * noise(draw, ROUNDS)
        other = clock * noise(draw, ROUNDS)
        found.append(measure.compare(this, other, interleaved).word)
    return found


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("noise", NOISES)
def test_a_contestant_against_itself_is_neither_faster_nor_slower(noise, interleaved):
    assert verdicts(noise, 1.0, interleaved).count("cannot tell") >= 47


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("noise", NOISES)
def test_ten_percent_slower_is_told(noise, interleaved):
    assert verdicts(noise, 1.1, interleaved).count("slower") >= 45


def test_the_other_way_round_is_faster():
    assert verdicts(normal, 1 / 1.1).count("faster") >= 45


@pytest.mark.parametrize("count", [8, 15, 16])
@pytest.mark.parametrize("noise", NOISES)
def test_the_interval_holds_the_true_median_as_often_as_it_says(noise, count):
    draw = np.random.default_rng(3)
    truth = np.median(noise(draw, 400_000))
    held = 0
    for _ in range(400):
        low, _, high = measure.interval(noise(draw, count))
        held += low <= truth <= high
    assert held / 400 > 0.93  # 95 %, less two standard errors of 400 trials


def test_a_difference_twice_what_could_be_told_is_told():
    draw = np.random.default_rng(11)
    base = normal(draw, ROUNDS)
    told = measure.compare(normal(draw, ROUNDS), base).tellable
    assert 0.005 < told < 0.06
    words = [
        measure.compare((1 + 2 * told) * normal(draw, ROUNDS), base).word for _ in range(RACES)
    ]
    assert words.count("slower") >= 45


def test_the_same_samples_give_the_same_answer():
    draw = np.random.default_rng(1)
    a, b = normal(draw, ROUNDS), normal(draw, ROUNDS)
    assert measure.compare(a, b) == measure.compare(a, b)
    assert measure.interval(a) == measure.interval(a)


def test_pairs_see_through_a_machine_that_slows_down():
    draw = np.random.default_rng(2)
    clock = np.linspace(1, 2, ROUNDS)
    a, b = 1.1 * clock * normal(draw, ROUNDS), clock * normal(draw, ROUNDS)
    assert measure.compare(a, b).word == "slower"
    assert measure.compare(a, b, interleaved=False).word == "cannot tell"


def test_few_samples_tell_nothing():
    verdict = measure.compare([2.0] * 7, [1.0] * 7)
    assert (verdict.word, verdict.ratio, verdict.tellable) == ("cannot tell", 2.0, math.inf)
    low, middle, high = measure.interval([2.0])
    assert middle == 2
    assert math.isnan(low)
    assert math.isnan(high)


def test_enough_when_the_time_is_up():
    wide = [1.0, 2.0] * 5
    now = time.perf_counter()
    assert not measure.enough(wide, deadline=now + 1000)
    assert measure.enough(wide, deadline=now - 1)


@pytest.mark.parametrize("noise", NOISES)
def test_drift_is_noticed_where_it_is_and_seldom_elsewhere(noise):
    draw = np.random.default_rng(9)
    steady = [measure.drift(noise(draw, 20)) for _ in range(100)]
    slowing = [measure.drift(noise(draw, 20) * np.linspace(1, 1.3, 20)) for _ in range(100)]
    assert steady.count(0) >= 96
    assert sum(0.15 < change < 0.45 for change in slowing) >= 95


def test_a_machine_that_throttles_is_told_from_a_contestant_that_slows():
    draw = np.random.default_rng(4)
    steady, slowing = normal(draw, 20), normal(draw, 20) * np.linspace(1, 1.3, 20)
    assert measure.noticed({"a": steady}) == []
    (alone,) = measure.noticed({"a": steady, "b": slowing})
    assert alone.startswith("b became")
    assert alone.endswith("slower while it ran.")
    (machine,) = measure.noticed({"a": slowing, "b": 1.1 * slowing})
    assert "throttled" in machine


def test_a_busy_machine_is_told_where_its_idle_cores_are_known():
    steady = {"a": [1.0] * 8}
    assert measure.noticed(steady, threads=2, idle_cores=1.9) == []
    assert measure.noticed(steady, threads=2, idle_cores=None) == []
    (busy,) = measure.noticed(steady, threads=2, idle_cores=0.4)
    assert busy.startswith("Other programs were running: 0.4 cores were idle")


def test_outliers_are_counted_and_kept():
    samples = [1.0, 1.01, 0.99, 1.02, 5.0, 1.0]
    assert measure.noticed({"a": samples}) == ["a: 1 of 6 samples lie far from the rest; kept."]
    assert measure.interval(samples)[2] > 1.02


@pytest.mark.parametrize("samples", [[], [1.0, 0.0], [1.0, math.nan], [-1.0], [[1.0]]])
def test_samples_that_are_none_are_refused(samples):
    with pytest.raises(ValueError, match="expected samples in seconds"):
        measure.interval(samples)
