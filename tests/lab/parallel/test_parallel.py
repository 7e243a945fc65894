"""The race of ways to use all cores: who is held against whom, and what follows."""

import json
import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from damage import damaged
from typer.testing import CliRunner

from pareo.cli import app
from pareo.cli.tables.parallel import everything, running
from pareo.data import Dataset
from pareo.errors import DataError, PareoError
from pareo.lab.experiment import records, results
from pareo.lab.papers import costa_banevicius as paper
from pareo.lab.papers.costa_banevicius import trials
from pareo.lab.parallel import result as parallel_result
from pareo.lab.parallel import strategies
from pareo.lab.parallel.engine import Row, Turn, Way, amdahl, race
from pareo.lab.parallel.papers import (
    ALL,
    HELPED,
    HELPED_PROCESSES,
    PROCESSES,
    SERIAL,
    THREADS,
    TorchWays,
    papers_data,
    pareo_ways,
)
from pareo.lab.parallel.summary import lines
from pareo.lab.report.parallel import figures, html
from pareo.parallel import train_many


def took(train: float, losses: tuple[float, ...] = (0.5,)) -> Any:
    return lambda: Turn(train, train / 10, losses, 0.1, 0.2)


def failing() -> Turn:
    raise PareoError("no more memory")


def test_a_way_that_fails_or_learns_something_else_is_a_row() -> None:
    ways = [
        Way("one worker", 1, took(4.0)),
        Way("data, threads", 2, took(2.5)),
        Way("wrong", 2, took(0.1, (0.6,))),
        Way("broken", 2, failing),
    ]
    rows = race(ways, rounds=3)
    assert [row.status for row in rows] == ["ok", "ok", "refused", "failed"]
    assert rows[1].train == [2.5] * 3
    assert rows[2].note == "its losses differ by 0.2 of the others'"
    assert rows[3].note == "no more memory"
    assert math.isnan(parallel_result.speedup(rows[2], rows))


def test_many_networks_are_held_against_as_many_one_after_another() -> None:
    rows = [
        Row("pareo", "one worker", 1, 1, [1.0]),
        Row("pareo", "tasks, one after another", 1, 4, [4.8]),
        Row("pareo", "tasks, threads", 2, 4, [2.4]),
        Row("torch", SERIAL, 1, 3, [9.0]),
        Row("torch", THREADS, 3, 3, [6.0]),
    ]
    assert parallel_result.speedup(rows[2], rows) == pytest.approx(2.0)
    assert parallel_result.speedup(rows[4], rows) == pytest.approx(1.5)


@pytest.mark.smoke
@pytest.mark.parametrize(("serial", "counts"), [(0.0, (2,)), (0.1, (2, 4, 8)), (1.0, (2, 3))])
def test_amdahls_share_is_found(serial: float, counts: tuple[int, ...]) -> None:
    speedups = {n: 1 / (serial + (1 - serial) / n) for n in counts}
    assert amdahl(speedups) == pytest.approx(serial)


def test_amdahl_of_one_worker_is_unknown() -> None:
    assert amdahl({1: 1.0}) is None


def test_a_strategy_pays_from_the_smallest_size_above_which_it_always_does() -> None:
    rows = [Row("pareo", "one worker", 1, 1, [2.0]), Row("pareo", "data", 2, 1, [1.2])]
    other = [
        {"strategy": "data", "batch": 8, "speedup": 1.3},
        {"strategy": "data", "batch": 16, "speedup": 0.9},
        {"strategy": "data", "batch": 64, "speedup": 1.1},
        {"strategy": "never", "batch": 64, "speedup": 0.4},
    ]
    assert parallel_result.pays_from(other, 128, rows) == {"data": 64, "never": None}


