"""The race is fair: who computes something else gets no time, who fails is a row, others finish."""

import re
from pathlib import Path

import pytest

from pareo import nn
from pareo.errors import PareoError
from pareo.lab.contestants import CONTESTANTS, Contestant, Task
from pareo.lab.contestants.registry import chosen
from pareo.lab.experiment import results
from pareo.lab.race.engine import Race, Rules
from pareo.lab.race.result import Row

TASK = Task(nn.Sequential([nn.Dense(5), nn.Sigmoid(), nn.Dense(3)], (7,), "small"), batch=4)
KINKED = Task(nn.Sequential([nn.Dense(5), nn.ReLU(), nn.Dense(3)], (7,), "kinked"), batch=4)
SHORT = Rules(share=0.5, turn=1.0, seconds=1.0)

# What each does to a trainer that is right: `run` is its own.
WRONG = {
    "scaled": """
        before = trainer.parameters()["0.b"]
        losses = run(order)
        b = trainer._parameters["0.b"]
        b += 0.01 * (b - before)
        return losses""",
    "scaled_once": """
        before = trainer.parameters()["0.b"]
        losses = run(order)
        calls.append(order)
        if len(calls) == 1:
            b = trainer._parameters["0.b"]
            b += 0.01 * (b - before)
        return losses""",
    "other_batches": "return run((order + 1) % 64)",
    "tf32": """
        for a in trainer._parameters.values():
            a.view("uint32")[...] &= 0xFFFFE000
        return run(order)""",
    "greedy": "np.ones(1 << 56)",
    "mistaken": "raise ValueError('two\\nlines')",
    "crashing": """
        if racing() and len(calls) > 2:
            os.kill(os.getpid(), 11)
        return run(order)""",
    "hanging": """
        if racing() and len(calls) > 2:
            time.sleep(1000)
        return run(order)""",
    "diverging": """
        losses = run(order)
        return [float("nan")] * len(order) if racing() and len(calls) > 2 else losses""",
    "lazy": "return np.ones(len(order)) if racing() else run(order)",
    "lazy_at_last": "return np.ones(len(order)) if racing() and len(calls) > 6 else run(order)",
    "half": "return np.repeat(run(order[:1]), len(order)) if racing() else run(order)",
    "short": "return run(order)[:1] if racing() else run(order)",
}
# What each has in place of one of its methods.
STRANGE = {
    "keyless": "trainer.parameters = lambda: own() if not loads else {'0.w': own()['0.w']}",
    "listed": "trainer.parameters = lambda: list(own().values())",
    "set": "trainer.facts = lambda: {'extra': {1, 2}}",
    "text": "trainer.facts = lambda: {'threads': 'two'}",
    "backwards": "Runner.clock = staticmethod(lambda: -time.perf_counter())",
}
ADAPTER = """
import os, time
import numpy as np
from pareo.lab.contestants import pareo_step
from pareo.lab.experiment.runner import Runner

def build(task):
    trainer = pareo_step.build(task, device="vectorized")
    run, load, own, calls, loads = trainer.run, trainer.load, trainer.parameters, [], []
    def racing():
        "Whether the gate and what is untimed is over: calls of the rounds are counted."
        calls.extend([1] if loads else [])
        return bool(loads)
    def changed(order):
        {body}
    def loading(parameters):
        loads.append(parameters)
        load(parameters)
    trainer.run, trainer.load = changed, loading
    {strange}
    return trainer
"""


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Contestant]:
    """Contestants that are wrong on purpose."""
    monkeypatch.syspath_prepend(tmp_path)
    for name, body in WRONG.items():
        text = ADAPTER.format(body=body.strip(), strange="")
        (tmp_path / f"{name}_adapter.py").write_text(text)
    for name, line in STRANGE.items():
        text = ADAPTER.format(body="return run(order)", strange=line)
        (tmp_path / f"{name}_adapter.py").write_text(text)
    return {name: Contestant(f"{name}_adapter") for name in [*WRONG, *STRANGE]}


def rows_of(
    contestants: dict[str, Contestant], rules: Rules = SHORT, task: Task = TASK
) -> dict[str, Row]:
    result = Race(task, contestants, rules).run()
    assert results.plain(results.parsed(results.to_json(result), "the race")) == results.plain(
        result
    )
    return {row.contestant: row for row in result.rows}


