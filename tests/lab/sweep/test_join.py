"""Several sweeps as one: every cell, and comparisons within each alone."""

from dataclasses import replace
from pathlib import Path

import pytest
from sweep_result import made
from sweep_result import sweep as typed
from typer.testing import CliRunner

from pareo.cli import app
from pareo.errors import DataError
from pareo.lab.experiment.results import Machine, checked, plain, to_json
from pareo.lab.report import sweep as report
from pareo.lab.sweep.advice import ahead, answer, limits_title
from pareo.lab.sweep.join import together
from pareo.lab.sweep.result import Ceiling, SweepResult

SMALL = typed(made({"pareo-compiled": {1: 0.12, 2: 0.08}, "torch": {1: 0.15, 2: 0.12}}))
LARGE = typed(made({"pareo-compiled": {2: 0.09, 4: 0.06}, "jax": {2: 0.05, 4: 0.10}}))
LARGE.when = "2026-11-15T11:00:00+00:00"


def copied(result: SweepResult) -> SweepResult:
    """The result as it is read again."""
    found = checked(plain(result), "a copy")
    assert isinstance(found, SweepResult)
    assert found == result
    return found


def test_cells_of_all_are_there_and_the_latest_is_drawn() -> None:
    both = copied(together({"large": LARGE, "small": SMALL}))
    assert [(c.batch, c.contestant, c.sweep) for c in both.cells] == [
        (1, "pareo-compiled", 0), (1, "torch", 0),
        (2, "pareo-compiled", 0), (2, "torch", 0), (2, "pareo-compiled", 1), (2, "jax", 1),
        (4, "pareo-compiled", 1), (4, "jax", 1),
    ]  # fmt: skip
    assert [one.batch for one in both.work] == [*both.settings.batches] == [1, 2, 4]
    lines = {line["name"]: line for line in report.figures(both)["times"]["data"]}
    assert lines["pareo-compiled"]["x"] == [1, 2, 4]
    assert lines["pareo-compiled"]["y"] == pytest.approx([120, 90, 60])


def test_the_limits_of_all_are_drawn_though_the_latest_has_none() -> None:
    larger, without = copied(LARGE), copied(LARGE)
    for entry in larger.limits:
        entry.limit *= 2
    without.limits, without.when = [], "2026-11-15T12:00:00+00:00"
    without.settings = replace(without.settings, memory_limit=None)
    several = copied(together({"a": without, "b": larger, "c": SMALL}))
    drawn = report.figures(several)["memory"]["layout"]["shapes"]
    assert [(line["y0"], line["label"]["text"]) for line in drawn] == [
        (2.0, "limit 2 GB"),
        (4.0, "limit 4 GB"),
    ]
    assert limits_title(several) == "The largest batch under 2 and 4 GB"
    assert not report.figures(without)["memory"]["layout"]["shapes"]
    assert limits_title(without) == "The largest batch"


def test_who_is_ahead_is_told_within_a_sweep() -> None:
    """At batch 2 pareo beats PyTorch in one and loses to JAX in the other."""
    said = ahead(together({"small": SMALL, "large": LARGE}))
    assert said == "pareo against its fastest peer: faster at batch 1, 4; slower at batch 2."


def test_the_answer_is_of_the_cells_that_are_drawn() -> None:
    slower = copied(LARGE)
    for cell in slower.cells:
        cell.seconds_per_batch = [100 * seconds for seconds in cell.seconds_per_batch]
    slower.when = "2026-11-15T12:00:00+00:00"
    slower.machine.idle_cores = 0.5
    later = together({"large": LARGE, "slower": slower})
    best = answer(later)
    assert best is not None
    assert best.seconds_per_image == pytest.approx(100 * answer(LARGE).seconds_per_image)
    assert later.machine.idle_cores == 0.5
    assert together({"slower": slower, "small": SMALL}).machine.idle_cores == 0.5


def test_a_cell_that_ran_short_in_one_and_was_timed_in_another_has_its_time() -> None:
    short = typed(made({"pareo-compiled": {1: 0.12}}, short=(("torch", 1), ("torch", 16))))
    both = together({"short": short, "small": SMALL})
    found = {cell.key: cell.status for cell in both.cells}
    assert found["torch", 1] == "ok"
    assert found["torch", 16] == "memory"


def test_the_highest_ceilings_count() -> None:
    ceilings = [Ceiling(place="cpu", peak_flops=9e10, bandwidth=None)]
    faster = replace(LARGE, ceilings=ceilings)
    (one,) = together({"small": SMALL, "large": faster}).ceilings
    assert one == Ceiling(place="cpu", peak_flops=9e10, bandwidth=20e9)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"network": "googlenet"}, "b: expected network alexnet, as in a; got googlenet"),
        ({"precision": "tf32"}, "b: expected precision float32, as in a; got tf32"),
        (
            {"machine": Machine(processor="other")},
            "b: expected machine Arm Neoverse N1, as in a; got ",
        ),
    ],
)
def test_what_cannot_stand_together_is_refused(change: dict, said: str) -> None:
    with pytest.raises(DataError) as error:
        together({"a": SMALL, "b": replace(LARGE, **change)})
    assert said in str(error.value)


def test_several_files_make_one_report(tmp_path: Path, monkeypatch) -> None:
    files = [tmp_path / "small.json", tmp_path / "large.json"]
    for file, result in zip(files, (SMALL, LARGE), strict=True):
        file.write_text(to_json(result))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["report", *map(str, files)])
    assert done.exit_code == 0
    page = (tmp_path / "pareo-sweeps-small.html").read_text()
    assert "slower at batch 2" in page
    assert page.count("in the sweep of 2026-11-15 10:00") == len(SMALL.cells)
    assert page.count("in the sweep of 2026-11-15 11:00") == len(LARGE.cells)


@pytest.mark.parametrize("name", ["/../../victim", "../victim", "/etc/victim", "a/b", "x" * 300])
def test_what_is_in_a_file_decides_no_path(tmp_path: Path, monkeypatch, name: str) -> None:
    here = tmp_path / "some" / "where"
    (here / "pareo-sweep-").mkdir(parents=True)  # which a path through it would need
    for file, result in ("small.json", SMALL), ("large.json", LARGE):
        (here / file).write_text(to_json(replace(result, network=name, precision=name)))
    monkeypatch.chdir(here)
    before = set(tmp_path.rglob("*"))
    done = CliRunner().invoke(app, ["report", "small.json", "large.json"])
    assert done.exit_code == 0
    assert set(tmp_path.rglob("*")) - before == {here / "pareo-sweeps-small.html"}


def test_only_sweeps_stand_together(tmp_path: Path) -> None:
    file = tmp_path / "sweep.json"
    file.write_text(to_json(SMALL))
    race = Path(__file__).parents[3] / "docs" / "results" / "race-h200.json"
    done = CliRunner().invoke(app, ["report", str(file), str(race)])
    assert "expected a sweep, because several were given; got race" in str(done.exception)
