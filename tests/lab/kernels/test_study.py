"""A whole study with real processes: the gate, turns, the instrument, and what ends one early."""

import pytest

from pareo import nn
from pareo.lab.contestants import CONTESTANTS, Contestant, Task
from pareo.lab.kernels.study import Study
from pareo.lab.kernels.summary import sections

TASK = Task(nn.Sequential([nn.Dense(6), nn.Sigmoid(), nn.Dense(3)], (5,), "small"), batch=4)
OURS = {"pareo-vectorized": CONTESTANTS["pareo-vectorized"]}


@pytest.mark.slow
@pytest.mark.parametrize("together", [False, True])
def test_a_study_has_the_step_and_the_flops(together: bool) -> None:
    absent = Contestant("some.module", needs="frobnicate")
    study = Study(TASK, {**OURS, "absent": absent}, together=together)
    result = study.run()
    ours, other = result.rows
    assert (other.status, other.profiles) == ("missing", [])
    assert ours.status == "ok"
    assert len(ours.samples) == 6
    (section,) = sections(result)
    assert sum(row.flops or 0 for row in section.profile.rows) == result.flops
    assert sum(row.seconds for row in section.profile.rows) == pytest.approx(
        section.profile.seconds
    )
    assert study.profiles["pareo-vectorized"][0].events


@pytest.mark.slow
def test_an_interrupt_keeps_what_is_there() -> None:
    def impatient(doing: str) -> None:
        if doing.startswith("second: timing"):
            raise KeyboardInterrupt

    two = {"first": OURS["pareo-vectorized"], "second": OURS["pareo-vectorized"]}
    result = Study(TASK, two, say=impatient).run()
    assert [row.status for row in result.rows] == ["ok", "failed"]
    assert result.rows[1].note == "it was interrupted"
    assert [section.contestant for section in sections(result)] == ["first"]


def test_one_that_computes_something_else_has_no_kernels() -> None:
    wrong = Contestant("pareo.lab.contestants.pareo_step", {"device": "vectorized", "dtype": "f2"})
    result = Study(TASK, {"wrong": wrong}).run()
    assert result.rows[0].status in ("refused", "failed")
    assert result.rows[0].profiles == []
    assert result.machine.idle_cores is not None  # so that a report can say that it was busy
    assert not list(sections(result))
