"""The race's own honesty: every adapter is the same network, and who differs is not timed."""

import io
import json
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from pareo import nn
from pareo.lab import train_speed
from pareo.lab.contestants import CONTESTANTS, Contestant, Task, without_dropout
from pareo.lab.experiment.gate.parity import parity, reference
from pareo.lab.experiment.runner import Runner
from pareo.lab.experiment.worker import Failed, Worker
from pareo.lab.train_speed import Cell, Entry, arguments, main, race, table

# Every kind of layer, with padding, `ceil`, groups and overlapping windows where they may be.
TINY = nn.Sequential(
    [
        nn.Conv(4, 3, 2, 1), nn.Tanh(), nn.MaxPool(3, 2, ceil=True), nn.Lrn(3, alpha=0.5),
        nn.Branches(
            [nn.Conv(2, 1), nn.ReLU()],
            [nn.Sequential([nn.Conv(4, 1), nn.Sigmoid()]), nn.Conv(4, (3, 1), 1, (1, 0), groups=2)],
            [nn.MaxPool(3, 1, 1), nn.Conv(3, 1), nn.Dropout(0.3)],
        ),
        nn.AveragePool(2, 2, 1, ceil=True), nn.Subsample(2, stride=1), nn.Subsample(2, stride=2),
        nn.Flatten(), nn.Dropout(0.5), nn.Dense(6), nn.Softmax(),
    ],
    (3, 24, 21),
    "tiny",
)  # fmt: skip
TASK = Task(without_dropout(TINY), batch=4, rate=0.5)
SMALL = Task(nn.Sequential([nn.Dense(5), nn.Sigmoid(), nn.Dense(3)], (7,), "small"), batch=4)


@pytest.fixture(scope="module")
def exact() -> Any:
    return reference(TASK)


@pytest.fixture
def torch_as_it_was() -> Iterator[None]:
    threads, onednn = torch.get_num_threads(), torch.backends.mkldnn.enabled
    yield
    torch.set_num_threads(threads)
    torch.backends.mkldnn.enabled = onednn


@pytest.mark.parametrize("name", CONTESTANTS)
@pytest.mark.usefixtures("torch_as_it_was")
def test_every_adapter_trains_the_same_network(name: str, exact: Any) -> None:
    contestant = CONTESTANTS[name]
    if contestant.missing():
        pytest.skip(f"{contestant.needs} is {contestant.missing()}")
    if name == "torch-compile":
        pytest.skip("compiling takes longer than all other tests here; the race itself checks it")
    if contestant.needs in (None, "torch"):  # which other tests have imported already
        answer = Runner(contestant, TASK)("agree")
    else:
        with Worker(Runner, contestant, TASK) as worker:
            answer = worker.ask("agree")
    error: dict[str, float] = {}
    assert parity(TASK, answer, exact, error) == ""
    assert error["loss"] < 1e-6
    assert error["parameter"] < 1e-4
    assert error["share"] < 0.5


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="tensorflow is not installed")
def test_tensorflow_is_keras_and_the_ledger_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")  # a user's choice, which is not the contestant's
    with Worker(Runner, CONTESTANTS["tensorflow"], SMALL) as worker:
        told = worker.ask("ledger")["version"]
        assert parity(SMALL, worker.ask("agree"), reference(SMALL), {}) == ""
    assert told == f"{version('tensorflow')}, Keras {version('keras')}"


def test_dropout_is_taken_out_however_deep() -> None:
    assert TINY.seeds() == 2
    assert TASK.network.seeds() == 0
    assert TASK.network.count() == TINY.count()


