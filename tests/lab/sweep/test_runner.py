"""A cell at work: how long its turns are, and what it starts them from."""

import time
from typing import Any

import numpy as np
import pytest
from devices import needs_gpu

from pareo.lab.contestants import CONTESTANTS, Contestant, pareo_step
from pareo.lab.contestants.registry import ON_GPU
from pareo.lab.experiment.runner import Runner
from pareo.lab.experiment.tasks import task_for
from pareo.lab.experiment.turns import SLOW as MANY
from pareo.lab.experiment.worker import Worker
from pareo.lab.sweep.runner import CellRunner
from pareo.training.step import Step

SLOW, FAST = 0.6, 0.001  # seconds of the first two steps, and of those after them


class Capturing(pareo_step.PareoTrainer):
    """As on a card: the first step is launched bit by bit, the second captured, others replayed."""

    def run(self, order: Any) -> Any:
        """Losses, at that speed."""
        self._done = getattr(self, "_done", 0)
        for _ in range(len(order)):
            time.sleep(SLOW if self._done < 2 else FAST)
            self._done += 1
        return np.ones(len(order))


def build(task, device):
    return Capturing(task, device, "float32")


@pytest.mark.slow
def test_turns_are_as_long_as_steps_will_be() -> None:
    task = task_for("mlp-small", 8, 1)
    contestant = Contestant(__name__, {"device": "vectorized"})
    cell = CellRunner(contestant, task)
    cell.footprint()
    assert cell.ready(10**6, 0.5).steps > 10  # a sleep may take longer, but not so much
    racer = Runner(contestant, task)
    racer.agree()
    assert racer.ready(10**6, 0.5).steps > 10


def test_a_step_that_takes_many_turns_is_not_taken_again_to_make_sure() -> None:
    task = task_for("mlp-small", 8, 1)
    runner = Runner(Contestant(__name__, {"device": "vectorized"}), task)
    runner.agree()
    assert runner.ready(10**6, SLOW / MANY / 2).steps == 1
    assert runner._trainer._done == 2


def test_other_parameters_come_into_the_same_arrays() -> None:
    """A captured step is bound to them: on a card new ones would mean to capture it again."""
    task = task_for("mlp-small", 8, 1)
    trainer = pareo_step.build(task, "vectorized")
    arrays = dict(trainer._parameters)
    trainer.run(task.order(task.count(), 0, 2))
    trainer.load(task.parameters())
    for path, first in task.parameters().items():
        assert trainer._parameters[path] is arrays[path]
        np.testing.assert_array_equal(arrays[path], first)


def test_memory_is_predicted_for_pareo_alone() -> None:
    task = task_for("mlp-small", 8, 1)
    ours = Contestant(pareo_step.__name__, {"device": "vectorized"})
    runner = CellRunner(ours, task)
    runner.footprint()
    assert runner.predicted() == Step(task.network, 8, runner._trainer._place).memory()
    stranger = CellRunner(Contestant(__name__, {"device": "vectorized"}), task)
    stranger.footprint()
    assert stranger.predicted() is None


@pytest.mark.parametrize("source", ["mnist", "synthetic:1x28x28:10:30000"])
def test_data_is_counted_once(source: str) -> None:
    """Whether images are made of those that were read, or are those themselves."""
    task = task_for("papers-cnn", 64, 1, 28, source)
    with Worker(CellRunner, CONTESTANTS["pareo-vectorized"], task, threads=1) as worker:
        told = worker.ask("footprint")
        predicted = worker.ask("predicted") + told["data"] + told["before"]
    assert told["data"] > 0.2 * told["used"]
    assert told["used"] == pytest.approx(predicted, rel=0.02)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_all_that_a_process_has_of_a_card_was_predicted(precision: str) -> None:
    """With cuBLAS's workspace, which is a tenth of AlexNet's memory on one image."""
    contestant = ON_GPU["pareo-cuda"].in_precision(precision)
    with Worker(CellRunner, contestant, task_for("alexnet", 1, 1)) as worker:
        told = worker.ask("footprint")
        predicted = worker.ask("predicted") + told["data"] + told["before"]
    assert told["before"] > 0
    assert told["used"] == pytest.approx(predicted, rel=0.01)
