"""The gate of a sweep: a few exact images judge any batch size."""

from pathlib import Path

import numpy as np
import pytest

from pareo import nn
from pareo.lab.contestants import Task, pareo_step
from pareo.lab.experiment.gate import exact_files
from pareo.lab.experiment.gate import repeated_batch as few
from pareo.lab.experiment.gate.repeated_batch import chosen, different

SMOOTH = nn.Sequential([nn.Conv(3, 3), nn.Tanh(), nn.Flatten(), nn.Dense(5)], (2, 8, 8), "smooth")
KINKED = nn.Sequential([nn.Conv(3, 3), nn.ReLU(), nn.Flatten(), nn.Dense(5)], (2, 8, 8), "kinked")


def judged(task: Task, folder: Path, rate: float = 1.0) -> tuple[str, dict[str, float]]:
    """What the gate says of pareo with its learning rate multiplied."""
    trainer = pareo_step.PareoTrainer(task, "vectorized", "float32")
    trainer._rate *= rate
    file = exact_files.reference(task, folder, "float32")(task.batch, 0)
    start = task.parameters()
    taken = exact_files.steps(task, trainer, start, task.count(), 0)
    return exact_files.judged(task, taken, start, file)


@pytest.mark.parametrize("network", [SMOOTH, KINKED])
@pytest.mark.parametrize("batch", [1, 3, 8, 48, 100])
def test_a_right_step_passes_at_any_batch(network: nn.Sequential, batch: int, tmp_path: Path):
    differs, error = judged(Task(network, batch, rate=0.1), tmp_path)
    assert differs == ""
    assert error["loss"] < 1e-6


@pytest.mark.parametrize("network", [SMOOTH, KINKED])
@pytest.mark.parametrize("batch", [4, 64])
def test_a_gradient_that_is_a_percent_off_is_refused(
    network: nn.Sequential, batch: int, tmp_path: Path
):
    differs, _ = judged(Task(network, batch, rate=0.1), tmp_path, rate=1.01)
    assert "moved 1.0e-02 off in step 1" in differs


def test_who_does_not_keep_its_step_is_refused(tmp_path: Path):
    class Forgetful(pareo_step.PareoTrainer):
        """Its parameters are right after each step, but each step begins at the first ones."""

        def run(self, order):
            self.load(task.parameters())
            return super().run(order)

    task = Task(SMOOTH, 16, rate=0.1)
    trainer = Forgetful(task, "vectorized", "float32")
    file = exact_files.reference(task, tmp_path, "float32")(16, 1)
    start = task.parameters()
    taken = exact_files.steps(task, trainer, start, 64, 1)
    differs, _ = exact_files.judged(task, taken, start, file)
    assert "the loss in step 2" in differs


def test_batches_of_the_same_images_share_a_reference(tmp_path: Path):
    answer = exact_files.reference(Task(SMOOTH, 1), tmp_path, "float32")
    assert answer(8, 0) == answer(16, 0) == answer(512, 0) != answer(4, 0)
    assert len(list(tmp_path.iterdir())) == 2


def test_the_first_images_are_the_same_at_every_batch_size():
    few, many = Task(SMOOTH, 1).data(), Task(SMOOTH, 200).data()
    assert len(many[1]) == 400
    for some, all_of_them in zip(few, many, strict=True):
        np.testing.assert_array_equal(some, all_of_them[: len(some)])


@pytest.mark.parametrize("batch", [3, 16])
@pytest.mark.parametrize("step", [0, 3])
def test_an_exact_step_of_a_few_is_that_of_the_whole_batch(batch: int, step: int):
    task = Task(KINKED, batch, rate=0.1)
    exact = few.reference(task)(step, task.parameters())
    whole = pareo_step.PareoTrainer(task, "vectorized", "float64")
    order = chosen(different(batch), step, batch, task.count())
    assert exact.loss == pytest.approx(whole.run(order)[0], rel=1e-12)
    for path, array in whole.parameters().items():
        np.testing.assert_allclose(exact.parameters[path], array, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("batch", [1, 7, 8, 12, 512])
def test_an_order_of_the_gate_fills_the_batch(batch: int):
    count = different(batch)
    order = chosen(count, 1, batch, images=64)
    assert order.shape == (1, batch)
    assert sorted(np.unique(order)) == list(range(count, 2 * count))
