"""The gate on layers with state: it judges running statistics, and knows what rounding does."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pareo import nn
from pareo.lab.contestants import Task, torch_step
from pareo.lab.experiment.gate import exact_files
from pareo.lab.experiment.gate import repeated_batch as few
from pareo.lab.experiment.gate.parity import by_chance, parity, reference
from pareo.lab.experiment.gate.rounding import Rounded


def network(norm: nn.BatchNorm, clip: nn.Layer) -> nn.Sequential:
    """A depthwise block with a residual connection; its first bias has a gradient of 0."""
    inside = [nn.Conv(16, 3, padding=1, groups=16, bias=False), norm, clip, nn.Conv(16, 1), norm]
    layers = [
        nn.Conv(16, 3, padding=1), norm, nn.ReLU(), nn.Residual(inside, activation=nn.ReLU()),
        nn.MaxPool(2), nn.Conv(24, 3, stride=2, bias=False), norm, clip, nn.GlobalAveragePool(),
        nn.Flatten(), nn.Dense(5),
    ]  # fmt: skip
    return nn.Sequential(layers, (3, 12, 12), "normalised")


NORM, CLIP = nn.BatchNorm(), nn.Clip()
TASK = Task(network(NORM, CLIP), batch=8, rate=0.1)
STATE = TASK.network.state


@pytest.fixture(scope="module")
def exact() -> Any:
    return reference(TASK)


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    threads, onednn = torch.get_num_threads(), torch.backends.mkldnn.enabled
    yield
    torch.set_num_threads(threads)
    torch.backends.mkldnn.enabled = onednn


def steps_of(trainer: Any, task: Task = TASK) -> list[tuple[float, dict[str, Any]]]:
    """The first two steps of a trainer, from the gate's weights."""
    trainer.load(task.gate_parameters())
    found = []
    for number in range(2):
        losses = trainer.run(task.order(task.count(), number, 1))
        found.append((float(losses[0]), trainer.parameters()))
    return found


def of_other(norm: nn.BatchNorm = NORM, clip: nn.Layer = CLIP) -> Any:
    """PyTorch with a network of the same parameters whose layers are others."""
    return torch_step.build(replace(TASK, network=network(norm, clip)))


@pytest.mark.parametrize("last", [False, True])
def test_a_right_step_passes(last: bool, exact: Any) -> None:
    error: dict[str, float] = {}
    assert parity(TASK, steps_of(torch_step.build(TASK, last=last)), exact, error) == ""
    assert error["share"] < 0.5
    assert error["loss_share"] < 0.5


@pytest.mark.parametrize(
    ("norm", "clip", "what"),
    [
        (nn.BatchNorm(momentum=0.01), CLIP, "moved 9.0e-01 off in step 1, "),
        (nn.BatchNorm(epsilon=1e-3), CLIP, "the loss in step 1 is "),
        (NORM, nn.ReLU(), "the loss in step 1 is "),
    ],
)
def test_another_layer_is_refused(norm: nn.BatchNorm, clip: nn.Layer, what: str, exact: Any):
    differs = parity(TASK, steps_of(of_other(norm, clip)), exact, {})
    assert what in differs


def frozen(before: Any, after: Any, path: str, count: int) -> Any:
    return before


def of_population(before: Any, after: Any, path: str, count: int) -> Any:
    """The running variance divided by the count, as Keras has it."""
    if not path.endswith(".variance"):
        return after
    kept = 0.9 * before
    return kept + (after - kept) * ((count - 1) / count)


@pytest.mark.parametrize("change", [frozen, of_population])
def test_wrong_statistics_are_refused(change: Any, exact: Any) -> None:
    ((loss, after), _) = steps_of(torch_step.build(TASK))
    start = TASK.gate_parameters()
    counts = dict.fromkeys(STATE, 8 * 12 * 12) | {"6.mean": 8 * 4, "6.variance": 8 * 4}
    for path in STATE:
        wrong = {**after, path: change(start[path], after[path], path, counts[path])}
        right = change is of_population and path.endswith(".mean")
        differs = parity(TASK, [(loss, wrong.copy())], exact, {})
        assert right == (differs == "")
        assert right or differs.startswith(f"{path} moved ")


def test_statistics_have_no_kinks_to_be_off_by(exact: Any) -> None:
    found: dict[str, float] = {}
    (first, _) = steps_of(of_other(nn.BatchNorm(momentum=0.01)))
    assert parity(TASK, [first], exact, found) != ""
    assert not by_chance(found)


def test_a_gradient_that_is_0_has_the_error_of_its_sum() -> None:
    images, labels = TASK.data()
    start, run = TASK.gate_parameters(), Rounded(TASK.network, 8)
    reach, exact = run.reach(start, images[:8], labels[:8], "float32")
    assert np.linalg.norm(exact.gradients["0.b"]) < 1e-12 * np.linalg.norm(exact.gradients["0.w"])
    assert reach.sums["0.b"] > 1e3 * np.linalg.norm(exact.gradients["0.b"])
    assert set(reach.state) == set(STATE)


@pytest.mark.parametrize("batch", [16, 40])
def test_a_few_images_judge_the_statistics_of_many(batch: int, tmp_path: Path) -> None:
    task = replace(TASK, batch=batch)
    file = exact_files.reference(task, tmp_path, "float32")(batch, 0)
    start = task.gate_parameters()
    taken = exact_files.steps(task, torch_step.build(task), start, task.count(), 0)
    assert exact_files.judged(task, taken, start, file)[0] == ""
    variance = taken.parameters["6.variance"]
    biased = of_population(start["6.variance"], variance, "6.variance", batch * 4)
    wrong = replace(taken, parameters={**taken.parameters, "6.variance": biased})
    differs, _ = exact_files.judged(task, wrong, start, file)
    assert differs.startswith("6.variance moved ")


def test_an_exact_step_of_a_few_has_the_statistics_of_the_batch() -> None:
    task = replace(TASK, batch=24)
    exact = few.reference(task)(0, task.gate_parameters())
    trainer = torch_step.build(task)
    trainer.load(task.gate_parameters())
    trainer.run(few.chosen(few.different(24), 0, 24, task.count()))
    for path in STATE:
        np.testing.assert_allclose(exact.parameters[path], trainer.parameters()[path], rtol=1e-5)
