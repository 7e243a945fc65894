"""The gate lets rounding through and nothing else, for every network that is listed."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch_steps import thinner

from pareo import nn
from pareo.lab.contestants import CONTESTANTS, Contestant, Task, pareo_step
from pareo.lab.experiment import runner
from pareo.lab.experiment.gate import rounding
from pareo.lab.experiment.gate.agreement import agreement
from pareo.lab.experiment.gate.parity import parity, reference
from pareo.lab.experiment.runner import Runner
from pareo.lab.experiment.tasks import task_for
from pareo.nn import networks

KINKS = nn.Sequential(
    [nn.Conv(6, 5), nn.ReLU(), nn.MaxPool(2), nn.Flatten(), nn.Dense(16), nn.ReLU(), nn.Dense(10)],
    (1, 28, 28),
    "kinks",
)  # fmt: skip
TASKS = {
    "papers-cnn": task_for("papers-cnn", 128, threads=1),
    "kinks": Task(KINKS, batch=32, rate=0.1),
    "mlp": Task(networks.mlp("small"), batch=32, rate=0.1),
}


class Here:
    """A contestant, or a judge, in this process: it answers as a `Worker` does."""

    def __init__(self, answer: Any) -> None:
        self.ask = lambda *question, **_: answer(*question)
        self.get = lambda patience: answer("agree")


@pytest.fixture(scope="module")
def judges() -> dict[str, Here]:
    return {name: Here(reference(task)) for name, task in TASKS.items()}


@pytest.fixture
def torch_as_it_was() -> Iterator[None]:
    threads, onednn = torch.get_num_threads(), torch.backends.mkldnn.enabled
    yield
    torch.set_num_threads(threads)
    torch.backends.mkldnn.enabled = onednn


def verdict(name: str, judge: Here, trainer: Any) -> tuple[str, dict[str, float]]:
    """What the gate says of a trainer."""

    class Built(Contestant):
        def build(self, task: Task) -> Any:
            return trainer

    return agreement(TASKS[name], Here(Runner(Built(), TASKS[name])), judge)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", ["pareo-vectorized", "pareo-compiled", "torch"])
@pytest.mark.usefixtures("torch_as_it_was")
def test_float32_passes(task: str, name: str, judges: dict[str, Here]) -> None:
    differs, error = verdict(task, judges[task], CONTESTANTS[name].build(TASKS[task]))
    assert differs == ""
    assert error["loss_share"] < 0.5


class Off(pareo_step.PareoTrainer):
    """pareo in float32, whose steps a function `change(before, after)` spoils."""

    def __init__(self, task: Task, change: Any) -> None:
        super().__init__(task, "vectorized", "float32")
        self._change = change

    def run(self, order: Any) -> Any:
        before = self.parameters()
        losses = super().run(order)
        after = self.parameters()
        self._change(before, after)
        self.load(after)
        return losses


def scaled(path: str, part: float) -> Any:
    """One parameter moves too far."""

    def change(before: Any, after: Any) -> None:
        after[path] += part * (after[path] - before[path])

    return change


class Momentum:
    """Nine tenths of the step before it are added to each step."""

    def __init__(self) -> None:
        self._steps: dict[str, Any] = {}

    def __call__(self, before: Any, after: Any) -> None:
        for path, a in after.items():
            self._steps[path] = a - before[path] + 0.9 * self._steps.get(path, 0.0)
            a[...] = before[path] + self._steps[path]


def decay(before: Any, after: Any) -> None:
    for path, a in after.items():
        a -= 0.1 * 5e-4 * before[path]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("wrong", ["one percent", "frozen", "momentum", "decay"])
def test_a_wrong_step_is_refused(task: str, wrong: str, judges: dict[str, Here]) -> None:
    first, last = [p for p in TASKS[task].parameters() if p.endswith(".b")][::2]
    change = {
        "one percent": scaled(first, 0.01),
        "frozen": scaled(last, -1.0),
        "momentum": Momentum(),
        "decay": decay,
    }[wrong]
    differs, _ = verdict(task, judges[task], Off(TASKS[task], change))
    assert " moved " in differs
    assert " allowed" in differs
    if wrong == "one percent":
        assert differs.startswith(f"{first} moved 1.0e-02 off in step 1, ")


@pytest.mark.parametrize("task", TASKS)
def test_other_batches_are_refused(task: str, judges: dict[str, Here]) -> None:
    trainer = CONTESTANTS["pareo-vectorized"].build(TASKS[task])
    run = trainer.run
    trainer.run = lambda order: run((order + 1) % 64)
    assert verdict(task, judges[task], trainer)[0].startswith("the loss in step 1 is ")


@pytest.mark.parametrize("task", TASKS)
def test_tf32_under_the_name_of_float32_is_refused(task: str, judges: dict[str, Here]) -> None:
    class Tf32(pareo_step.PareoTrainer):
        """Its weights have tf32's bits while it computes."""

        def run(self, order: Any) -> Any:
            start = self.parameters()
            coarse = {path: a.copy() for path, a in start.items()}
            for a in coarse.values():
                bits = a.reshape(-1).view(np.uint32)
                bits += 0x1000
                bits &= 0xFFFFE000
            self.load(coarse)
            losses = super().run(order)
            after = self.parameters()
            self.load({path: start[path] + (after[path] - coarse[path]) for path in start})
            return losses

    differs, _ = verdict(task, judges[task], Tf32(TASKS[task], "vectorized", "float32"))
    assert " allowed" in differs
    judge = Here(reference(TASKS[task], "tf32"))  # which has no objection
    assert verdict(task, judge, Tf32(TASKS[task], "vectorized", "float32"))[0] == ""


