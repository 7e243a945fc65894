"""Statistics of timings, on simulated noise whose truth is known."""

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest
from benchmarks import self_race

from pareo.lab.experiment import statistics

# Real races, as `python -m benchmarks.self_race --json` writes them: a contestant, the same one
# again, and the same one slowed by 10 %, each in a new process.
RECORDED = Path(__file__).with_name("self_races.json")
ROUNDS = statistics.ROUNDS
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


def lasting(draw, count):
    """Noise of one's own that lasts: half of what a round brings is still there in the next."""
    times = np.zeros(count)
    for place, fresh in enumerate(0.02 * draw.standard_normal(count)):
        times[place] = fresh + (0.5 * times[place - 1] if place else 0)
    return np.exp(times)


def bursts(draw, count):
    """Another program that comes and goes, and takes a third of the machine while it is there."""
    there, times = False, []
    for chance in draw.random(count):
        there = chance > 1 / 4 if there else chance < 1 / 12
        times.append(1.5 if there else 1.0)
    return np.array(times) * (1 + 0.01 * draw.exponential(size=count))


NOISES = [normal, skewed, heavy]


def apart(noise, rounds=ROUNDS):
    """Each has noise of its own, and a clock that wanders for both."""

    def times(draw):
        clock = 1 + 0.1 * np.cumsum(draw.standard_normal(rounds)) / rounds
        return clock * noise(draw, rounds), clock * noise(draw, rounds)

    return times


def in_turn(noise):
    """One noise of the machine, which hits whoever is running: first the one, then the other."""

    def times(draw):
        both = noise(draw, 2 * ROUNDS)
        return both[::2], both[1::2]

    return times


def throttling(draw):
    """The machine slows by a third, and the one always has his turn before the other."""
    clock = np.linspace(1, 1.33, 2 * ROUNDS) * (1 + 0.01 * draw.standard_normal(2 * ROUNDS))
    return clock[::2], clock[1::2]


def two_processes(draw):
    """Each process has a speed of its own, for as long as it lives: half a percent apart."""
    own = 1 + 0.005 * draw.standard_normal(2)
    return tuple(speed * normal(draw, ROUNDS) for speed in own)


MACHINES = {
    **{noise.__name__: apart(noise) for noise in NOISES},
    # A race goes on for longer then: 25 samples are worth 8 independent ones.
    "lasting": apart(lasting, 2 * ROUNDS),
    "lasting, in turn": in_turn(lasting),
    "bursts, in turn": in_turn(bursts),
    "throttling": throttling,
    "two processes": two_processes,
}


def verdicts(times, slowed, interleaved=True):
    """RACES races of a contestant, slowed by a factor, against itself."""
    draw = np.random.default_rng(5)
    found = []
    for _ in range(RACES):
        this, other = times(draw)
        found.append(statistics.compare(slowed * this, other, interleaved).word)
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_a_contestant_against_itself_is_neither_faster_nor_slower(machine):
    assert verdicts(MACHINES[machine], 1.0).count("cannot tell") >= 47


@pytest.mark.parametrize("machine", MACHINES)
def test_ten_percent_slower_is_told(machine):
    assert verdicts(MACHINES[machine], 1.1).count("slower") >= 45


@pytest.mark.parametrize("noise", NOISES)
def test_what_did_not_run_in_turn_is_told_apart_as_well(noise):
    def times(draw):
        return noise(draw, ROUNDS), noise(draw, ROUNDS)

    assert verdicts(times, 1.0, interleaved=False).count("cannot tell") >= 47
    assert verdicts(times, 1.1, interleaved=False).count("slower") >= 45


def test_real_races_of_a_contestant_with_itself():
    races = json.loads(RECORDED.read_text())
    assert len(races) == RACES
    found = self_race.verdicts(races)
    assert found["same"]["cannot tell"] >= 47
    assert found["slowed"]["slower"] >= 45


def test_the_other_way_round_is_faster():
    assert verdicts(apart(normal), 1 / 1.1).count("faster") >= 45


def test_less_than_two_processes_of_one_program_differ_by_is_not_told():
    draw = np.random.default_rng(6)
    exact = 1 + 1e-4 * draw.standard_normal(ROUNDS)
    assert statistics.compare(1.015 * exact, exact[::-1]).word == "cannot tell"
    assert statistics.compare(1.025 * exact, exact[::-1]).word == "slower"


