"""CUPTI on a real card: kernels of a real step, with the program's FLOPs where they are known."""

import pytest
from devices import needs_gpu

from pareo import nn
from pareo.lab.contestants import Task
from pareo.lab.contestants.registry import ON_GPU
from pareo.lab.experiment.answers import Entrant
from pareo.lab.experiment.tasks import task_for
from pareo.lab.kernels.events import MATRIX, Profile, by_kind, rows
from pareo.lab.kernels.instruments import Watched
from pareo.lab.kernels.study import costs
from pareo.training.step import step_program

pytestmark = [pytest.mark.gpu, needs_gpu]

NETWORK = nn.Sequential(
    [nn.Conv(64, 3, padding=1), nn.ReLU(), nn.Conv(64, 3, padding=1), nn.Flatten(), nn.Dense(10)],
    (3, 16, 16),
    "small",
)
TASK = Task(NETWORK, batch=32)
STEPS = 5


def profiled(name: str, task: Task = TASK, looks: int = 1) -> list[Profile]:
    pytest.importorskip("cupti", reason="cupti-python is not installed: pip install 'pareo[cuda]'")
    contestant = ON_GPU[name]
    if contestant.needs:
        pytest.importorskip(contestant.needs)
    with Entrant(Watched, contestant, task) as worker:
        worker.ask("agree")
        worker.ask("ready", STEPS, 1.0)
        found: list[list[Profile]] = [worker.ask("profile", STEPS) for _ in range(looks)]
    return found[-1]


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


@pytest.mark.parametrize("task", [TASK, task_for("alexnet", 4, 1)], ids=["small", "alexnet"])
def test_kernels_of_pareo_have_the_flops_of_the_program_at_every_look(task: Task) -> None:
    """A step that is called for the third time would be a captured one, which tells no shapes."""
    table = rows(profiled("pareo-cuda", task, looks=3)[-1])
    program = step_program(task.network, task.batch)
    assert sum(row.flops or 0 for row in table) == pytest.approx(program.flops, rel=1e-6)
