"""Races and sweeps from Python: typed results, which show themselves in a notebook."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from arena_result import arena
from race_result import race as made_up_race
from sweep_result import sweep as made_up_sweep

import pareo
from pareo import nn
from pareo.errors import PareoError
from pareo.lab.experiment.tasks import task_for
from pareo.lab.race.result import RaceResult
from pareo.lab.sweep.result import SweepResult
from pareo.training.own import named

ROOT = Path(__file__).parents[3]
NETWORK = nn.Sequential([nn.Flatten(), nn.Dense(3)], (1, 4, 4), "mine")


@pytest.mark.slow
def test_a_race_of_a_network_returns_a_typed_result() -> None:
    result = pareo.race(NETWORK, 4, ["pareo-vectorized"], seconds=0.1, threads=1)
    assert isinstance(result, RaceResult)
    assert result.network == "mine"
    assert result.batch == 4
    assert [row.status for row in result.rows] == ["ok"]
    shown = result._repr_html_()
    assert shown is not None
    assert "mine, batch 4, float32" in shown
    assert "<td>pareo-vectorized</td>" in shown


@pytest.mark.slow
def test_a_module_races_as_itself() -> None:
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 5))
    result = pareo.race(
        module, 4, ["torch"], input_shape=(1, 4, 4), seconds=0.1, threads=1, name="given"
    )
    assert result.network == "given"
    [row] = result.rows
    assert row.status == "ok", row.note
    assert "the module itself" in row.ledger["mode"]


def test_a_second_module_of_the_same_name_replaces_the_first() -> None:
    for units in (5, 7):
        module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, units))
        task = task_for(named(module, "given"), 4, threads=1, shape=(1, 4, 4))
        assert task.network.classes == units


@pytest.mark.slow
def test_a_sweep_of_a_network_returns_a_typed_result() -> None:
    result = pareo.sweep(NETWORK, [1, 3], ["pareo-vectorized"], seconds=0.1, threads=1)
    assert isinstance(result, SweepResult)
    assert result.network == "mine"
    assert [(cell.batch, cell.status) for cell in result.cells] == [(1, "ok"), (3, "ok")]


def test_results_show_themselves_without_scripts() -> None:
    shown = made_up_race()._repr_html_()
    assert shown is not None
    assert "pareo-compiled has the shortest time" in shown
    assert "Not timed" in shown
    assert "<script" not in shown
    shown = made_up_sweep()._repr_html_()
    assert shown is not None
    assert "alexnet by batch size" in shown
    assert arena()._repr_html_() is None  # a notebook then shows its repr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"network": 3}, "expected the name of a network, or a pareo network"),
        ({"network": nn.Dense}, "expected the name of a network"),
        ({"network": "resnt"}, "a network is one of"),
        ({"network": nn.Dense(2)}, "the shape of its input is not known"),
        ({"network": "lenet5", "contestants": ["tofu"]}, "no contestant is called 'tofu'"),
        ({"network": "lenet5", "precision": "half"}, "a precision is one of"),
        ({"network": "lenet5", "batch": 0}, "a batch of at least 1"),
        ({"network": "lenet5", "input_shape": (1, 2, 2)}, "for a network of your own"),
    ],
)
def test_wrong_arguments_are_one_sentence(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(PareoError, match=said):
        pareo.race(**arguments)  # type: ignore[arg-type]


def test_the_library_does_not_import_the_lab() -> None:
    code = "import pareo, sys; print('pareo.lab' in sys.modules, pareo.race.__module__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "pareo.lab.race.call"]