@pytest.mark.parametrize("count", [8, 15, 16])
@pytest.mark.parametrize("noise", NOISES)
def test_the_interval_holds_the_true_median_as_often_as_it_says(noise, count):
    draw = np.random.default_rng(3)
    truth = np.median(noise(draw, 400_000))
    held = 0
    for _ in range(400):
        low, _, high = statistics.interval(noise(draw, count))
        held += low <= truth <= high
    assert held / 400 > 0.93  # 95 %, less two standard errors of 400 trials


def test_a_difference_twice_what_could_be_told_is_told():
    draw = np.random.default_rng(11)
    base = normal(draw, ROUNDS)
    told = statistics.compare(normal(draw, ROUNDS), base).tellable
    assert 0.005 < told < 0.06
    words = [
        statistics.compare((1 + 2 * told) * normal(draw, ROUNDS), base).word for _ in range(RACES)
    ]
    assert words.count("slower") >= 45


def test_the_same_samples_give_the_same_answer():
    draw = np.random.default_rng(1)
    a, b = normal(draw, ROUNDS), normal(draw, ROUNDS)
    assert statistics.compare(a, b) == statistics.compare(a, b)
    assert statistics.interval(a) == statistics.interval(a)


def test_pairs_see_through_a_machine_that_slows_down():
    draw = np.random.default_rng(2)
    clock = np.linspace(1, 2, ROUNDS)
    a, b = 1.1 * clock * normal(draw, ROUNDS), clock * normal(draw, ROUNDS)
    assert statistics.compare(a, b).word == "slower"
    assert statistics.compare(a, b, interleaved=False).word == "cannot tell"


def test_few_samples_tell_nothing():
    verdict = statistics.compare([2.0] * 7, [1.0] * 7)
    assert (verdict.word, verdict.ratio, verdict.tellable) == ("cannot tell", 2.0, math.inf)
    for few in ([2.0], [2.0, 2.1], [2.0, 2.1, 1.9, 2.0]):
        assert statistics.interval(few) == (0.0, 2.0 if len(few) != 2 else 2.05, math.inf)


def test_enough_when_the_time_is_up():
    wide = [1.0, 2.0] * 5
    now = time.perf_counter()
    assert not statistics.enough(wide, deadline=now + 1000)
    assert statistics.enough(wide, deadline=now - 1)


@pytest.mark.parametrize("noise", NOISES)
def test_drift_is_noticed_where_it_is_and_seldom_elsewhere(noise):
    draw = np.random.default_rng(9)
    steady = [statistics.drift(noise(draw, 20)) for _ in range(100)]
    slowing = [statistics.drift(noise(draw, 20) * np.linspace(1, 1.3, 20)) for _ in range(100)]
    assert steady.count(0) >= 96
    assert sum(0.15 < change < 0.45 for change in slowing) >= 95


def test_a_machine_that_throttles_is_told_from_a_contestant_that_slows():
    draw = np.random.default_rng(4)
    steady, slowing = normal(draw, 20), normal(draw, 20) * np.linspace(1, 1.3, 20)
    assert statistics.noticed({"a": steady}) == []
    (alone,) = statistics.noticed({"a": steady, "b": slowing})
    assert alone.startswith("b became")
    assert alone.endswith("slower while it ran.")
    (machine,) = statistics.noticed({"a": slowing, "b": 1.1 * slowing})
    assert "throttled" in machine


def test_a_busy_machine_is_told_where_its_idle_cores_are_known():
    steady = {"a": [1.0] * 8}
    assert statistics.noticed(steady, threads=2, idle_cores=1.9) == []
    assert statistics.noticed(steady, threads=2, idle_cores=None) == []
    (busy,) = statistics.noticed(steady, threads=2, idle_cores=0.4)
    assert busy.startswith("Other programs were running: 0.4 cores were idle")


def test_outliers_are_counted_and_kept():
    samples = [1.0, 1.01, 0.99, 1.02, 5.0, 1.0]
    assert statistics.noticed({"a": samples}) == ["a: 1 of 6 samples lie far from the rest; kept."]
    assert statistics.interval(samples)[2] > 1.02


@pytest.mark.parametrize("samples", [[], [1.0, 0.0], [1.0, math.nan], [-1.0], [[1.0]]])
def test_samples_that_are_none_are_refused(samples):
    with pytest.raises(ValueError, match="expected samples in seconds"):
        statistics.interval(samples)
