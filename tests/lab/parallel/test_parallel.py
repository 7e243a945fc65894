"""The race of strategies to use all cores: what each is compared with, and what follows."""

import json
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from damage import damaged
from typer.testing import CliRunner

from pareo.cli import app
from pareo.cli.tables.parallel import everything, running
from pareo.data import Dataset
from pareo.device import Device
from pareo.errors import DataError, PareoError
from pareo.lab.contestants import Task
from pareo.lab.experiment import records, results
from pareo.lab.experiment.worker import Worker
from pareo.lab.papers import costa_banevicius as paper
from pareo.lab.parallel import strategies
from pareo.lab.parallel.engine import Strategy, Turn, race
from pareo.lab.parallel.measure import PEERS
from pareo.lab.parallel.names import (
    ALL_CORES,
    PROCESSES,
    SCHEDULED_PROCESSES,
    SCHEDULED_THREADS,
    SERIAL,
    THREADS,
)
from pareo.lab.parallel.papers import papers_data, pareo_strategies
from pareo.lab.parallel.papers_peers import AT_ONCE, IN_TURN, Networks, peer_strategies
from pareo.lab.parallel.result import BatchSpeedup, OneNetworkResult, PapersResult, Row
from pareo.lab.parallel.speedup import (
    amdahl,
    at_batch,
    compare_with_one_worker,
    pays_from,
    scalings,
)
from pareo.lab.parallel.summary import lines
from pareo.lab.report.parallel import figures, html
from pareo.nn.networks import by_name
from pareo.parallel import train_many
from pareo.training.evaluate import Evaluator
from pareo.training.fit import shuffled


def took(train: float, losses: tuple[float, ...] = (0.5,)) -> Any:
    return lambda: Turn(train, train / 10, losses, 0.1, 0.2)


def failing() -> Turn:
    raise PareoError("no more memory")


def test_a_strategy_that_fails_or_learns_something_else_is_a_row() -> None:
    entered = [
        Strategy("one worker", 1, took(4.0)),
        Strategy("data, threads", 2, took(2.5)),
        Strategy("wrong", 2, took(0.1, (0.6,))),
        Strategy("broken", 2, failing),
    ]
    rows = race(entered, 3)
    assert [row.status for row in rows] == ["ok", "ok", "refused", "failed"]
    assert rows[1].train == [2.5] * 3
    assert rows[2].note == "its losses differ by 0.2 of the others'"
    assert rows[3].note == "no more memory"
    assert [row.speedup for row in rows] == [1.0, 1.6, None, None]
    assert rows[1].efficiency == pytest.approx(0.8)


def test_a_strategy_that_fails_later_has_no_times() -> None:
    turns = iter([Turn(1.0, 0.1, [0.5]), Turn(1.0, 0.1, [0.5])])
    [row] = race([Strategy("one worker", 1, lambda: next(turns))], 3)
    assert (row.status, row.train, row.test, row.seconds, row.speedup) == (
        "failed", [], [], None, None,
    )  # fmt: skip


def test_what_is_watched_is_known_before_each_turn() -> None:
    seen: list[Any] = []
    entered = [Strategy("one worker", 1, took(2.0)), Strategy("data", 2, took(1.0))]
    race(entered, 2, lambda rows, doing: seen.append((doing, rows[1].speedup)))
    assert seen == [
        ("pareo, one worker, first turn, untimed", None),
        ("pareo, data, first turn, untimed", None),
        ("pareo, one worker, round 1 of 2", None),
        ("pareo, data, round 1 of 2", None),
        ("pareo, one worker, round 2 of 2", 2.0),
        ("pareo, data, round 2 of 2", 2.0),
    ]


def rows_of(*measured: tuple[Any, ...]) -> list[Row]:
    """Rows of a contestant, a strategy, workers, networks, and the seconds of turns."""
    rows = []
    for contestant, name, workers, networks, train, test in measured:
        rows.append(Row(contestant, name, workers, networks))
        for seconds, testing in zip(train, test or [None] * len(train), strict=True):
            rows[-1].add(seconds, testing)
    compare_with_one_worker(rows)
    return rows


