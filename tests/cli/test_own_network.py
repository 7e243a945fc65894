"""Networks of one's own on the command line: real processes, and one sentence for what is wrong."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from pareo import nn
from pareo.cli import app
from pareo.errors import PareoError, ShapeError
from pareo.lab.experiment.tasks import task_for
from pareo.lab.sweep.engine import Sweep
from pareo.lab.sweep.settings import Settings
from pareo.training import save
from pareo.training.own import load, own_network

ROOT = Path(__file__).parents[2]
COMMANDS: dict[str, list[str]] = {  # that take a network, with what else they need
    "race": [], "sweep": [], "kernels": [], "train": [], "parallel": [],
    "tune": ["--space", "space.toml"], "predict": ["image.npy"],
}  # fmt: skip
FILE = '''
"""Networks in several forms."""
import pareo
from pareo import nn

plain = nn.Sequential([nn.Flatten(), nn.Dense(4)], (1, 6, 6), "given")
shapeless = nn.Sequential([nn.Flatten(), nn.Dense(4)])
graph = nn.Graph({
    "conv": nn.Conv(2, 3, padding=1),
    "norm": nn.BatchNorm(),
    "both": ("concat", "norm", "input"),
    "drop": nn.Dropout(0.5),
    "flat": nn.Flatten(),
    "fc": nn.Dense(4),
})
number = 3


def made():
    return plain


def needs(one):
    return plain


def broken():
    raise ValueError("no weights\\nhere")


class Inside:
    net = plain
'''
TORCH = """
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Sequential):
    input_shape = (1, 6, 6)

    def __init__(self):
        super().__init__(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4))


net = Net()
other = nn.Sequential(nn.Flatten(), nn.Linear(36, 4))


class Summed(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, 2).flatten(1)
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "own_nets.py").write_text(FILE)
    return str(tmp_path / "own_nets.py")


@pytest.fixture
def torch_file(tmp_path: Path) -> str:
    (tmp_path / "own_torch_nets.py").write_text(TORCH)
    return str(tmp_path / "own_torch_nets.py")


@pytest.mark.parametrize("name", ["plain", "made", "Inside.net"])
def test_objects_functions_and_what_is_inside_them(file: str, name: str) -> None:
    network = own_network(f"{file}:{name}").network
    assert network == nn.Sequential([nn.Flatten(), nn.Dense(4)], (1, 6, 6), name)


def test_a_module_of_a_package_is_found(monkeypatch: Any, tmp_path: Path) -> None:
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "nets.py").write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert own_network("own_package.nets:plain").network.name == "plain"


def test_shapes_come_from_the_option_the_object_or_the_data(file: str) -> None:
    assert own_network(f"{file}:plain", None, (1, 9, 9)).network.inputs == (1, 6, 6)
    assert own_network(f"{file}:plain", (2, 5, 5), None).network.inputs == (2, 5, 5)
    assert own_network(f"{file}:shapeless", None, (1, 9, 9)).network.inputs == (1, 9, 9)
    with pytest.raises(PareoError, match="give --input, such as --input 3x224x224"):
        own_network(f"{file}:shapeless")


def test_a_module_of_torch_brings_its_weights(torch_file: str) -> None:
    own = own_network(f"{torch_file}:net")
    assert own.network.name == "net"
    assert own.parameters is not None
    assert own.parameters["3.w"].shape == (48, 4)
    assert own_network(f"{torch_file}:Net").network.classes == 4
    assert own_network(f"{torch_file}:other", None, (1, 6, 6)).network.inputs == (1, 6, 6)


def test_a_task_has_no_dropout_and_the_name_of_the_object(file: str) -> None:
    task = task_for(f"{file}:graph", 8, threads=1, source="synthetic:1x6x6:4:60")
    assert task.network.name == "graph"
    assert task.network.seeds() == 0
    assert task.network.inputs == (1, 6, 6)
    assert task.trained_on == "synthetic:1x6x6:4:60"


