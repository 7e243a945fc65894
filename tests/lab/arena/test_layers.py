"""Which layer an instruction belongs to, before and after a device fuses some of them."""

import pytest

from pareo import Device, nn
from pareo.lab.arena.clock import spent
from pareo.lab.arena.layers import owners
from pareo.lab.contestants import Task
from pareo.lab.contestants.pareo_step import PareoTrainer
from pareo.lab.contestants.task import INVENTED
from pareo.training.step import Step, step_program

NETWORK = nn.Sequential(
    [
        nn.Conv(4, 3, padding=1), nn.ReLU(), nn.MaxPool(2), nn.BatchNorm(), nn.Conv(6, 3),
        nn.Tanh(), nn.Flatten(), nn.Dense(5),
    ],
    (1, 12, 12),
)  # fmt: skip
PATHS = list(NETWORK.parameters(NETWORK.inputs))


def test_of_a_program_as_it_was_traced() -> None:
    program = step_program(NETWORK, 3)
    found = owners(program, PATHS)
    of: dict[str, list[str]] = {}
    for each, owner in zip(program.instructions, found, strict=True):
        of.setdefault(each.name, []).append(owner)
    assert of["conv"] == ["0", "4"]
    assert of["relu"] == ["0"]
    assert of["max_pool"] == ["0"]
    assert of["batch_norm"] == of["batch_norm_gradient"] == ["3"]
    assert of["tanh"] == of["tanh_gradient"] == ["4"]
    assert of["conv_weight_gradient"] == ["4", "0"]
    assert of["conv_input_gradient"] == ["4"]
    assert of["max_pool_gradient"] == ["0"]
    assert of["cross_entropy"] == ["7"]


@pytest.mark.parametrize("device", ["vectorized", "compiled"])
def test_of_a_program_as_it_runs(device: str) -> None:
    step = Step(NETWORK, 3, Device(device, threads=1))
    program = step.executable.program
    found = owners(program, PATHS)
    assert set(found) == {"0", "3", "4", "7"}
    for each, owner in zip(program.instructions, found, strict=True):
        read = {PATHS[program.inputs.index(n)].split(".")[0] for n in each.inputs
                if n in program.inputs[: len(PATHS)]}  # fmt: skip
        assert not read or owner in read


def test_the_layer_with_the_work_takes_the_time() -> None:
    layers = [nn.Conv(1, 1), nn.Flatten(), nn.Dense(3000), nn.Dense(2)]
    task = Task(nn.Sequential(layers, (1, 24, 24)), 32, source=INVENTED)
    found = spent(PareoTrainer(task, "vectorized", "float32"), task)
    assert found[0].layer == "layer 2, Dense 3000"
    assert found[0].share > 0.5
    assert "3000" in found[0].shape
    assert sum(one.share for one in found) <= 1.001
