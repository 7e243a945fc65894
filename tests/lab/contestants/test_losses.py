"""Losses of a race: each framework computes what pareo does, and another loss is refused."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

from pareo import Device, Spec, nn, op
from pareo.errors import PareoError
from pareo.lab.contestants import CONTESTANTS, Task
from pareo.lab.contestants.losses import TABLES, loss_in, refusal
from pareo.lab.contestants.pareo_step import PareoTrainer
from pareo.lab.experiment.gate import audit, repeated_batch
from pareo.lab.experiment.gate.parity import parity, reference
from pareo.lab.experiment.runner import Runner
from pareo.lab.experiment.tasks import task_for
from pareo.lab.experiment.worker import Worker
from pareo.program import grad, value_and_grad
from pareo.training import losses
from pareo.training.own import named
from pareo.training.own_loss import OwnLoss, is_mean, loss_of, name_of

BATCH, CLASSES = 6, 4
NETWORK = nn.Sequential([nn.Dense(5), nn.Tanh(), nn.Dense(CLASSES)], (3,), "small")


def focal(outputs: Any, labels: Any) -> Any:
    """Examples count less the better they are known."""
    logs = op.log_softmax(outputs)
    own = op.sum(logs * op.take(np.eye(CLASSES, dtype=outputs.dtype), labels), axis=1)
    return -op.mean(own * (1 - op.exp(own)) ** 2)


def total(outputs: Any, labels: Any) -> Any:
    """A sum over the batch, which no mean of a few images is."""
    return BATCH * op.cross_entropy(outputs, labels) + op.sum(op.tanh(outputs) ** 2)


def spread(outputs: Any, labels: Any) -> Any:
    """The gradient of another loss, whose operators frameworks are not given."""
    return op.sum(grad(lambda x: op.sum(op.sigmoid(x)))(outputs) ** 2)


@dataclass(frozen=True)
class Logistic(losses.Loss):
    """Of targets that are 0 or 1."""

    name = "logistic"

    def targets(self, batch: int, outputs: int, dtype: Any = "float32") -> Spec:
        return Spec((batch, outputs), dtype, batch=0)

    def __call__(self, outputs: Any, labels: Any) -> Any:
        return op.mean(op.log(1 + op.exp(outputs * (1 - 2 * labels))))


def _mean(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """A loss in which each element of what a function returns counts differently."""

    def loss(x: Any, labels: Any) -> Any:
        y = function(x)
        weights = np.arange(1, 1 + int(np.prod(y.shape)), dtype=x.dtype).reshape(y.shape)
        return op.mean(y * weights)

    return loss


EACH: dict[str, Callable[..., Any]] = {
    "focal": focal,
    "total": total,
    "add and part": _mean(lambda x: x + op.part(x, 1, (1, 2))),
    "sub and div": _mean(lambda x: (1 - x) / (x * x + 2.0)),
    "dot and transpose": _mean(lambda x: x @ x.T),
    "add_bias": _mean(lambda x: op.add_bias(x, op.mean(x, axis=0))),
    "add_bias of images": _mean(
        lambda x: op.add_bias(op.reshape(x, (BATCH, 2, 2, 1)), np.array([1, 2], x.dtype))
    ),
    "exp and log": _mean(lambda x: op.log(1 + op.exp(x))),
    "sigmoid": _mean(op.sigmoid),
    "tanh": _mean(op.tanh),
    "relu": _mean(op.relu),
    "gelu": _mean(op.gelu),
    "gelu by tanh": _mean(lambda x: op.gelu(x, approximate=True)),
    "silu": _mean(op.silu),
    "hard_sigmoid": _mean(lambda x: op.hard_sigmoid(3 * x)),
    "hard_swish": _mean(lambda x: op.hard_swish(3 * x)),
    "leaky_relu": _mean(lambda x: op.leaky_relu(x, 0.3)),
    "clip": _mean(lambda x: op.clip(x, -0.5, 0.7)),
    "softmax along 0": _mean(lambda x: op.softmax(x, axis=0)),
    "log_softmax along 0": _mean(lambda x: op.log_softmax(x, axis=0)),
    "sum": _mean(lambda x: op.sum(x, axis=1, keepdims=True) * x),
    "no axis": _mean(lambda x: op.sum(x, axis=()) + op.mean(x, axis=()) + op.max(x, axis=())),
    "max": _mean(lambda x: op.max(x, axis=0)),
    "max of equals": lambda x, labels: op.sum(op.max(op.relu(x) * 0.0 + x * 0.0 + 1.0, axis=1)),
    "argmax": lambda x, labels: op.cross_entropy(x, op.argmax(x, axis=1)),
    "argmax of all": lambda x, labels: op.sum(op.take(x, op.argmax(op.mean(x, axis=1)))),
    "norm": lambda x, labels: op.norm([x, op.exp(x)]),
    "broadcast": _mean(
        lambda x: op.broadcast(op.reshape(x, (BATCH, 1, CLASSES)), (BATCH, 3, CLASSES))
    ),
    "transpose of three": _mean(
        lambda x: op.transpose(op.reshape(x, (2, 3, CLASSES)), (2, 0, 1))
    ),
    "concat": _mean(lambda x: op.concat([x, op.exp(x)], axis=1)),
    "split": lambda x, labels: op.mean(op.hadamard(*(
        op.sum(one, axis=1) for one in op.split(x, (1, 3), axis=1)
    ))),
    "pad": _mean(lambda x: op.pad(x, ((1, 0), (0, 2)), 0.5)),
    "take of three axes": lambda x, labels: op.mean(
        op.take(np.arange(CLASSES * 4.0).astype(x.dtype).reshape(CLASSES, 2, 2), labels)
        * op.reshape(x, (BATCH, 2, 2))
    ),
    "cross_entropy of three axes": lambda x, labels: op.sum(
        op.cross_entropy(three := op.reshape(x, (2, 3, CLASSES)), op.argmax(three, axis=2))
    ),
    "squared_error": lambda x, labels: op.squared_error(x, op.tanh(x)),
}  # fmt: skip


@cache
def _table(framework: str) -> Any:
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    return import_module(TABLES[framework])


def _in_torch(task: Task, x: Any, labels: Any) -> tuple[Any, Any]:
    table = _table("torch")
    loss = loss_in(task, table.load(), lambda a: table.constant(a, "cpu"))
    leaf = torch.from_numpy(x).requires_grad_()
    found = loss(leaf, torch.from_numpy(labels))
    return found.detach().numpy(), torch.autograd.grad(found, leaf)[0].numpy()


def _in_jax(task: Task, x: Any, labels: Any) -> tuple[Any, Any]:
    operators = _table("jax").load()
    jax = import_module("jax")
    loss = loss_in(task, operators, jax.numpy.asarray)
    found, gradient = jax.jit(jax.value_and_grad(loss))(x, labels)
    return np.asarray(found), np.asarray(gradient)


def _in_tensorflow(task: Task, x: Any, labels: Any) -> tuple[Any, Any]:
    operators = _table("tensorflow").load()
    tf = import_module("tensorflow")
    loss = loss_in(task, operators, tf.constant)
    leaf = tf.Variable(x)
    with tf.GradientTape() as tape:
        found = loss(leaf, tf.constant(labels))
    return found.numpy(), tf.convert_to_tensor(tape.gradient(found, leaf)).numpy()


IN = {"torch": _in_torch, "jax": _in_jax, "tensorflow": _in_tensorflow}
BUILT_IN = {
    "cross-entropy": losses.CrossEntropy(),
    "smoothing": losses.CrossEntropy(smoothing=0.2),
    "weights": losses.CrossEntropy(class_weights=(1.0, 2.0, 0.5, 3.0)),
    "squared-error": losses.SquaredError(),
    "binary-cross-entropy": losses.BinaryCrossEntropy(),
    "logistic": Logistic(),
}


@pytest.mark.parametrize("name", [*EACH, *BUILT_IN])
@pytest.mark.parametrize("framework", IN)
def test_a_framework_has_the_same_loss_and_gradient(framework: str, name: str) -> None:
    _table(framework)
    loss = BUILT_IN.get(name) or OwnLoss(EACH[name])
    task = Task(NETWORK, BATCH, loss=loss)
    assert refusal(task, framework) == ""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((BATCH, CLASSES))
    labels = draw.integers(0, CLASSES, BATCH)
    targets = labels if loss.takes_classes else np.eye(CLASSES)[labels]
    with Device("vectorized"):
        right, slope = value_and_grad(loss)(x, targets)
    single = targets if loss.takes_classes else targets.astype(np.float32)
    found, gradient = IN[framework](task, x.astype(np.float32), single)
    np.testing.assert_allclose(found, right, rtol=3e-6, atol=2e-6)
    np.testing.assert_allclose(gradient, slope, rtol=2e-5, atol=2e-6 * np.abs(slope).max())


@pytest.mark.parametrize("loss", [OwnLoss(focal), OwnLoss(total), *BUILT_IN.values()])
@pytest.mark.parametrize("name", ["pareo-vectorized", "pareo-compiled", "torch"])
def test_contestants_pass_the_gate_with_a_loss(name: str, loss: losses.Loss) -> None:
    task = Task(NETWORK, BATCH, rate=0.1, loss=loss)
    assert parity(task, Runner(CONTESTANTS[name], task)("agree"), reference(task), {}) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jax", "jax-scan", "tensorflow", "tensorflow-xla"])
def test_other_frameworks_pass_the_gate_with_a_loss(name: str) -> None:
    contestant = CONTESTANTS[name]
    if contestant.missing():
        pytest.skip(f"{contestant.needs} is {contestant.missing()}")
    for loss in (OwnLoss(focal), Logistic(), losses.SquaredError()):
        task = Task(NETWORK, BATCH, rate=0.1, loss=loss)
        with Worker(Runner, contestant, task) as worker:
            assert parity(task, worker.ask("agree"), reference(task), {}) == ""


@pytest.mark.parametrize("loss", [OwnLoss(focal), OwnLoss(total), losses.SquaredError()])
def test_a_contestant_with_another_loss_is_refused(loss: losses.Loss) -> None:
    task = Task(NETWORK, BATCH, rate=0.1, loss=loss)
    other = replace(task, loss=losses.CrossEntropy())
    steps = Runner(CONTESTANTS["torch"], other)("agree")
    assert "the loss in step 1 is" in parity(task, steps, reference(task), {})


def test_a_step_is_what_numpy_computes() -> None:
    task = Task(nn.Sequential([nn.Dense(CLASSES)], (3,)), BATCH, rate=0.1, loss=OwnLoss(focal))
    images, labels = (a[:BATCH] for a in task.data())
    start = {path: a.astype(np.float64) for path, a in task.parameters().items()}
    logits = images @ start["0.w"] + start["0.b"]
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    rows = np.arange(BATCH)
    own = chances[rows, labels]
    loss = np.mean(-np.log(own) * (1 - own) ** 2)
    # d/dp of -log(p) (1 - p)^2, times p's derivatives by the logits
    slope = -((1 - own) ** 2) / own + 2 * np.log(own) * (1 - own)
    one_hot = np.eye(CLASSES)[labels]
    errors = (slope * own)[:, None] * (one_hot - chances) / BATCH
    trainer = PareoTrainer(task, "vectorized", "float64")
    [found] = trainer.run(np.arange(BATCH)[None])
    assert found == pytest.approx(loss, rel=1e-6)
    after = trainer.parameters()
    np.testing.assert_allclose(after["0.w"], start["0.w"] - 0.1 * images.T @ errors, rtol=1e-5)
    np.testing.assert_allclose(after["0.b"], start["0.b"] - 0.1 * errors.sum(axis=0), rtol=1e-5)


def test_targets_are_made_of_classes() -> None:
    task = Task(NETWORK, BATCH, loss=losses.SquaredError())
    _, classes = replace(task, loss=losses.CrossEntropy()).data()
    _, targets = task.data()
    assert targets.dtype == np.float32
    np.testing.assert_array_equal(targets, np.eye(CLASSES)[classes])


def test_what_a_framework_cannot_express_is_a_sentence() -> None:
    task = Task(NETWORK, BATCH, loss=OwnLoss(spread))
    for framework in TABLES:
        assert refusal(task, framework) == "it has no sigmoid_gradient for the loss spread"
    said = "its adapter knows the cross-entropy alone, not the loss focal"
    assert refusal(replace(task, loss=OwnLoss(focal)), "tinygrad") == said
    assert refusal(replace(task, loss=losses.CrossEntropy()), "tinygrad") == ""
    with pytest.raises(KeyError, match="sigmoid_gradient"):
        CONTESTANTS["torch"].build(task)


def test_a_sum_over_images_is_judged_on_a_whole_batch() -> None:
    assert is_mean(OwnLoss(focal), CLASSES)
    assert is_mean(Logistic(), CLASSES)
    assert not is_mean(OwnLoss(total), CLASSES)
    for loss, few in ((focal, 8), (total, 16)):
        task = Task(NETWORK, 16, rate=0.01, loss=OwnLoss(loss))
        assert repeated_batch.few_of(task, 16).batch == few
        right = audit.reference(task)(16)
        trainer = PareoTrainer(task, "vectorized", "float64")
        found = trainer.run(audit.order_of(task, task.count(), audit.STEPS))
        np.testing.assert_allclose(found, right, rtol=1e-12)


def test_a_module_of_torch_is_trained_with_the_loss() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 4))
    task = task_for(named(module, "given"), BATCH, threads=1, shape=(3,), loss=focal)
    assert task.original is not None
    steps = Runner(CONTESTANTS["torch"], task)("agree")
    assert parity(task, steps, reference(task), {}) == ""
    plain = replace(task, loss=losses.CrossEntropy())
    assert "the loss in step 1" in parity(plain, steps, reference(plain), {})


def test_names_and_objects() -> None:
    assert loss_of("squared-error") == losses.SquaredError()
    assert name_of(loss_of(focal)) == "focal"
    assert name_of(loss_of(Logistic())) == "logistic"
    for wrong in (3, None, Logistic, [focal]):
        with pytest.raises(PareoError, match="expected the name of a loss, or a function of"):
            loss_of(wrong)
    with pytest.raises(PareoError, match="other processes cannot import the loss "):
        loss_of(lambda outputs, labels: op.sum(outputs))