def test_many_networks_are_compared_with_as_many_one_after_another() -> None:
    rows = rows_of(
        ("pareo", "one worker", 1, 1, [1.0], []),
        ("pareo", "tasks, one after another", 1, 4, [4.8], []),
        ("pareo", "tasks, threads", 2, 4, [2.4], []),
        ("torch", SERIAL, 1, 3, [9.0], []),
        ("torch", THREADS, 3, 3, [6.0], []),
    )
    assert rows[2].speedup == pytest.approx(2.0)
    assert rows[4].speedup == pytest.approx(1.5)


@pytest.mark.smoke
@pytest.mark.parametrize(("serial", "counts"), [(0.0, (2,)), (0.1, (2, 4, 8)), (1.0, (2, 3))])
def test_amdahls_share_is_found(serial: float, counts: tuple[int, ...]) -> None:
    speedups = {n: 1 / (serial + (1 - serial) / n) for n in counts}
    assert amdahl(speedups) == pytest.approx(serial)


def test_amdahl_of_one_worker_is_unknown() -> None:
    assert amdahl({1: 1.0}) is None


def test_a_strategy_pays_from_the_smallest_size_above_which_it_always_does() -> None:
    rows = rows_of(("pareo", "one worker", 1, 1, [2.0], []), ("pareo", "data", 2, 1, [1.2], []))
    measured = [("data", 8, 1.3), ("data", 16, 0.9), ("data", 64, 1.1), ("never", 64, 0.4)]
    other = [BatchSpeedup(strategy=name, batch=size, speedup=s) for name, size, s in measured]
    found = pays_from([*other, *at_batch(rows, 128, 2)])
    assert found == {"data": 64, "never": None}


def made_up() -> dict[str, Any]:
    rows = rows_of(
        ("pareo", "one worker", 1, 1, [2.0, 2.1], [0.2, 0.2]),
        ("pareo", "data, <threads>", 2, 1, [1.2, 1.1], [0.1, 0.1]),
        ("pareo", "broken", 2, 1, [], []),
    )
    rows[1].communication, rows[1].idle = 0.05, 0.1
    rows[2].end("failed", "no more <memory>")
    found = {
        "schema": 1, "kind": "parallel", "when": "2026-11-15T10:00:00+00:00",
        "network": "mlp-small", "machine": {"processor": "a processor"}, "versions": {},
        "batch": 128, "images": 1280, "test_images": 100, "workers": [1, 2], "rows": rows,
        "strategies": scalings(rows),
        "sizes": [{"strategy": "data, <threads>", "batch": 16, "speedup": 0.8}],
        "pays_from": pays_from(at_batch(rows, 128, 2)),
        "prediction": {"words": "threads: 1 s expected"},
    }  # fmt: skip
    return dict(results.plain(found))


def made_up_papers() -> dict[str, Any]:
    rows = rows_of(
        ("pareo", SERIAL, 1, 3, [6.0, 6.2], [0.6, 0.6]),
        ("pareo", ALL_CORES, 2, 3, [5.0, 5.0], [0.5, 0.5]),
        ("pareo", SCHEDULED_THREADS, 2, 3, [3.0, 3.1], [0.3, 0.3]),
    )
    for row in rows:
        row.of_peak = 0.8
    known = {name: made_up()[name] for name in ("schema", "when", "machine", "versions", "images")}
    found = {
        **known, "kind": "parallel-papers", "network": "mlp-small, mlp-big", "batch": 128,
        "test_images": 100, "workers": [2], "sgemm_peak": 1e11, "rows": rows,
        "published": {"epochs": 10, "seconds": paper.PUBLISHED},
    }  # fmt: skip
    return dict(results.plain(found))


