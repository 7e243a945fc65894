"""A module of PyTorch races as itself: the very module, the same first weights, the same gate."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pareo.lab.contestants import CONTESTANTS, Task
from pareo.lab.contestants.torch_models import OfLayers, OfModule, model_of
from pareo.lab.experiment.gate.parity import parity, reference
from pareo.lab.experiment.tasks import task_for
from pareo.training.own import load, named, own_network

FILE = '''
"""A network that counts its calls, draws in several ways, and has what it does not use."""
import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    input_shape = (2, 6, 6)
    calls = 0

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout2d(0.5)
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(144, 5)
        self.unused = nn.Linear(3, 3)
        self.fc.weight.requires_grad_(False)

    def forward(self, x):
        Net.calls += 1
        return self.fc(torch.relu(self.norm(self.conv(x))).flatten(1))


class Drawing(Net):
    def forward(self, x):
        return functional.dropout(super().forward(x), 0.5, self.training)


net = Net()
drawing = Drawing()
numbered = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(72, 9), nn.ReLU(),
                         nn.Dropout(0.1), nn.Linear(9, 5))
numbered.input_shape = (2, 6, 6)
'''


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "racing_nets.py").write_text(FILE)
    return str(tmp_path / "racing_nets.py")


def refused(task: Task, name: str) -> str:
    """What differs in the first two steps of a contestant; empty if nothing does."""
    trainer = CONTESTANTS[name].build(task)
    if task.has_gate_parameters:
        trainer.load(task.gate_parameters())
    steps = []
    for number in range(2):
        [loss] = trainer.run(task.order(task.count(), number, 1))
        steps.append((float(loss), trainer.parameters()))
    return parity(task, steps, reference(task), {})


@pytest.mark.parametrize("name", ["torch", "torch-channels-last"])
@pytest.mark.parametrize("network", ["net", "drawing", "numbered"])
def test_the_module_passes_the_gate(file: str, network: str, name: str) -> None:
    task = task_for(f"{file}:{network}", 4, threads=1)
    assert refused(task, name) == ""


def test_it_is_the_module_itself_that_is_called(file: str) -> None:
    task = task_for(f"{file}:net", 4, threads=1)
    trainer: Any = CONTESTANTS["torch"].build(task)
    kind = type(load(f"{file}:net"))
    before = kind.calls
    trainer.run(task.order(task.count(), 0, 3))
    assert kind.calls == before + 3
    assert trainer.facts()["mode"] == "eager, the module itself, oneDNN on"
    drawing = CONTESTANTS["torch"].build(task_for(f"{file}:drawing", 4, threads=1))
    assert "functional dropout patched out" in drawing.facts()["mode"]


def test_the_first_weights_are_those_of_all_others_and_the_users_stay(file: str) -> None:
    task = task_for(f"{file}:net", 4, threads=1)
    own = load(f"{file}:net")
    before = {name: a.clone() for name, a in own.state_dict().items()}
    trainer = CONTESTANTS["torch"].build(task)
    for path, array in task.parameters().items():
        assert np.array_equal(trainer.parameters()[path], array)
    trainer.run(task.order(task.count(), 0, 2))
    assert all(torch.equal(before[name], a) for name, a in own.state_dict().items())


def test_a_module_that_computes_something_else_is_refused(file: str, tmp_path: Path) -> None:
    task = task_for(f"{file}:net", 4, threads=1)
    other = tmp_path / "changed_nets.py"
    other.write_text(FILE.replace("torch.relu(", "torch.sigmoid("))
    assert task.original is not None
    changed = replace(task.original, source=f"{other}:net")
    said = refused(replace(task, original=changed), "torch")
    assert "off" in said or "moved" in said


def test_others_train_pareos_layers(file: str) -> None:
    task = task_for(f"{file}:net", 4, threads=1)
    assert isinstance(model_of(task, "cpu", False), OfModule)
    assert isinstance(model_of(replace(task, original=None), "cpu", False), OfLayers)
    assert refused(task, "pareo-vectorized") == ""


def test_an_object_of_this_program_races_too() -> None:
    class Local(torch.nn.Sequential):  # a class that no other process can import
        def __init__(self) -> None:
            super().__init__(torch.nn.Flatten(), torch.nn.Linear(12, 3))

    for module in (Local(), torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))):
        name = named(module)
        assert name == f"python:{type(module).__name__}"
        task = task_for(name, 2, threads=1, shape=(3, 2, 2))
        assert task.original is not None
        assert isinstance(task.original.source, bytes)
        assert task.original.source.startswith(b"PK") == isinstance(module, Local)
        assert refused(task, "torch") == ""
        assert own_network(name, (3, 2, 2)).network.name == type(module).__name__
