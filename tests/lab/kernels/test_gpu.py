"""CUPTI on a real card: kernels of a real step, with the program's FLOPs where they are known."""

import pytest
from devices import needs_gpu

from pareo import nn
from pareo.lab.contestants import Task
from pareo.lab.contestants.registry import ON_GPU
from pareo.lab.kernels.events import MATRIX, Profile, by_kind, rows
from pareo.lab.kernels.instruments import Watched
from pareo.lab.kernels.study import costs
from pareo.lab.processes import Worker

pytestmark = [pytest.mark.gpu, needs_gpu]

NETWORK = nn.Sequential(
    [nn.Conv(64, 3, padding=1), nn.ReLU(), nn.Conv(64, 3, padding=1), nn.Flatten(), nn.Dense(10)],
    (3, 16, 16),
    "small",
)
TASK = Task(NETWORK, batch=32)
STEPS = 5


def profiled(name: str) -> list[Profile]:
    pytest.importorskip("cupti", reason="cupti-python is not installed: pip install 'pareo[cuda]'")
    contestant = ON_GPU[name]
    if contestant.needs:
        pytest.importorskip(contestant.needs)
    with Worker(Watched, contestant, TASK) as worker:
        worker.ask("agree")
        worker.ask("ready", STEPS, 1.0)
        found: list[Profile] = worker.ask("profile", STEPS)
    return found


@pytest.mark.parametrize("name", ["pareo-cuda", "torch-cuda", "torch-cudagraph", "jax-cuda"])
def test_every_kernel_of_a_step_is_seen(name: str) -> None:
    profile = profiled(name)[0]
    table = rows(profile)
    assert sum(row.seconds for row in table) == pytest.approx(profile.seconds, rel=0.01)
    assert sum(row.calls for row in table) >= 1
    assert all(event.end >= event.start for event in profile.events)


@pytest.mark.parametrize("name", ["torch-cuda", "torch-cudagraph"])
def test_marked_calls_tell_the_flops_of_kernels(name: str) -> None:
    totals = by_kind(rows(profiled(name)[0]))
    found = sum(totals[kind].flops or 0 for kind in MATRIX if kind in totals)
    program = costs(TASK)["flops_by_kind"]
    assert found == sum(count for kind, count in program.items() if kind in MATRIX)
