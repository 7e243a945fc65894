"""Turns are so long that what a call costs does not count; where they cannot be, it is left out.

Times are simulated: what a call costs is known, so what is reported can be held against it.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pareo import nn
from pareo.lab.contestants import CONTESTANTS, Contestant, Task
from pareo.lab.experiment.runner import Runner
from pareo.lab.experiment.turns import CLOSE, LEAST, LIMIT, MOST, Turn, Wanted, planned
from pareo.lab.race.engine import QUICK, Race, Rules

TASK = Task(nn.Sequential([nn.Dense(5), nn.Sigmoid(), nn.Dense(3)], (7,), "small"), batch=4)
EACH, FIXED, WAKING = 1e-3, 2e-3, 5e-3  # seconds
ADAPTER = f"""
import time
from pareo.lab.contestants import pareo_step
from pareo.lab.experiment.runner import Runner

now = time.perf_counter()
Runner.clock = staticmethod(lambda: now)

def build(task):
    trainer = pareo_step.build(task, device="vectorized")
    run, load = trainer.run, trainer.load
    rested = False
    def timed(order):
        global now
        nonlocal rested
        opens = rested and len(order) == 1  # others ran before this turn began
        now += {FIXED} + {EACH} * len(order) + ({WAKING} if opens else 0)
        rested = len(order) > 1
        return run(order)
    trainer.run = timed
    return trainer
"""


@pytest.mark.parametrize("each", [1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("fixed", [0.0, 1e-5, 1e-3, 1e-2])
def test_a_turn_tells_what_a_further_step_costs(each: float, fixed: float) -> None:
    calls: list[int] = []

    def call(steps: int) -> float:
        calls.append(steps)
        return fixed + each * steps

    turn = planned(call, fixed + each, Wanted(10, seconds=0.5))
    assert calls[-1] == turn.timed  # a new length may have to be compiled
    assert turn.opening == 1
    # The limit is what a sample may hold of it; what is left out is known to a thousandth.
    assert turn.sample(call(turn.timed)) == pytest.approx(each, rel=1.1 * LIMIT)
    assert each * turn.timed >= CLOSE * LEAST * (1 - 1e-9)
    assert each * turn.timed <= 2 * 0.5
    assert turn.fixed == pytest.approx(fixed, abs=1.1e-3 * (fixed + each))


def test_a_turn_that_is_part_of_an_epoch_leaves_the_fixed_cost_out() -> None:
    turn = planned(lambda steps: 1e-4 + 1e-5 * steps, 1e-4, Wanted(47, float("inf"), longer=False))
    assert (turn.steps, turn.timed) == (47, 46)
    assert turn.apart
    assert turn.sample(1e-4 + 46e-5) == pytest.approx(1e-5)
    one = planned(lambda steps: 1e-5 + 1e-4 * steps, 1e-4, Wanted(1, float("inf"), longer=False))
    assert (one.steps, one.timed, one.apart) == (1, 1, True)
    assert one.sample(1.1e-4) == pytest.approx(1e-4)


def test_where_the_fixed_cost_is_most_of_a_turn_nothing_is_left_out() -> None:
    turn = planned(lambda steps: 1e-2 + 1e-5 * steps, 1e-2, Wanted(4, float("inf"), longer=False))
    assert turn.share is not None
    assert turn.share > MOST
    assert not turn.apart


def test_a_slow_step_has_no_opening_and_a_long_turn_is_whole_epochs() -> None:
    calls: list[int] = []

    def slow(steps: int) -> float:
        calls.append(steps)
        return 0.3 * steps

    assert planned(slow, 0.3, Wanted(47, seconds=0.5)) == Turn.of(1)
    assert calls == [1]
    turn = planned(lambda steps: 1e-5 * steps, 1e-5, Wanted(47, seconds=0.5, epoch=469))
    assert turn.steps % 469 == 0
    assert turn.steps > LEAST / 1e-5


def raced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: Rules) -> Any:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "simulated.py").write_text(ADAPTER)
    result = Race(TASK, {"simulated": Contestant("simulated")}, rules).run()
    (row,) = result.rows
    assert row.status == "ok", row.note
    # An epoch is 16 steps; simulated time has no noise.
    assert row.samples == pytest.approx([16 * EACH] * len(row.samples), rel=1.1 * LIMIT)
    assert row.turn.fixed == pytest.approx(FIXED, rel=0.01)
    assert row.turn.opening_seconds == pytest.approx(EACH + FIXED + WAKING)
    return row


@pytest.mark.slow
def test_a_quick_race_times_steps_and_not_what_a_call_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With turns of a tenth of an epoch, two steps, it would report twice the seconds."""
    row = raced(tmp_path, monkeypatch, QUICK)
    assert row.turn.steps * EACH > FIXED / LIMIT
    assert row.turn.share < LIMIT
    assert not row.turn.apart
    assert row.slice == row.turn.steps / 16
    assert row.turn.steps % 16 == 0
    each = row.turn.steps // 16
    assert [point.epoch for point in row.curve[:3]] == [each, 2 * each, 3 * each]


def test_epochs_that_are_marked_leave_fixed_costs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = raced(tmp_path, monkeypatch, Rules(rounds=2).training(epochs=2, accuracy=None))
    assert row.turn.steps == 16
    assert row.turn.apart
    assert row.turn.share == pytest.approx(FIXED / (FIXED + 15 * EACH), rel=0.01)
    assert [point.epoch for point in row.curve] == [1, 2]
    assert row.curve[1].seconds == pytest.approx(32 * EACH, rel=0.01)


@given(st.integers(1, 3000), st.integers(1, 2000), st.integers(0, 1))
def test_turns_end_where_epochs_end(steps: int, epoch: int, opening: int) -> None:
    turn = Turn.of(max(steps, 1 + opening), opening, 1e-3, 0.02).within(epoch)
    done, lengths = 0, []
    while done % epoch or not done:
        lengths.append(turn.length(done))
        done += lengths[-1]
        assert len(lengths) <= epoch
    assert set(lengths) <= turn.lengths()
    assert turn.steps in turn.lengths()
    assert max(lengths) - min(lengths) <= 1
    assert done % epoch == 0
    assert min(lengths) >= 1
    assert turn.length(5 * done) == lengths[0]  # epochs are alike


def test_everyone_has_the_same_batches_behind_at_the_end_of_an_epoch() -> None:
    """However long turns are: 16 steps by three turns, or by one."""
    found = []
    for steps in (5, 16):
        runner = Runner(CONTESTANTS["pareo-vectorized"], TASK)
        runner.agree()
        turn = runner.ready(steps, 100.0, longer=False, epoch=16)
        assert turn.lengths() == ({5, 6} if steps == 5 else {16})
        done = 0
        while done < 16:
            done += turn.length(done)
            runner.run()
        found.append(runner.parameters())
    trainer = CONTESTANTS["pareo-vectorized"].build(TASK)
    trainer.run(TASK.order(64, first=0, steps=16))
    for path, a in trainer.parameters().items():
        np.testing.assert_allclose(found[0][path], a, rtol=1e-6)
        np.testing.assert_allclose(found[1][path], a, rtol=1e-6)