def right() -> dict[str, Contestant]:
    return {"pareo-vectorized": CONTESTANTS["pareo-vectorized"]}


@pytest.mark.slow
def test_who_computes_something_else_is_refused_with_the_reason(
    wrong: dict[str, Contestant],
) -> None:
    named = {name: wrong[name] for name in ("scaled", "other_batches", "tf32")}
    rows = rows_of(named | right())
    assert re.fullmatch(
        r"0\.b moved 1\.0e-02 off in step 1, \de-05 allowed; 6 of 6 steps are not exact",
        rows["scaled"].note,
    )
    assert rows["other_batches"].note.startswith("the loss in step 1 is ")
    assert re.search(
        r"off in step 1, \de-0[456] allowed|is .* off, \de-05 allowed", rows["tf32"].note
    )
    for name in named:
        assert rows[name].status == "refused"
        assert rows[name].samples == rows[name].curve == []
    assert rows["pareo-vectorized"].status == "ok"
    assert rows["pareo-vectorized"].samples


def test_a_second_look_tells_chance_from_a_wrong_gradient(
    wrong: dict[str, Contestant],
) -> None:
    named = {name: wrong[name] for name in ("scaled", "scaled_once")}
    rows = rows_of(named, Rules(share=0.5, epochs=1), KINKED)
    assert rows["scaled"].note.startswith("0.b moved 1.0e-02 off in step 1, ")
    assert rows["scaled"].note.endswith(" allowed; 6 of 6 steps are not exact")
    assert rows["scaled"].parity["steps"] == 6
    # Where rounding fell on the other side of a kink it looks like this: off once, then exact.
    assert rows["scaled_once"].status == "ok"
    assert rows["scaled_once"].parity["parameter"] == pytest.approx(0.01, rel=0.1)


@pytest.mark.slow
def test_who_fails_is_a_row_and_the_others_finish(wrong: dict[str, Contestant]) -> None:
    named = {name: wrong[name] for name in ("greedy", "mistaken", "crashing", "diverging")}
    named["absent"] = Contestant("absent_adapter", needs="no_such_framework")
    rows = rows_of(named | right(), Rules(share=0.5, epochs=3))
    assert "MemoryError: Unable to allocate" in rows["greedy"].note
    assert rows["mistaken"].note == "ValueError: two lines"
    assert rows["crashing"].note == "in round 2: the process was ended by SIGSEGV"
    assert rows["diverging"].note == "its loss became nan in round 2"
    assert {rows[name].status for name in named} == {"failed", "missing"}
    assert rows["absent"].status == "missing"
    assert rows["absent"].note == "not installed: pip install no_such_framework"
    assert rows["pareo-vectorized"].rounds == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_what_a_contestant_answers_is_nobody_elses_trouble(wrong: dict[str, Contestant]) -> None:
    rows = rows_of({name: wrong[name] for name in STRANGE} | right(), Rules(share=0.5, epochs=1))
    assert rows["keyless"].note == "parameters() lacks 0.b"
    assert rows["listed"].note == "parameters() returned a list, not a dict of arrays"
    assert rows["set"].note == "extra in facts() is a set, which JSON does not have"
    assert rows["text"].note == "threads in facts(): expected a whole number or null; got 'two'"
    assert re.search(r"expected a number >=? 0\.0.*; got -", rows["backwards"].note)
    for name in STRANGE:
        assert rows[name].status == "failed"
        assert rows[name].samples == rows[name].curve == []
    assert rows["pareo-vectorized"].status == "ok"


@pytest.mark.slow
def test_who_stops_training_after_the_gate_has_no_time(wrong: dict[str, Contestant]) -> None:
    named = {name: wrong[name] for name in ("lazy", "lazy_at_last", "half", "short")}
    rows = rows_of(named | right(), Rules(share=0.5, epochs=3))
    still = "in a turn after the last round, its parameters did not move: it does not train"
    assert rows["lazy"].note == rows["lazy_at_last"].note == still
    assert re.fullmatch(
        r"in a turn after the last round, the loss of step 4 was [\d.]+, not [\d.]+: it does not "
        r"train",
        rows["half"].note,
    )
    assert rows["short"].note == "in round 1: run() returned 1 losses for 7 steps"
    for name in named:
        assert rows[name].status == ("failed" if name == "short" else "refused")
        assert rows[name].samples == rows[name].curve == []
    assert rows["pareo-vectorized"].status == "ok"


