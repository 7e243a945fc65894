"""`pareo history` over time: lines, whose a step is, the page, and results that travel."""

import json
import sqlite3
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from race_result import made
from typer.testing import CliRunner

from pareo.cli import app
from pareo.lab.experiment import records, results
from pareo.lab.history import groups, index, lines
from pareo.lab.history.points import points

START = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 24


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "records.sqlite"))
    return tmp_path / "records.sqlite"


def said(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def daily(change: Callable[[int, dict[str, Any]], None] = lambda day, data: None) -> list[Any]:
    """A race a day; `change(day, data)` spoils some."""
    found = []
    for day in range(DAYS):
        data = made(seed=day)
        data["when"] = (START + timedelta(days=day)).isoformat(timespec="seconds")
        change(day, data)
        found.append(results.checked(data, "the race"))
    return found


def slower(data: dict[str, Any], contestant: str, by: float) -> None:
    for row in data["rows"]:
        if contestant in (row["contestant"], "everyone"):
            row["samples"] = [by * sample for sample in row["samples"]]


def series(races: list[Any]) -> dict[str, lines.Series]:
    found: dict[Any, list[Any]] = {}
    for number, race in enumerate(races, 1):
        for line, point in points(number, race):
            found.setdefault(line, []).append(point)
    return {one.line.contestant: one for one in lines.series(found)}


def test_a_race_with_another_loss_is_another_line() -> None:
    other = {**made(), "loss": "squared-error"}
    one, two = (next(points(1, results.checked(data, "race")))[0] for data in (made(), other))
    assert one.work != two.work
    assert one.command + " --loss squared-error" == two.command
    assert two.title.startswith("papers-cnn, squared-error on mnist, batch 128")


def test_what_we_made_slower_is_ours() -> None:
    def change(day: int, data: dict[str, Any]) -> None:
        if day >= 12:
            slower(data, "pareo-compiled", 1.1)
            for row in data["rows"]:
                if row["contestant"] == "pareo-compiled":
                    row["ledger"]["version"] = "9.9"

    found = series(daily(change))
    (step,) = found["pareo-compiled"].steps
    assert (step.point.number, step.whose) == (13, "ours")
    assert step.step.change == pytest.approx(0.1, abs=0.02)
    assert "to 9.9" in step.because
    assert found["torch"].steps == []
    before, after = found["pareo-compiled"].ratios[3], found["pareo-compiled"].ratios[20]
    assert after / before == pytest.approx(1.1, abs=0.05)


def test_a_slower_machine_is_nobodys() -> None:
    found = series(daily(lambda day, data: slower(data, "everyone", 1.2 if day >= 12 else 1.0)))
    for one in found.values():
        (step,) = one.steps
        assert step.whose == "machine"
    ratios = list(found["pareo-compiled"].ratios.values())
    assert max(ratios) / min(ratios) < 1.1


def test_a_new_driver_and_a_new_version_of_a_peer_are_named() -> None:
    def driver(day: int, data: dict[str, Any]) -> None:
        data["machine"]["cards"] = [{"name": "a GPU", "driver": "580" if day < 12 else "590"}]
        slower(data, "everyone", 1.2 if day >= 12 else 1.0)

    (step,) = series(daily(driver))["torch"].steps
    assert (step.whose, step.because) == ("driver", "a GPU 580 to a GPU 590")

    def version(day: int, data: dict[str, Any]) -> None:
        if day >= 12:
            slower(data, "torch", 0.8)
            (row,) = [row for row in data["rows"] if row["contestant"] == "torch"]
            row["ledger"]["version"] = "3.0"

    found = series(daily(version))
    (step,) = found["torch"].steps
    assert step.whose == "peer's version"
    assert "to 3.0" in step.because
    assert found["pareo-compiled"].steps == []


def test_steps_of_a_machine_are_one_and_others_stay_apart() -> None:
    def change(day: int, data: dict[str, Any]) -> None:
        if day >= 8:
            slower(data, "pareo-compiled", 1.1)
        if day >= 16:
            slower(data, "everyone", 1.2)

    machine, ours = groups.every_group(list(series(daily(change)).values()))
    assert (machine.whose, machine.result, len(machine.changes)) == ("machine", 17, 6)
    assert (ours.whose, ours.result, list(ours.changes)) == ("ours", 9, ["pareo-compiled"])


def test_the_page_and_the_list_show_all(path: Path, tmp_path: Path) -> None:
    records.save_all(
        daily(lambda day, data: slower(data, "pareo-compiled", 1.1 if day >= 12 else 1.0))
    )
    page = tmp_path / "history.html"
    assert str(page) in said("history", "--html", str(page))
    text = page.read_text()
    assert "pareo race papers-cnn --batch 128" in text
    assert "+10" in text or "+9" in text
    assert "ours" in text
    assert "ours" in said("history", "--steps")
    assert "pareo-compiled" in said("history")


def test_the_index_follows_the_records(path: Path) -> None:
    races = daily()

    def best(result: Any) -> tuple[str, str]:
        return "the best", "1"

    records.save_all(races[:3])
    assert index.listed(best)[1] == 3
    records.save(races[3])
    found, count = index.listed(best, most=2)
    assert ([one.number for one in found], count) == ([3, 4], 4)
    path.chmod(0o400)  # what cannot be written is read nevertheless
    assert index.listed(best)[1] == 4


def test_two_that_index_at_once_add_nothing_twice() -> None:
    records.save_all(daily())
    threads = [
        threading.Thread(target=index.listed, args=(lambda result: ("", ""),)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    by_line = index.by_line(lambda result: ("", ""))
    found = [(line, point) for line, all_of_it in by_line.items() for point in all_of_it]
    assert len(found) == len(set(found)) == DAYS * 6


def test_one_damaged_result_hides_no_other(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records.save_all(daily()[:3])
    with sqlite3.connect(path) as file:
        file.execute("UPDATE results SET result = substr(result, 1, 90) WHERE number = 2")
    file.close()
    assert [one.number for one in index.listed(lambda result: ("", ""))[0]] == [1, 3]
    assert "result 2: expected JSON" in capsys.readouterr().err


def test_results_travel_as_json_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    races, file = daily()[:3], tmp_path / "all.jsonl"
    records.save_all(races)
    assert "3 results written" in said("history", "--export", str(file))
    assert len(file.read_text().splitlines()) == 3
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "other.sqlite"))
    records.save(races[1])
    assert "2 results added; 1 were here already" in said("history", "--import", str(file))
    assert "0 results added; 3 were here already" in said("history", "--import", str(file))
    assert sorted(result.when for _, result in records.everything()) == [r.when for r in races]


def test_a_wrong_line_adds_nothing(tmp_path: Path) -> None:
    file = tmp_path / "wrong.jsonl"
    file.write_text(json.dumps(made()) + "\n{}\n{not json\n")
    done = CliRunner().invoke(app, ["history", "--import", str(file)])
    assert "wrong.jsonl, line 2: expected" in str(done.exception)
    assert records.everything() == []
