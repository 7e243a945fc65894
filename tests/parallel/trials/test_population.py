"""Members of a population train as each would alone."""

from typing import Any

import numpy as np
import pytest
from devices import CUDA
from splitting import NORMAL

from pareo.data import load
from pareo.nn import BatchNorm, Conv, Dense, Dropout, Flatten, MaxPool, ReLU, Sequential, networks
from pareo.parallel import Result, Trial, train_many
from pareo.training import fit

pytestmark = pytest.mark.smoke

FLAT, PICTURES = load("synthetic:16:3:150"), load("synthetic:2x8x8:3:90")
MLP = networks.mlp([16, 12, 10, 3], activation="tanh")
CNN = Sequential(
    [Conv(4, 3), ReLU(), MaxPool(2), Flatten(), Dropout(0.3), Dense(3)], (2, 8, 8), "cnn"
)
DEVICES = ("vectorized", "compiled", CUDA)
OWN: list[dict[str, Any]] = [
    {"rate": 0.1, "seed": 1},
    {"rate": 0.05, "seed": 2, "order": 7, "momentum": 0.9},
    {"rate": 0.2, "seed": 1, "order": 3, "decay": 0.01},
    {"rate": 0.1, "seed": 4, "momentum": 0.5, "decay": 0.02, "schedule": "cosine", "epochs": 3},
]
PLAIN = [{**own, "momentum": 0.0} for own in OWN]


def trials(network: Sequential, which: list[dict[str, Any]]) -> list[Trial]:
    return [Trial(network, **{"epochs": 2, "batch_size": 20, **own}) for own in which]


def assert_as_alone(result: Result, data: Any, device: str) -> None:
    trial = result.trial
    alone = fit(
        trial.built, data, trial.settings(), epochs=trial.epochs, device=device, progress=False
    )
    assert result.error is None
    # float32's rounding, which differs with the order of sums, grows over some tens of steps.
    np.testing.assert_allclose(result.losses, alone.history.column("loss"), rtol=2e-4)
    for path, values in alone.parameters.items():
        np.testing.assert_allclose(result.parameters[path], values, rtol=2e-3, atol=2e-5)
        np.testing.assert_allclose(
            result.weights[path], alone.weights[path], rtol=2e-3, atol=2e-5, err_msg=path
        )
    assert result.accuracy == pytest.approx(alone.accuracy, abs=1 / len(data.test_labels) + 1e-9)


@pytest.mark.parametrize("which", [OWN, PLAIN], ids=["momentum", "plain"])
@pytest.mark.parametrize("device", DEVICES)
def test_each_member_of_dense_layers_is_as_alone(device: str, which: Any) -> None:
    for result in train_many(trials(MLP, which), FLAT, "population", device=device):
        assert_as_alone(result, FLAT, device)


@pytest.mark.parametrize("device", DEVICES)
def test_each_member_of_convolutions_and_dropout_is_as_alone(device: str) -> None:
    for result in train_many(trials(CNN, OWN[:2]), PICTURES, "population", device=device):
        assert_as_alone(result, PICTURES, device)


@pytest.mark.parametrize("kind", ["adam", "adamw", "lion", "nesterov"])
@pytest.mark.parametrize("device", DEVICES)
def test_each_member_with_batch_norm_and_any_optimizer_is_as_alone(device: str, kind: str) -> None:
    """Each member has its own rate, decay, numbers of the optimizer, schedule and state."""
    other = {"adam": "adam:0.8:0.9", "nesterov": "nesterov:0.5"}.get(kind, kind)
    own: list[dict[str, Any]] = [
        {"rate": 0.002, "seed": 1, "optimizer": kind},
        {"rate": 0.004, "seed": 2, "decay": 0.1, "optimizer": other, "schedule": "warmup:1+cosine"},
        {"rate": 0.003, "seed": 1, "decay": 0.1, "decay_biases": True, "optimizer": kind},
    ]
    for result in train_many(trials(NORMAL, own), PICTURES, "population", device=device):
        assert result.how == "population"
        assert_as_alone(result, PICTURES, device)


@pytest.mark.parametrize("device", DEVICES)
def test_each_member_with_clipping_average_and_augmentation_is_as_alone(device: str) -> None:
    common = {"augment": "flip,crop:1,cutout:2", "smoothing": 0.1, "train_only": ("3", "6")}
    own: list[dict[str, Any]] = [
        {"rate": 0.05, "seed": 1, "clip": 0.3, "average": 0.9, **common},
        {"rate": 0.1, "seed": 2, "clip": 0.6, "average": 0.5, **common},
    ]
    results = train_many(trials(NORMAL, own), PICTURES, "population", device=device)
    for result in results:
        assert_as_alone(result, PICTURES, device)
    start = NORMAL.initialise(1)
    for path, array in results[0].parameters.items():
        chosen = path.startswith(("3.", "6."))
        assert np.array_equal(array, start[path]) != chosen, path


def test_flat_features_can_be_normalised() -> None:
    network = Sequential([Dense(8), BatchNorm(), ReLU(), Dense(3)], (16,), "flat")
    own = [{"rate": 0.05, "seed": 1}, {"rate": 0.1, "seed": 2, "momentum": 0.5}]
    for result in train_many(trials(network, own), FLAT, "population"):
        assert_as_alone(result, FLAT, "compiled")


def test_weighted_classes_and_several_kinds_of_steps() -> None:
    different = [
        *trials(MLP, [{"optimizer": "adam", "rate": 0.01}, {"optimizer": "lion", "rate": 0.001}]),
        *trials(MLP, [{"class_weights": (1.0, 2.0, 0.5)}, {"decay": 0.1}, {}]),
    ]
    assert len({trial.shape for trial in different}) == len(different)
    for result in train_many(different, FLAT, "population"):
        assert_as_alone(result, FLAT, "compiled")


def test_other_shapes_and_batches_are_populations_of_their_own() -> None:
    different = [
        *trials(MLP, OWN[:2]),
        Trial(networks.mlp([16, 3]), batch_size=20),
        Trial(MLP, batch_size=32),
    ]
    results = train_many(different, FLAT, "population")
    assert [result.trial for result in results] == different
    for result in results:
        assert_as_alone(result, FLAT, "compiled")


@pytest.mark.parametrize("device", DEVICES)
def test_members_that_fail_or_are_stopped_leave_and_the_others_go_on(device: str) -> None:
    wrong = {"rate": 1e38, "momentum": 0.9, "seed": 1}
    many = trials(MLP, [OWN[0], wrong, OWN[3], OWN[1]])
    results = train_many(
        many, FLAT, "population", device=device, report=lambda number, epoch: number == 3
    )
    assert results[1].error is not None
    assert results[1].error.startswith("the loss became")
    assert results[3].stopped
    assert len(results[3].losses) == 1
    for place in (0, 2):
        assert_as_alone(results[place], FLAT, device)


def test_data_that_does_not_fit_is_the_result_of_all() -> None:
    results = train_many(trials(MLP, OWN[:2]), PICTURES, "population")
    assert {result.error for result in results} == {
        "mlp-16-12-10-3 expects images of shape (16,); got (2, 8, 8)"
    }