def network_result(data: Any = None) -> OneNetworkResult:
    found = results.checked(data or made_up(), "made up")
    assert isinstance(found, OneNetworkResult)
    return found


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
    result = results.checked(made(), "made up")
    assert records.load(records.save(result)) == result
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
        (made_up, ("schema",), 9, "expected 1 in schema; got 9"),
        (made_up, ("workers",), [], "a list of length >= 1 in workers"),
        (made_up, ("rows", 0, "train"), [0], "a number > 0.0 in rows[0].train[0]; got 0"),
        (made_up, ("rows", 0, "seconds"), None, "a number > 0 in rows[0].seconds; got None"),
        (made_up, ("rows", 1, "speedup"), "2", "in rows[1].speedup; got '2'"),
        (made_up, ("rows", 2, "status"), "fine", "in rows[2].status; got 'fine'"),
        (made_up, ("strategies", 0, "speedups"), {"two": 1}, "numbers of workers in speedups"),
        (made_up, ("sizes", 0, "batch"), None, "sizes[0].batch; got None"),
        (made_up, ("prediction",), [], "in prediction"),
        (made_up, ("kind",), "parallel-papers", "expected sgemm_peak"),
        (made_up_papers, ("sgemm_peak",), 0, "a number > 0.0 in sgemm_peak; got 0"),
        (made_up_papers, ("rows", 0, "of_peak"), None, "rows[0].of_peak; got None"),
        (made_up_papers, ("rows", 0, "test_seconds"), None, "rows[0].test_seconds; got None"),
        (made_up_papers, ("published", "seconds"), {}, "times of 'separate threads' in published"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    made: Any, path: tuple[Any, ...], value: object, said: str
) -> None:
    with pytest.raises(DataError) as error:
        results.checked(damaged(made(), path, value), "some file")
    assert said in str(error.value)


def test_the_kind_decides_what_a_result_is() -> None:
    assert "published" not in results.plain(results.checked({**made_up(), "sgemm_peak": 1.0}, "x"))
    papers = results.checked(made_up_papers(), "made up")
    assert isinstance(papers, PapersResult)
    assert results.checked(results.plain(papers), "again") == papers


def test_losing_cases_are_shown_as_such() -> None:
    result = network_result()
    result.rows[1].speedup = 0.7
    assert "Slower than one worker: data, <threads> (2)." in lines(result)
    assert lines(result)[0] == "Nothing pays here: no strategy is 1.05 times as fast as one worker."
    assert not any(line.startswith("Nothing pays") for line in lines(network_result()))


def test_one_network_may_lose_where_several_win() -> None:
    result = network_result()
    result.rows[1].speedup = 0.66
    several = replace(result.rows[1], name="tasks", networks=4, speedup=1.5)
    result.rows.append(several)
    one, many, *_ = lines(result)
    assert one.startswith("For one network nothing pays: the fastest, data, <threads> with 2 ")
    assert one.endswith("is 0.66 times as fast as one.")
    assert many == "For several the fastest is tasks with 2 workers: 1.50 times as fast as one."


def test_the_report_draws_what_was_measured_and_escapes_names() -> None:
    result = network_result(json.loads(results.to_json(network_result())))
    drawn = figures(result)
    assert drawn["workers"]["data"][0]["y"] == [1, pytest.approx(2.05 / 1.15)]
    assert drawn["sizes"]["data"][0]["x"] == [16, 128]
    page = html(result)
    assert "no more &lt;memory&gt;" in page
    assert "<threads>" not in page


@pytest.mark.smoke
def test_the_tables_have_a_row_for_each_strategy() -> None:
    tables = list(everything(network_result()))
    assert tables[0].row_count == 3  # type: ignore[union-attr]
    assert running([Row("pareo", "one worker", 1)], "first turn").row_count == 1


def test_the_paper_gained_a_sixth() -> None:
    apart, alone = paper.PUBLISHED["separate threads"], paper.PUBLISHED["one thread"]
    assert alone[0] / apart[0] == pytest.approx(1.207, abs=0.001)
    assert alone[1] / apart[1] == pytest.approx(1.087, abs=0.001)


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


@pytest.mark.slow
def test_one_network_through_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "records.sqlite"))
    threads = {n: fit for n, fit in strategies.ONE_NETWORK.items() if fit[1] == "threads"}
    monkeypatch.setattr(strategies, "ONE_NETWORK", threads)  # processes take seconds to start
    kept, page = tmp_path / "result.json", tmp_path / "report.html"
    words = ["parallel", "mlp-small", "--workers", "2", "--rounds", "1", "--seconds", "0.01"]
    words += ["--batch", "16", "--batches", "none", "--json", str(kept), "--html", str(page)]
    result = CliRunner().invoke(app, [*words, "--save"])
    assert results.plain(records.load(1)) == json.loads(kept.read_text())
    rows = {row["name"]: row for row in json.loads(kept.read_text())["rows"]}
    assert {row["status"] for row in rows.values()} == {"ok"}, rows
    assert result.exit_code == 0
    assert {*threads, "tasks, threads", "tasks, processes", "tasks, population"} <= set(rows)
    assert rows["one worker"]["speedup"] == 1
    assert "one worker" in result.stdout
    assert page.stat().st_size > 1000


