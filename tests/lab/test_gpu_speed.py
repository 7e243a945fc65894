"""The race on a GPU: its settings and its table, which need none; a short race, which does."""

import io
from typing import Any

import numpy as np
import pytest
from devices import needs_gpu
from rich.console import Console

from pareo import Device, nn
from pareo.lab import gpu_speed, gpu_transfers
from pareo.lab.contestants import Task
from pareo.lab.train_speed import Cell, Entry
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.training.step import step_program


def shown(table: Any) -> str:
    text = io.StringIO()
    Console(file=text, width=160).print(table)
    return text.getvalue()


def test_the_table_has_floor_share_and_memory() -> None:
    entries = [
        Entry("pareo", samples=[1e-5], peak_bytes=2**29),
        Entry("torch", samples=[4e-5]),
        Entry("jax", note="the loss is 1 off", failed=True),
    ]
    cell = Cell("papers-cnn", 100, (1, 28, 28), 10**8, entries, sgemm=[5e13])
    text = shown(gpu_speed.table(cell, "float32", moved=10**6, bandwidth=4e12))
    assert "floor 0.0012 s an epoch" in text  # 2 us a step, from its FLOPs
    for told in ("0.006", "4.00", "20%", "0.50", "the loss is 1 off"):
        assert told in text


def test_the_floor_is_the_larger_of_two() -> None:
    cell = Cell("x", 1, (1, 28, 28), 10**9, [], sgemm=[1e12])
    assert gpu_speed.floor(cell, 10**6, 1e12) == pytest.approx(1e-3)
    assert gpu_speed.floor(cell, 4 * 10**9, 1e12) == pytest.approx(4e-3)
    task = Task(networks.papers_cnn(), 2)
    assert task.least_bytes() == 4 * (2 * 2343 + 2 * 784)


def test_everyone_is_told_the_precision() -> None:
    told = [c.in_precision("tf32") for c in gpu_speed.CONTESTANTS.values()]
    assert {c.options["precision"] for c in told} == {"tf32"}


@pytest.mark.parametrize(
    "words", [["nothing"], ["--precision", "float16"], ["--contestants", "caffe"]]
)
def test_wrong_words_are_refused(words: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit):
        gpu_speed.arguments(words)
    assert "pareo.lab.gpu_speed: error" in capsys.readouterr().err


def test_operator_by_operator_is_the_same_step() -> None:
    network = Sequential([nn.Flatten(), nn.Dense(4), nn.Sigmoid(), nn.Dense(3)], (2, 2))
    program = step_program(network, 5)
    draw = np.random.default_rng(0)
    x, y = draw.random((5, 2, 2), dtype=np.float32), draw.integers(0, 3, 5)
    start = list(network.initialise(0).values())
    with Device("vectorized"):
        found = gpu_transfers.one_by_one(program, [*start, x, y, np.float32(0.1)], moving=True)
    loss, moved, _ = program.compile(Device("vectorized"))(
        network.initialise(0), {}, x, y, np.float32(0.1), ()
    )
    assert found[0] == pytest.approx(loss)
    for a, b in zip(found[1:], moved.values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.gpu
@needs_gpu
def test_a_short_race(capsys: Any) -> None:
    words = ["papers-cnn", "--batches", "32", "--contestants", "pareo,torch-graph"]
    assert gpu_speed.main([*words, "--rounds", "2", "--seconds", "0.01"]) == 0
    assert "torch-graph" in capsys.readouterr().out