def test_a_sweep_of_a_changed_file_begins_again(tmp_path: Path) -> None:
    about = []
    for units in (4, 5):
        path = tmp_path / f"version_{units}" / "changing.py"
        path.parent.mkdir()
        path.write_text(FILE.replace("nn.Dense(4)", f"nn.Dense({units})"))
        settings = Settings(f"{path}:plain", (2,), ("pareo-vectorized",))
        sweep = Sweep(settings, tmp_path)
        sweep.close()
        assert sweep.result().network == "plain"
        about.append(sweep._about()["network"])
    assert about[0] != about[1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("FILE:nothing", "has no object 'nothing'; it has plain, shapeless, graph"),
        ("FILE:number", "is of the type int; expected a pareo network"),
        ("FILE:needs", "failed: TypeError: needs"),
        ("FILE:broken", "failed: ValueError: no weights here, line 28 of own_nets.py"),
        ("FILE", "expected FILE.py:OBJECT, a checkpoint, a .pt2 file or an .onnx file"),
        ("FILE:", "expected FILE.py:OBJECT"),
        ("no/such/thing", "expected FILE.py:OBJECT"),
        ("none.pt2", "none.pt2: expected a .pt2 file; got: No such file or directory"),
        ("none.onnx", "none.onnx: there is no such file"),
        ("none.safetensors", "none.safetensors: expected a checkpoint; got: No such file"),
        ("weights.pth", "weights.pth: a file of torch.save is not executed; give the network as"),
        (str(ROOT / "README.md"), "expected a complete safetensors file"),
        (str(ROOT / "examples"), "last.safetensors: expected a checkpoint; got: No such file"),
        (":net", "expected FILE.py:OBJECT"),
        ("no/such.py:net", "no/such.py: there is no such file"),
        ("no_such_module:net", "there is no module 'no_such_module'"),
        ("pareo.no_such:net", "there is no module 'pareo.no_such'"),
        ("pareo.nn:Dense", "failed: TypeError"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_names_are_one_sentence(file: str, command: str, name: str, message: str) -> None:
    result = CliRunner().invoke(app, [command, name.replace("FILE", file), *COMMANDS[command]])
    assert result.exit_code != 0
    assert isinstance(result.exception, PareoError)
    said = str(result.exception)
    assert message in said
    assert "\n" not in said


def test_a_module_with_an_unknown_operator_is_one_sentence(torch_file: str) -> None:
    name = f"{torch_file}:Summed"
    for arguments in (["race", name, "--input", "1x6x6"], ["train", name, "--data", "mnist"]):
        result = CliRunner().invoke(app, arguments)
        assert isinstance(result.exception, PareoError)
        expected = "Summed has operators that pareo does not: aten.cumsum in own_torch_nets.py"
        assert str(result.exception).startswith(expected)


@pytest.mark.parametrize("code", ["import no_such_thing", "1 / 0", "raise SystemExit(3)", "def"])
def test_a_file_that_cannot_run_is_one_sentence(tmp_path: Path, code: str) -> None:
    (tmp_path / "cannot_run.py").write_text(f"\n{code}\n")
    with pytest.raises(PareoError, match=r"cannot_run.py failed: \w+: ") as caught:
        own_network(f"{tmp_path / 'cannot_run.py'}:net")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("command", COMMANDS)
def test_input_is_for_networks_of_ones_own(command: str, tmp_path: Path) -> None:
    space = tmp_path / "space.toml"
    space.write_text("rate = { low = 0.01, high = 0.1 }\n")
    more = ["--space", str(space)] if command == "tune" else COMMANDS[command]
    result = CliRunner().invoke(app, [command, "lenet5", *more, "--input", "1x28x28"])
    assert isinstance(result.exception, PareoError)
    assert "for a network of your own" in str(result.exception)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_says_that_the_file_is_executed(command: str) -> None:
    said = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    plain = " ".join(said.replace("│", " ").split())
    assert "The Python file is executed. Nothing in the other files is." in plain


def test_training_starts_from_the_weights_of_the_module(torch_file: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app,
        ["train", f"{torch_file}:net", "--data", "synthetic:1x6x6:4:40", "--epochs", "1", "--rate",
         "1e-12", "--device", "vectorized", "--checkpoint", str(tmp_path / "kept")],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    known = load(str(tmp_path / "kept"))
    own = own_network(f"{torch_file}:net")
    assert own.parameters is not None
    assert known.network == own.network
    for path, array in own.parameters.items():
        assert abs(known.weights[path] - array).max() < 1e-6


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A checkpoint of a small network."""
    network = nn.Sequential([nn.Flatten(), nn.Dropout(0.5), nn.Dense(4)], (1, 6, 6), "kept-net")
    path = tmp_path / "kept" / "last.safetensors"
    save(path, network, network.initialise(3), data={"class_names": ["a", "b", "c", "d"]})
    return path


def test_a_checkpoint_is_a_network_with_its_weights(kept: Path) -> None:
    for name in (str(kept), str(kept.parent)):
        own = own_network(name)
        assert own.network.name == "kept-net"
        assert own.parameters is not None
        task = task_for(name, 4, threads=1)
        assert task.network.seeds() == 0
        assert task.original is None
    with pytest.raises(ShapeError, match=r"does not take inputs of shape \(1, 7, 7\): its weight"):
        own_network(str(kept), (1, 7, 7))


def test_a_pt2_file_is_a_network(torch_file: str, tmp_path: Path) -> None:
    module = load(f"{torch_file}:net")
    program = torch.export.export(module.eval(), (torch.zeros(1, 1, 6, 6),))
    torch.export.save(program, tmp_path / "model.pt2")
    name = str(tmp_path / "model.pt2")
    own = own_network(name)
    assert own.network.name == "model"
    assert own.network.layers == own_network(f"{torch_file}:net").network.layers
    task = task_for(name, 4, threads=1)
    assert task.original is not None
    assert task.original.source == name
    assert task.notes == ()  # it has nothing that differs in training
    with pytest.raises(PareoError, match=r"does not compute|cannot export"):
        own_network(name, (1, 9, 9))


def predicted(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["predict", *arguments])


def test_networks_of_all_kinds_predict(kept: Path, file: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 1, 6, 6), np.float32))
    image = str(tmp_path / "x.npy")
    result = predicted(str(kept.parent), image)
    assert result.exit_code == 0, result.output
    assert result.stdout.split(": ")[1][0] in "abcd"  # the names of the classes
    result = predicted(f"{file}:plain", image)
    assert str(result.exception) == (
        f"{file}:plain has no weights of its own: give --weights, or a checkpoint"
    )
    weights = {"1.weight": torch.zeros(4, 36), "1.bias": torch.tensor([0.0, 0.0, 9.0, 0.0])}
    torch.save(weights, tmp_path / "w.pt")
    result = predicted(f"{file}:plain", image, "--weights", str(tmp_path / "w.pt"))
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{image}: 2 (100.0%)\n"
    del weights["1.bias"]
    torch.save(weights, tmp_path / "w.pt")
    result = predicted(f"{file}:plain", image, "--weights", str(tmp_path / "w.pt"))
    assert "missing: 1.bias" in str(result.exception)


def test_training_lists_the_weights_that_do_not_fit(file: str, tmp_path: Path) -> None:
    torch.save({"1.weight": torch.ones(4, 36), "1.bias": torch.ones(9), "head.w": torch.ones(2)},
               tmp_path / "w.pt")  # fmt: skip
    result = CliRunner().invoke(
        app,
        ["train", f"{file}:plain", "--weights", str(tmp_path / "w.pt"), "--data",
         "synthetic:1x6x6:4:40", "--epochs", "1", "--rate", "1e-12", "--device", "vectorized",
         "--checkpoint", str(tmp_path / "out")],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "left over: head.w; of another shape: 1.bias (9,) instead of (4,)" in result.stderr
    assert abs(load(str(tmp_path / "out")).parameters["1.w"] - 1).max() < 1e-6


@pytest.mark.slow
def test_a_race_of_the_example_is_a_real_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pareo", "race", "examples/my_network.py:net", "--contestants",
         "pareo-vectorized,torch", "--seconds", "1", "--batch", "4", "--input", "3x8x8"],
        cwd=ROOT, env={**os.environ, "PAREO_RECORDS": str(tmp_path / "kept.sqlite")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "net, batch 4, float32" in done.stdout
    assert "pareo-vectorized" in done.stdout
    assert "agree with float64" in done.stdout