@pytest.mark.slow
def test_who_hangs_is_a_row_and_is_ended(wrong: dict[str, Contestant]) -> None:
    rows = rows_of({"hanging": wrong["hanging"]} | right(), Rules(epochs=2, patience=10))
    assert rows["hanging"].status == "failed"
    assert rows["hanging"].note == "in round 2: no answer within 10 s"
    assert rows["pareo-vectorized"].rounds == [1, 2]


@pytest.fixture(scope="module")
def raced() -> dict[str, Row]:
    """Rows of a race in which all goes well."""
    contestants = chosen(["pareo-vectorized", "pareo-sequential", "torch"])
    contestants["ours-best"] = Contestant(tries=("pareo-vectorized", "pareo-compiled"))
    return rows_of(contestants, Rules(share=0.25, epochs=2, together=True))


@pytest.mark.slow
def test_epochs_leave_a_curve_from_the_first_weights_on(raced: dict[str, Row]) -> None:
    for name in ("pareo-vectorized", "torch", "ours-best"):
        row = raced[name]
        assert len(row.samples) == 8
        assert row.slice == 0.25
        curve = row.curve
        assert [point.epoch for point in curve] == [1, 2]
        assert curve[1].seconds > curve[0].seconds > 0
        assert curve[0].accuracy is None  # nothing to test made-up images on
        # Sixteen steps by hand, from the first weights.
        trainer = CONTESTANTS["pareo-vectorized"].build(TASK)
        losses = trainer.run(TASK.order(64, first=0, steps=16))
        assert curve[0].loss == pytest.approx(float(sum(losses)) / 16, rel=1e-5)


@pytest.mark.slow
def test_the_fastest_setting_races_and_the_ledger_names_all(raced: dict[str, Row]) -> None:
    row = raced["ours-best"]
    tried = row.ledger["settings_tried"]
    assert [setting["setting"] for setting in tried] == ["pareo-vectorized", "pareo-compiled"]
    best = min(tried, key=lambda setting: setting["seconds_per_epoch"])["setting"]
    shared = ", timed once for both" if best in raced else ""
    assert row.note == f"its fastest setting: {best}{shared}"
    assert row.ledger["mode"] == f"device {best.removeprefix('pareo-')}"


@pytest.mark.slow
def test_one_that_is_slow_is_timed_on_a_slice_that_says_so(raced: dict[str, Row]) -> None:
    row = raced["pareo-sequential"]
    assert row.note == "timed on steps of 2 images"
    assert row.slice == row.turn.steps * 2 / 64
    assert row.parity["steps"] == 2
    assert row.ledger["threads"] == 1
    assert row.curve == []


@pytest.mark.slow
def test_the_ledger_is_complete(raced: dict[str, Row]) -> None:
    ledger = raced["torch"].ledger
    assert ledger["precision"] == "float32"
    assert ledger["mode"] == "eager, oneDNN on"
    assert ledger["threads"] == 1
    assert ledger["first_layer_data_gradient"] is False
    assert ledger["peak_memory_bytes"] > 1 << 20


@pytest.mark.smoke
def test_other_precisions_are_not_for_a_cpu() -> None:
    result = Race(TASK, right(), SHORT, "tf32").run()
    assert result.rows[0].status == "missing"
    assert result.rows[0].note == "it computes in float32 only, not in tf32"


@pytest.mark.smoke
def test_unknown_names_are_told() -> None:
    with pytest.raises(PareoError, match="no contestant is called 'caffe'; there are pareo-seq"):
        chosen(["caffe"])


def test_ctrl_c_leaves_the_times_and_the_ledger() -> None:
    def stop(now: Race) -> None:
        if now.round == 3 and "running" in now.doing:
            raise KeyboardInterrupt

    race = Race(TASK, chosen(["pareo-vectorized"]), Rules(share=0.5), watch=stop)
    with pytest.raises(KeyboardInterrupt):
        race.run()
    (row,) = race.result().rows
    assert row.status == "ok"
    assert len(row.samples) == 2
    assert row.note == "interrupted after 2 rounds"
    assert row.ledger["mode"] == "device vectorized"
    assert race.result().building_seconds
