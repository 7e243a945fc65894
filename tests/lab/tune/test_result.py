"""The result of a search: checked, listed and drawn."""

from pathlib import Path
from typing import Any

import pytest
from damage import damaged
from typer.testing import CliRunner

from pareo.cli import app
from pareo.errors import DataError
from pareo.lab.experiment import records, results
from pareo.lab.tune.result import TuneResult


def made() -> dict[str, Any]:
    """A made-up search of four trials."""
    trials = [
        {
            "number": number, "state": state, "accuracy": accuracy, "curve": [accuracy],
            "parameters": {"rate": rate, "width": 8}, "seconds": 1.5, "how": "threads",
            "error": None,
        }
        for number, (state, accuracy, rate) in enumerate(
            [("complete", 0.91, 0.1), ("complete", 0.9725, 0.3), ("pruned", 0.5, 0.9)]
        )
    ]  # fmt: skip
    failed = {"number": 3, "state": "failed", "accuracy": None, "error": "no <memory>"}
    trials.append({**failed, "curve": [], "parameters": {}, "seconds": None, "how": None})
    return {
        "schema": 1, "kind": "tune", "when": "2026-11-15T10:00:00+00:00", "network": "mlp-small",
        "data": "mnist", "epochs": 1, "device": "compiled", "wanted": 4, "trials": trials,
        "space": {"rate": {"low": 0.01, "high": 1.0, "log": True}, "width": [4, 8], "hidden": 1},
        "best": 1, "test_accuracy": 0.97, "importances": {"rate": 0.9, "width": 0.1},
        "machine": {"processor": "a processor"}, "versions": {"pareo": "0.1.0"},
    }  # fmt: skip


@pytest.mark.smoke
def test_a_search_is_kept_listed_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "records.sqlite"))
    none = {**made(), "best": None, "test_accuracy": None, "trials": made()["trials"][3:]}
    records.save(results.checked(none, "made up"))
    result = results.checked(made(), "made up")
    assert records.load(records.save(result)) == result
    listed = CliRunner().invoke(app, ["history"], env={"COLUMNS": "160"})
    assert "trial 1, 97.25%" in listed.stdout
    assert "no trial finished" in listed.stdout
    page = tmp_path / "search.html"
    for number, words in (("1", "No trial finished"), ("2", "The best is trial 1 (rate")):
        done = CliRunner().invoke(app, ["report", number, "--html", str(page)])
        assert done.exit_code == 0, done.exception
        assert words in page.read_text()
    assert "no &lt;memory&gt;" in page.read_text()
    compared = CliRunner().invoke(app, ["compare", "last", "last"])
    assert "compare expects two races; last is a tune" in str(compared.exception)


def test_the_best_trial_is_found_by_its_number() -> None:
    result = results.checked(made(), "made up")
    assert isinstance(result, TuneResult)
    assert result.best_trial is result.trials[1]
    assert [trial.number for trial in result.judged] == [0, 1, 2]
    assert results.plain(result) == made() | {"machine": results.plain(result.machine)}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("schema",), 9, "expected 1 in schema; got 9"),
        (("best",), 3, "the number of a trial that has an accuracy in best; got 3"),
        (("space",), {"rate": [0]}, "some file: space: rate expects numbers above 0; got 0"),
        (("importances", "rate"), None, "a number in importances"),
        (("trials", 0, "number"), 1, "trials with numbers that differ in trials"),
        (("trials", 0, "state"), "fine", "in trials[0].state; got 'fine'"),
        (("trials", 0, "accuracy"), "1", "in trials[0].accuracy; got '1'"),
        (("trials", 0, "parameters"), {}, "a number above 0 in trials[0].parameters.rate"),
        (("trials", 0, "parameters", "width"), 5, "one of 4, 8 in trials[0].parameters.width"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    path: tuple[Any, ...], value: object, said: str
) -> None:
    with pytest.raises(DataError) as error:
        results.checked(damaged(made(), path, value), "some file")
    assert said in str(error.value)
