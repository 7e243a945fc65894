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
    assert ">pareo-vectorized</td>" in shown


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


@pytest.mark.slow
def test_a_race_with_a_loss_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "huber-loss.py").write_text(
        "from pareo import nn, op\n"
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True)\n"
        "class Doubled(nn.layers.Layer):\n"  # other processes find it, too
        "    def apply(self, parameters, x, context):\n"
        "        return 2 * x\n"
        "net = nn.Sequential([nn.Flatten(), Doubled(), nn.Dense(3)], (1, 4, 4))\n"
        "def smooth(outputs, labels):\n"
        "    return op.cross_entropy(outputs, labels) + 0.1 * op.mean(op.tanh(outputs) ** 2)\n"
        "def other(outputs, labels):\n"
        "    return op.mean(grad(lambda x: op.sum(op.sigmoid(x)))(outputs) ** 2)\n"
        "from pareo import grad\n"
    )
    file = tmp_path / "huber-loss.py"
    found = pareo.race(
        f"{file}:net", 4, ["pareo-vectorized", "torch"], loss=f"{file}:smooth", seconds=0.1,
        threads=1,
    )  # fmt: skip
    assert [row.status for row in found.rows] == ["ok", "ok"], [row.note for row in found.rows]
    assert found.loss == "smooth"
    assert "net, smooth, batch 4, float32" in (found._repr_html_() or "")
    found = pareo.race(
        f"{file}:net", 4, ["pareo-vectorized", "torch"], loss=f"{file}:other", seconds=0.1,
        threads=1,
    )  # fmt: skip
    ours, theirs = found.rows
    assert ours.status == "ok", ours.note
    assert (theirs.status, theirs.samples) == ("missing", [])
    assert theirs.note == "it has no sigmoid_gradient for the loss other"


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
        ({"network": "lenet5", "loss": "hinge"}, "a loss is one of cross-entropy, squared-error"),
        ({"network": "lenet5", "loss": lambda x, y: x}, "other processes cannot import the loss"),
        ({"network": "lenet5", "loss": 3}, "expected the name of a loss, or a function of outputs"),
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
