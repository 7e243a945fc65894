"""Every instrument on a real step: its FLOPs are those of the program, its rows are the step."""

import math
from typing import Any

import numpy as np
import pytest

from pareo import nn
from pareo.lab.contestants import CONTESTANTS, Contestant, Task, pareo_step
from pareo.lab.kernels.events import MATRIX, Profile, by_kind, rows
from pareo.lab.kernels.instruments import ON_CPU, WHOLE, Watched, framework_of, whole
from pareo.lab.kernels.study import costs

# Convolutions with stride and padding, and one whose images get a gradient, too.
NETWORK = nn.Sequential(
    [
        nn.Conv(8, 5, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv(6, 3, padding=1),
        nn.MaxPool(2),
        nn.Flatten(),
        nn.Dense(10),
    ],
    (3, 17, 17),
    "small",
)
TASK = Task(NETWORK, batch=4, threads=1)
STEPS = 3


def profiled(name: str, task: Task = TASK) -> list[Profile]:
    contestant = CONTESTANTS[name]
    if contestant.needs:
        pytest.importorskip(contestant.needs)
    trainer = contestant.build(task)
    order = task.order(task.count(), 0, STEPS)
    trainer.run(order)
    return ON_CPU[framework_of(contestant)](trainer, order)


def program() -> Any:
    return costs(TASK)["flops_by_kind"]


@pytest.mark.parametrize("name", ["pareo-compiled", "pareo-vectorized"])
def test_instructions_have_the_flops_of_the_program(name: str) -> None:
    *_, profile = profiled(name)  # after one of the whole step, if that is a loop
    table = rows(profile)
    assert sum(row.flops or 0 for row in table) == sum(program().values())
    assert sum(row.seconds for row in table) == pytest.approx(profile.seconds)
    assert {row.kind for row in table} >= {"convolution", "gemm", "elementwise", "reduction"}


@pytest.mark.parametrize("device", ["vectorized", "compiled"])
def test_a_step_as_a_program_is_the_step_that_is_raced(device: str) -> None:
    alone, raced = (pareo_step.PareoTrainer(TASK, device, "float32") for _ in range(2))
    for _ in range(3):
        alone.run_as_program()
        raced.run(np.arange(TASK.batch)[None])
    for path, array in raced.parameters().items():
        np.testing.assert_allclose(alone.parameters()[path], array, rtol=1e-5, atol=1e-7)


def test_a_loop_is_one_row_and_then_its_instructions() -> None:
    network = nn.Sequential([nn.Dense(5), nn.ReLU(), nn.Dense(10)], (7,), "dense")
    task = Task(network, batch=8, threads=1)
    whole_step, apart = profiled("pareo-compiled", task)
    flops = sum(costs(task)["flops_by_kind"].values())
    table = rows(whole_step)
    assert [row.flops for row in table] == [flops, None]
    assert table[0].calls == 1
    assert table[0].seconds == pytest.approx(whole_step.seconds)
    assert sum(row.flops or 0 for row in rows(apart)) == flops
    assert "not as raced" in apart.mode


@pytest.mark.parametrize("name", ["torch", "torch-channels-last", "jax", "jax-scan"])
def test_peers_have_the_programs_flops_in_products_and_convolutions(name: str) -> None:
    (profile,) = profiled(name)
    totals = by_kind(rows(profile))
    for kind in ("convolution", "gemm"):
        assert totals[kind].flops == program()[kind]
    # PyTorch makes one call for both gradients of the second convolution.
    calls = sum(totals[kind].calls for kind in MATRIX if kind in totals)
    assert calls == costs(TASK)["matrix_instructions"] - name.startswith("torch")
    assert sum(row.seconds for row in totals.values()) == pytest.approx(profile.seconds)
    named = [event for event in profile.events if event.kind == "convolution"]
    assert all("x" in event.shape for event in named)


def test_one_without_an_instrument_is_one_row() -> None:
    stranger = Contestant("some.module")
    assert framework_of(stranger) == ""
    trainer = CONTESTANTS["pareo-vectorized"].build(TASK)
    (profile,) = whole(trainer, TASK.order(64, 0, STEPS))
    assert [row.name for row in rows(profile)] == [WHOLE, "(between operators)"]
    assert "no instrument" in profile.note


def test_a_watched_runner_goes_on_after_its_profile() -> None:
    runner = Watched(CONTESTANTS["pareo-vectorized"], TASK)
    runner("agree")
    runner("ready", 2, 1.0)
    (profile,) = runner("profile", STEPS)
    assert profile.steps == STEPS
    assert math.isfinite(runner("run")[1])