def made_up() -> dict[str, Any]:
    rows = [
        Row("pareo", "one worker", 1, 1, [2.0, 2.1], [0.2, 0.2]),
        Row("pareo", "data, <threads>", 2, 1, [1.2, 1.1], [0.1, 0.1], 0.05, 0.1),
        Row("pareo", "broken", 2, 1, status="failed", note="no more <memory>"),
    ]
    return {
        "schema": 1, "kind": "parallel", "when": "2026-11-15T10:00:00+00:00",
        "network": "mlp-small", "machine": {"processor": "a processor"}, "versions": {},
        "batch": 128, "images": 1280, "test_images": 100, "workers": [1, 2],
        "rows": [parallel_result._plain(row, rows) for row in rows],
        "strategies": parallel_result.strategies(rows),
        "sizes": [{"strategy": "data, <threads>", "batch": 16, "speedup": 0.8}],
        "pays_from": parallel_result.pays_from([], 128, rows),
        "prediction": {"words": "threads: 1 s expected"},
    }  # fmt: skip


def made_up_papers() -> dict[str, Any]:
    rows = [
        Row("pareo", SERIAL, 1, 3, [6.0, 6.2], [0.6, 0.6]),
        Row("pareo", ALL, 2, 3, [5.0, 5.0], [0.5, 0.5]),
        Row("pareo", HELPED, 2, 3, [3.0, 3.1], [0.3, 0.3]),
    ]
    result = {name: made_up()[name] for name in ("schema", "when", "machine", "versions", "images")}
    return {
        **result, "kind": "parallel-papers", "network": "mlp-small, mlp-big", "batch": 128,
        "test_images": 100, "workers": [2], "sgemm_peak": 1e11,
        "rows": [{**parallel_result._plain(row, rows), "of_peak": 0.8} for row in rows],
        "published": {"epochs": 10, "seconds": {n: [*t] for n, t in paper.PUBLISHED.items()}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("made", "listed", "drawn"),
    [
        (made_up, ["mlp-small", "pareo: data, <threads> (2)", "1.15"], "data, &lt;threads&gt;"),
        (made_up_papers, ["pareo: threads, scheduled (2)", "1.017"], "Scheduled threads are 2.00"),
    ],
)
def test_it_is_kept_listed_and_drawn(
    made: Any, listed: list[str], drawn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "records.sqlite"))
    assert records.load(records.save(made())) == made()
    history = CliRunner().invoke(app, ["history"], env={"COLUMNS": "160"})
    assert all(words in history.stdout for words in listed)
    narrow = CliRunner().invoke(app, ["history"], env={"COLUMNS": "80"})
    assert listed[-1] in narrow.stdout  # long names are wrapped: numbers and seconds stay
    page = tmp_path / "parallel.html"
    assert CliRunner().invoke(app, ["report", "last", "--html", str(page)]).exit_code == 0
    assert drawn in page.read_text()
    compared = CliRunner().invoke(app, ["compare", "last", "last"])
    assert "compare expects two races; last is a parallel" in str(compared.exception)