@pytest.mark.slow
def test_the_papers_networks_in_every_strategy() -> None:
    data = papers_data(256)
    few = Dataset("few", data.images, data.labels, data.test_images[:64], data.test_labels[:64], 10)
    with ExitStack() as stack:
        entered = pareo_strategies(few, 2, stack)
        assert [one.name for one in entered][:4] == [SERIAL, ALL_CORES, THREADS, PROCESSES]
        assert [one.name for one in entered][4:] == [SCHEDULED_THREADS, SCHEDULED_PROCESSES]
        # Of the two strategies in processes, which take seconds to start, the harder one.
        rows = race([one for one in entered if one.name != PROCESSES], 1)
    assert [(row.status, row.note) for row in rows] == [("ok", "")] * 5
    assert all(len(row.train) == len(row.test) == 1 for row in rows)


@pytest.mark.parametrize("how", [IN_TURN, AT_ONCE])
@pytest.mark.parametrize("framework", ["torch", pytest.param("tensorflow", marks=pytest.mark.slow)])
def test_a_framework_learns_the_same(framework: str, how: str) -> None:
    pytest.importorskip(framework)
    right = train_many(paper.trials()[:2], papers_data(256), "threads", test=False)
    with Worker(Networks, PEERS[framework], ("small", "medium"), 256, how, 1) as worker:
        for _ in range(2):  # each turn begins with the first weights
            train, test, losses = worker.ask()
            assert losses == pytest.approx([one.losses[0] for one in right], rel=1e-4)
            assert min(train, test) > 0


class Scored:
    """The test of a small network after an epoch, in a process that imports the framework."""

    def __init__(self, framework: str, images: int) -> None:
        task = Task(by_name("mlp-small"), paper.BATCH, rate=paper.RATE)
        self._peer, steps = PEERS[framework]([task], IN_TURN, 1), images // paper.BATCH
        self._order = shuffled(images, 0, 0).reshape(steps, paper.BATCH)

    def __call__(self) -> tuple[float, float]:
        self._peer.restart(0)
        self._peer.train(0, self._order)
        return self._peer.test(0)


@pytest.mark.slow
@pytest.mark.parametrize("framework", PEERS)
def test_a_framework_tests_what_it_trained(framework: str) -> None:
    pytest.importorskip(framework)
    [result] = train_many(paper.trials()[:1], papers_data(256), "threads", test=False)
    tests = Task(by_name("mlp-small"), paper.BATCH).test_data()
    assert tests is not None
    right = Evaluator(by_name("mlp-small"), Device("vectorized"))(result.parameters, *tests)
    with Worker(Scored, framework, 256) as worker:
        loss, accuracy = worker.ask()
    assert loss == pytest.approx(right[0], rel=1e-4)
    assert accuracy == pytest.approx(right[1], abs=2e-4)


class Broken:
    """A framework that fails."""

    def __init__(self, tasks: Any, how: str, threads: int) -> None:
        pass

    def restart(self, number: int) -> None:
        pass

    def train(self, number: int, order: Any) -> Any:
        raise ValueError("no such kernel")

    def test(self, number: int) -> tuple[float, float]:
        raise AssertionError("nothing was trained")


def test_what_a_framework_raises_is_its_row() -> None:
    data = papers_data(256)
    with ExitStack() as stack:
        rows = race(peer_strategies("torch", Broken, data, 1, stack), 1)
    assert [row.status for row in rows] == ["failed"] * 4
    assert all("ValueError: no such kernel" in row.note for row in rows), rows


def test_a_framework_that_is_not_installed_says_how() -> None:
    with ExitStack() as stack:
        entered = peer_strategies("tensorflow", Broken, papers_data(256), 2, stack)
        if find_spec("tensorflow"):
            assert {one.missing for one in entered} == {""}
            return
        rows = race(entered, 1)
    assert [row.name for row in rows] == [SERIAL, ALL_CORES, THREADS, PROCESSES]
    for row in rows:
        assert (row.status, row.train) == ("missing", [])
        assert row.note == "not installed: pip install 'pareo[tensorflow]'"
