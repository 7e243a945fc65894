"""The memory of a training step: the predicted amount is what a process uses."""

import pytest

from pareo.lab.contestants import CONTESTANTS
from pareo.lab.experiment.tasks import task_for
from pareo.lab.experiment.worker import Worker
from pareo.lab.sweep.result import Memory
from pareo.lab.sweep.runner import CellRunner


@pytest.mark.slow
@pytest.mark.parametrize(("network", "batch"), [("googlenet", 16)])
def test_the_prediction_is_within_five_percent_of_what_is_used(network: str, batch: int) -> None:
    task = task_for(network, batch, threads=2, size=96)
    for _ in range(2):  # a compiler that had to work in the first process had memory of its own
        with Worker(CellRunner, CONTESTANTS["pareo-compiled"], task, threads=2) as worker:
            memory = Memory(**worker.ask("footprint"))
            memory.program = worker.ask("predicted")
    assert memory.predicted == pytest.approx(memory.used, rel=0.05)