@pytest.mark.parametrize(
    ("made", "path", "value", "said"),
    [
        (made_up, ("schema",), 9, "a result of `pareo parallel` with schema 1 in schema; got 9"),
        (made_up, ("workers",), [], "a number of 1 or more in the length of workers; got 0"),
        (made_up, ("rows", 0, "train"), [0], "a number above 0 in rows[0].train[0]; got 0"),
        (made_up, ("rows", 0, "seconds"), None, "a number above 0 in rows[0].seconds; got None"),
        (made_up, ("rows", 1, "speedup"), "2", "a number in rows[1].speedup; got '2'"),
        (made_up, ("rows", 2, "status"), "fine", "in rows[2].status; got 'fine'"),
        (made_up, ("strategies", 0, "speedups"), {"two": 1}, "numbers of workers in strategies[0]"),
        (made_up, ("sizes", 0, "batch"), None, "sizes[0].batch; got None"),
        (made_up, ("prediction",), [], "an object in prediction"),
        (made_up, ("sgemm_peak",), 1e11, "rows[0].of_peak; got None"),
        (made_up_papers, ("sgemm_peak",), 0, "a number above 0 in sgemm_peak; got 0"),
        (made_up_papers, ("rows", 0, "test_seconds"), None, "rows[0].test_seconds; got None"),
        (made_up_papers, ("published", "seconds"), {}, "in published.seconds.separate threads"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    made: Any, path: tuple[Any, ...], value: object, said: str
) -> None:
    with pytest.raises(DataError) as error:
        results.checked(damaged(made(), path, value), "some file")
    assert said in str(error.value)


def test_losing_cases_are_shown_as_such() -> None:
    result = made_up()
    result["rows"][1]["speedup"] = 0.7
    assert "Slower than one worker: data, <threads> (2)." in lines(result)


def test_the_report_draws_what_was_measured_and_escapes_names() -> None:
    result = json.loads(json.dumps(made_up(), allow_nan=False))
    drawn = figures(result)
    assert drawn["workers"]["data"][0]["y"] == [1, pytest.approx(2.05 / 1.15)]
    assert drawn["sizes"]["data"][0]["x"] == [16, 128]
    page = html(result)
    assert "no more &lt;memory&gt;" in page
    assert "<threads>" not in page


@pytest.mark.smoke
def test_the_tables_have_a_row_for_each_way() -> None:
    tables = list(everything(made_up()))
    assert tables[0].row_count == 3  # type: ignore[union-attr]
    assert running([Row("pareo", "one worker", 1, 1)], "first turn").row_count == 1


def test_the_paper_gained_a_sixth() -> None:
    together, alone = paper.PUBLISHED["separate threads"], paper.PUBLISHED["one thread"]
    assert alone[0] / together[0] == pytest.approx(1.207, abs=0.001)
    assert alone[1] / together[1] == pytest.approx(1.087, abs=0.001)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expects either a NETWORK or --papers"),
        (["mlp-small", "--papers"], "expects either a NETWORK or --papers"),
        (["mlp-small", "--workers", "0..2"], "--workers expects numbers to 64"),
        (["mlp-small", "--batches", "big"], "--batches expects numbers"),
        (["nonsense"], "a network is one of"),
        (["mlp-small", "--json", "no/such/folder/x.json"], "its directory does not exist"),
    ],
)
def test_wrong_words_are_said_in_one_sentence(words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["parallel", *words])
    assert result.exit_code != 0
    assert said in str(result.exception)


def test_one_network_through_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "records.sqlite"))
    threads = {n: way for n, way in strategies.ONE_NETWORK.items() if way[1] == "threads"}
    monkeypatch.setattr(strategies, "ONE_NETWORK", threads)  # processes take seconds to start
    kept, page = tmp_path / "result.json", tmp_path / "report.html"
    words = ["parallel", "mlp-small", "--workers", "2", "--rounds", "1", "--seconds", "0.01"]
    words += ["--batch", "16", "--batches", "none", "--json", str(kept), "--html", str(page)]
    result = CliRunner().invoke(app, [*words, "--save"])
    assert records.load(1) == json.loads(kept.read_text())
    rows = {row["name"]: row for row in json.loads(kept.read_text())["rows"]}
    assert {row["status"] for row in rows.values()} == {"ok"}, rows
    assert result.exit_code == 0
    assert {*threads, "tasks, threads", "tasks, processes", "tasks, population"} <= set(rows)
    assert rows["one worker"]["speedup"] == 1
    assert "one worker" in result.stdout
    assert page.stat().st_size > 1000


def test_the_papers_networks_in_every_way() -> None:
    data = papers_data(256)
    few = Dataset("few", data.images, data.labels, data.test_images[:64], data.test_labels[:64], 10)
    with ExitStack() as stack:
        entered = pareo_ways(few, 2, stack)
        assert [way.name for way in entered][:4] == [SERIAL, ALL, THREADS, PROCESSES]
        assert [way.name for way in entered][4:] == [HELPED, HELPED_PROCESSES]
        # Of the two ways in processes, which take seconds to start, the harder one.
        rows = race([way for way in entered if way.name != PROCESSES], rounds=1)
    assert [(row.status, row.note) for row in rows] == [("ok", "")] * 5
    assert all(len(row.train) == len(row.test) == 1 for row in rows)


def test_pytorch_learns_the_same() -> None:
    pytest.importorskip("torch")
    small = TorchWays(("small",), 256)
    result = train_many([trials()[0]], papers_data(256), "threads", test=False)[0]
    for way in ("serial", "threads"):
        assert small(way, 1)[2] == pytest.approx(result.losses, rel=1e-4)