def test_a_sum_that_cancels_may_be_off_as_cudnn_is(judges: dict[str, Here]) -> None:
    # On an H200 the fastest of cuDNN's algorithms is off by 2.6e-4 in the first filters of
    # papers-cnn, and by 5e-7 where terms do not cancel: the sizes of those terms add up to 80
    # times their sum, and there are 74,000.
    def change(before: Any, after: Any) -> None:
        move = after["0.w"] - before["0.w"]
        noise = np.random.default_rng(0).standard_normal(move.shape)
        noise *= 2.6e-4 * np.linalg.norm(move) / np.linalg.norm(noise)
        after["0.w"] += noise.astype(np.float32)

    task = TASKS["papers-cnn"]
    step = Off(task, change)
    losses = step.run(task.order(task.count(), 0, 1))
    error: dict[str, float] = {}
    steps = [(float(losses[0]), step.parameters())]
    assert parity(task, steps, judges["papers-cnn"].ask, error) == ""
    assert error["parameter"] == pytest.approx(2.6e-4, rel=0.05)
    assert 0.1 < error["share"] < 1


def test_a_parameter_that_should_stay_is_judged_by_what_is_stored() -> None:
    images = np.zeros((64, 3), np.float32)  # all weights of the first layer stay where they are
    labels = np.arange(64) % 2
    network = nn.Sequential([nn.Dense(4), nn.Tanh(), nn.Dense(2)], (3,), "dark")
    task = Task(network, batch=4, rate=0.1, made=(images, labels), source=None)
    start, exact = task.parameters(), reference(task)
    true = exact(0, start)
    after = {path: a.astype(np.float32) for path, a in true.parameters.items()}
    assert np.array_equal(after["0.w"], start["0.w"])
    assert parity(task, [(true.loss, after)], exact, {}) == ""
    after["0.w"] = after["0.w"] * np.float32(1.001)
    differs = parity(task, [(true.loss, after)], exact, {})
    assert differs.startswith("0.w moved ")
    assert "from where it should have stayed in step 1" in differs


def test_no_precision_allows_a_gradient_that_is_missing() -> None:
    task = Task(networks.papers_cnn(), batch=8, rate=1.0)
    exact, start = reference(task, "bfloat16"), task.gate_parameters()
    true = exact(0, start)
    for path, right in true.parameters.items():
        for times in (0, 2):
            wrong = {**true.parameters, path: start[path] + times * (right - start[path])}
            differs = parity(task, [(true.loss, wrong)], exact, {})
            assert differs.startswith(f"{path} moved 1.0e+00 off in step 1, ")


# Pixels, 32 for others that have a size. With 64 the last batch normalisation has four a channel.
SMALLEST = dict.fromkeys(
    ["alexnet", "alexnet-original", "resnet18", "resnet34", "resnet50", "mobilenet-v2",
     "densenet121", "efficientnet-b0"], 64,
)  # fmt: skip
# Their widths have no larger common divisor, nor AlexNet's groups.
FACTORS = {"resnet20": 4, "alexnet-original": 2}
# XLA compiles others for up to a minute; `test_adapters.py` has all of their layers.
WITH_JAX = ("papers-cnn", "mlp-small", "lenet5", "resnet8", "squeezenet1.1")


@pytest.mark.slow
@pytest.mark.parametrize("name", networks.NETWORKS)
@pytest.mark.usefixtures("torch_as_it_was")
def test_every_network_that_is_listed_can_be_raced(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "GATE", 1)  # a step of AlexNet takes seconds in float64
    monkeypatch.setattr(rounding, "DRAWS", 1)
    task = task_for(name, 1, threads=1, size=SMALLEST.get(name, 32))
    if name in networks.SIZED and name not in ("lenet5", "resnet8"):
        factor = FACTORS.get(name, 8)  # of its channels: all layers, in a tenth of the time
        task = replace(task, network=thinner(task.network, factor))
    judge = Here(reference(task))
    for contestant in ("pareo-vectorized", "torch", "jax"):
        if CONTESTANTS[contestant].missing() or (contestant == "jax" and name not in WITH_JAX):
            continue
        worker = Here(Runner(CONTESTANTS[contestant], task))
        differs, error = agreement(task, worker, judge)
        assert differs == "", contestant
        assert np.isfinite(error["loss"])