WRONG = """
from pareo.lab.contestants import pareo_step

def build(task):
    trainer = pareo_step.build(task, device="vectorized")
    run = trainer.run
    def wrong(order):
        before = trainer.parameters()["0.b"]
        losses = run(order)
        b = trainer._parameters["0.b"]
        b += 0.01 * (b - before)
        return losses
    trainer.run = wrong
    return trainer
"""
DYING = """
import os

def build(task):
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Contestant]:
    """A contestant that is right, and three that are not."""
    (tmp_path / "wrong_adapter.py").write_text(WRONG)
    (tmp_path / "dying_adapter.py").write_text(DYING)
    monkeypatch.syspath_prepend(tmp_path)
    return {
        "pareo-vectorized": CONTESTANTS["pareo-vectorized"],
        "wrong": Contestant("wrong_adapter"),
        "dying": Contestant("dying_adapter"),
        "absent": Contestant("absent_adapter", needs="no_such_framework"),
    }


def test_only_who_agrees_is_timed_and_the_table_says_why(adapters: dict[str, Contestant]) -> None:
    cell = race(SMALL, adapters, rounds=2, seconds=0.01)
    right, wrong, dying, absent = cell.entries
    assert right.note == ""
    assert wrong.note.startswith("0.b moved 1.0e-02 off in step 1, ")
    assert "SIGKILL" in dying.note
    assert absent.note == "not installed: pip install no_such_framework"
    assert [entry.failed for entry in cell.entries] == [False, True, True, False]
    assert [len(entry.samples) for entry in cell.entries] == [2, 0, 0, 0]
    text = io.StringIO()
    Console(file=text, width=200).print(table(cell))
    assert "small, batch 4" in text.getvalue()
    assert text.getvalue().count("not timed") == 3
    assert wrong.note in text.getvalue()


def steps_of(exact: Any) -> list[Any]:
    first = exact(0, TASK.parameters())
    second = exact(1, first.parameters)
    return [(first.loss, first.parameters), (second.loss, second.parameters)]


def test_what_differs_is_named(exact: Any) -> None:
    (loss, one), (second, two) = steps_of(exact)
    assert parity(TASK, [(loss, one), (second, two)], exact, {}) == ""
    wrong = [(loss, one), (second * 1.001, two)]
    assert parity(TASK, wrong, exact, {}).startswith("the loss in step 2 is 1.0e-03 off, ")
    broken = {**two, "4.0.0.w": np.full_like(two["4.0.0.w"], np.nan)}
    wrong = [(loss, one), (second, broken)]
    assert parity(TASK, wrong, exact, {}).startswith("4.0.0.w moved nan off in step 2")
    missing = [(loss, {**one, "0.b": one["0.b"][:1]}), (second, two)]
    assert parity(TASK, missing, exact, {}) == "0.b has the shape (1,), not (4,)"


def test_gradients_that_are_kept_for_the_second_step_are_refused(exact: Any) -> None:
    (loss, one), (second, two) = steps_of(exact)
    start = TASK.parameters()
    stale = {path: two[path] + (one[path] - start[path]) for path in two}
    assert "in step 2" in parity(TASK, [(loss, one), (second, stale)], exact, {})


def test_ratios_are_against_the_best_peer_and_the_measured_peak() -> None:
    entries = [
        Entry("pareo-compiled", samples=[0.5, 1.0, 3.0]),
        Entry("torch", samples=[2.0, 4.0, 9.0]),
        Entry("jax", samples=[8.0]),
    ]
    cell = Cell("papers-cnn", 100, (1, 28, 28), 10**9, entries, sgemm=[1e9, 2e9])
    assert cell.best_peer == 4.0
    text = io.StringIO()
    Console(file=text, width=200).print(table(cell))
    row = next(line for line in text.getvalue().splitlines() if "pareo" in line)
    cells = [part.strip() for part in row.split("│")[1:-1]]
    assert cells == ["pareo-compiled", "1000", "500", "3000", "100", "600", "4.00", "50%"]


def test_an_exception_is_the_reason_in_one_line() -> None:
    with Worker(int, "no\nnumber") as worker, pytest.raises(Failed, match="ValueError: invalid"):
        worker.ask()


def test_the_command_writes_samples_and_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(train_speed, "network_of", lambda name, size: SMALL.network)
    file = tmp_path / "found.json"
    words = ["mlp-small", "--batches", "4", "--contestants", "pareo-vectorized", "--rounds", "1"]
    assert main([*words, "--seconds", "0.01", "--threads", "1", "--json", str(file)]) == 0
    assert "pareo-vectorized" in capsys.readouterr().out
    record = json.loads(file.read_text())
    assert record["machine"]["libraries"]["numpy"]
    assert len(record["cells"][0]["entries"][0]["samples"]) == 1
    assert record["cells"][0]["sgemm_peak"] > 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["lenet"], "network 'lenet' is none of papers-cnn"),
        (["--batches", "1,none"], "at least 1; got 'none'"),
        (["--contestants", "torch,caffe"], "'caffe' is none of pareo-compiled"),
    ],
)
def test_wrong_words_are_told(words: list[str], reason: str, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        arguments(words)
    assert reason in capsys.readouterr().err


def test_installed_frameworks_are_found() -> None:
    assert CONTESTANTS["torch"].missing() is None
    assert (CONTESTANTS["jax"].missing() is None) == (find_spec("jax") is not None)
