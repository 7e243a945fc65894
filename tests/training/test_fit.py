"""The loop: it learns, remembers, repeats itself bit for bit, and stops when it should."""

import signal
import threading
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from devices import CUDA, DEVICES
from torch_network import forward

from pareo import Device, nn, to_device, to_host
from pareo.data import Dataset, load
from pareo.errors import PareoError
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.training import DivergenceError, Result, fit
from pareo.training.checkpoint import load as load_checkpoint
from pareo.training.fit import shuffled
from pareo.training.optimizers import SGD
from pareo.training.recipe import Recipe
from pareo.training.schedules import parse
from pareo.training.step import Step, new_slots

pytestmark = pytest.mark.smoke

loop = import_module("pareo.training.fit")  # whose name in the package is the function
DATA = load("synthetic:1x8x8:4:300")  # 250 to learn from, 50 to test with
SMALL = networks.mlp([64, 16, 4])
HERE = {"device": "vectorized", "batch_size": 32, "rate": 0.05}


def same(one: Result, other: Result) -> bool:
    return all(
        a.tobytes() == other.parameters[path].tobytes() for path, a in one.parameters.items()
    )


def test_it_learns_and_remembers() -> None:
    result = fit(SMALL, DATA, epochs=4, momentum=0.9, **HERE)
    assert [epoch.number for epoch in result.history] == [1, 2, 3, 4]
    assert result.accuracy == 1.0
    losses = result.history.column("loss")
    assert losses[3] < losses[0] / 2
    for epoch in result.history:
        assert epoch.seconds > 0
        assert epoch.images == pytest.approx(250 / epoch.seconds)
        assert epoch.test_loss is not None
        assert epoch.test_loss > 0
        assert epoch.flops > 0
        assert epoch.floor is not None
        assert 0 < epoch.floor < 1.5
    assert result.history.seconds == pytest.approx(sum(result.history.column("seconds")))
    assert result.history.images == pytest.approx(4 * 250 / result.history.seconds)
    assert not result.interrupted
    assert result.history[1:][0].number == 2


@pytest.mark.parametrize("device", ["vectorized", "compiled", CUDA])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_same_seed_gives_the_same_bits(device: str, momentum: float) -> None:
    how: Any = {**HERE, "device": device, "momentum": momentum, "decay": 1e-3, "epochs": 2}
    one, two = fit(SMALL, DATA, seed=3, **how), fit(SMALL, DATA, seed=3, **how)
    assert same(one, two)
    assert one.history.column("loss") == two.history.column("loss")
    assert not same(one, fit(SMALL, DATA, seed=4, **how))


def test_chunks_of_steps_do_not_change_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Sequential([nn.Flatten(), nn.Dropout(0.3), nn.Dense(4)], (1, 8, 8))
    whole = fit(network, DATA, epochs=2, **HERE)
    monkeypatch.setattr(loop, "CHUNK_SECONDS", 0.0)  # one step at a time
    single = fit(network, DATA, epochs=2, **HERE)
    assert same(whole, single)
    assert whole.history.column("loss") == single.history.column("loss")


def test_devices_agree_to_rounding_for_a_hundred_steps() -> None:
    """The issue's wish; sums are ordered otherwise, and a hundred steps carry the rounding on."""
    network = networks.papers_cnn()
    digits = load("synthetic:1x28x28:10:120").images
    labels = load("synthetic:1x28x28:10:120").labels
    order = np.random.default_rng(0).integers(0, len(digits), (100, 8))
    losses = {}
    for device in ("vectorized", "compiled"):
        recipe = Recipe(SGD(momentum=0.9))
        step = Step(network, 8, Device(device), recipe)
        parameters = network.initialise(0)
        slots = new_slots(network, recipe, parameters)
        losses[device] = step.run(parameters, slots, digits, labels, order, 0.05)
    np.testing.assert_allclose(losses["vectorized"], losses["compiled"], rtol=1e-3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.0, 0.01), (0.9, 0.01)])
def test_steps_are_those_of_torch_sgd(device: str, momentum: float, decay: float) -> None:
    network = networks.mlp([64, 5, 4])
    parameters = network.initialise(0, "float64")
    recipe = Recipe(SGD(momentum), decay, decay_biases=True)
    slots = new_slots(network, recipe, parameters)
    images = DATA.images[:12].astype("float64").reshape(12, 64)
    leaves = {path: torch.tensor(a, requires_grad=True) for path, a in parameters.items()}
    optimiser = torch.optim.SGD(leaves.values(), 0.1, momentum, weight_decay=decay)
    order = np.arange(12).reshape(3, 4)
    with Device(device) as place:
        step = Step(network, 4, place, recipe, "float64")
        there = to_device((parameters, slots, images, DATA.labels[:12]))
        losses = step.run(*there, order, 0.1)
        parameters = to_host(there[0])
    for row, loss in zip(order, losses, strict=True):
        optimiser.zero_grad()
        out = forward(network, leaves, torch.tensor(images[row]))
        expected = torch.nn.functional.cross_entropy(out, torch.tensor(DATA.labels[row]))
        expected.backward()
        optimiser.step()
        assert loss == pytest.approx(expected.item(), rel=1e-12)
    for path, leaf in leaves.items():
        np.testing.assert_allclose(parameters[path], leaf.detach().numpy(), rtol=1e-11, atol=1e-14)


def test_a_last_batch_that_is_smaller_is_trained_on_too() -> None:
    # One image in the last batch: it must move the weights, and count once in the loss.
    one = replace(DATA, images=DATA.images[:33], labels=DATA.labels[:33])
    less = replace(DATA, images=DATA.images[:32], labels=DATA.labels[:32])
    how: Any = {**HERE, "epochs": 1}
    assert not same(fit(SMALL, one, **how), fit(SMALL, less, **how))
    small = replace(DATA, images=DATA.images[:5], labels=DATA.labels[:5])
    assert len(fit(SMALL, small, **how).history) == 1  # fewer images than a batch


def test_an_epoch_sees_every_image_once_in_another_order() -> None:
    first, second = shuffled(100, seed=1, epoch=0), shuffled(100, seed=1, epoch=1)
    assert sorted(first) == sorted(second) == list(range(100))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, shuffled(100, seed=2, epoch=0))


def test_without_a_test_set_there_is_no_accuracy() -> None:
    alone = replace(DATA, test_images=DATA.images[:0], test_labels=DATA.labels[:0])
    result = fit(SMALL, alone, **HERE)
    assert result.accuracy is None
    assert result.history[0].test_loss is None


def rates_of(monkeypatch: pytest.MonkeyPatch, **how: Any) -> list[float]:
    """The rate of every step of a run, in the order of the steps."""
    rates: list[float] = []
    run = Step.run

    def noting(step: Step, *arguments: Any, **more: Any) -> Any:
        rates.extend(np.broadcast_to(arguments[5], len(arguments[4])))
        return run(step, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Step, "run", noting)
        fit(SMALL, DATA, **{**HERE, **how})
    return rates


def test_a_falling_rate_is_that_of_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = rates_of(monkeypatch, epochs=4, schedule="cosine-epochs")
    expected = [0.05 * (1 + np.cos(np.pi * epoch / 4)) / 2 for epoch in range(4)]
    expected[0] = 0.05 / 8
    assert rates == pytest.approx(np.repeat(expected, 8).tolist())


def test_a_schedule_sets_the_rate_of_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = rates_of(monkeypatch, epochs=3, schedule="warmup:1+cosine")
    expected = parse("warmup:1+cosine").rates(0.05, 0, 24, per_epoch=8, epochs=3)
    assert rates == expected.tolist()
    assert len(set(rates)) == 24


def test_float64_trains_in_float64() -> None:
    result = fit(SMALL, DATA, precision="float64", **HERE)
    assert all(a.dtype == np.float64 for a in result.parameters.values())


def test_uint8_images_are_scaled() -> None:
    pixels = np.clip(DATA.images * 255, 0, 255).astype(np.uint8)
    tests = np.clip(DATA.test_images * 255, 0, 255).astype(np.uint8)
    coarse = Dataset("uint8", pixels, DATA.labels, tests, DATA.test_labels, 4)
    floats = coarse.as_float()
    assert same(fit(SMALL, coarse, **HERE), fit(SMALL, floats, **HERE))


def test_callbacks_see_each_epoch_and_may_end_the_run() -> None:
    seen: list[int] = []

    def stop_at_two(result: Result) -> bool:
        seen.append(result.history[-1].number)
        return len(result.history) == 2

    result = fit(SMALL, DATA, epochs=9, callbacks=[stop_at_two], **HERE)
    assert seen == [1, 2]
    assert len(result.history) == 2
    assert not result.interrupted


def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path) -> None:
    deep = Sequential([nn.Flatten(), nn.Dense(16), nn.ReLU(), nn.Dense(4)], (1, 8, 8))
    how: Any = {**HERE, "rate": 1e30, "epochs": 3}
    with pytest.raises(DivergenceError, match=r"epoch 1, step \d+: try a rate below 1e\+30"):
        fit(deep, DATA, **how)
    with pytest.raises(DivergenceError, match="is unchanged"):
        fit(deep, DATA, checkpoint=tmp_path, **how)
    found = load_checkpoint(tmp_path)
    assert all(np.isfinite(a).all() for a in found.parameters.values())


def test_interrupted_after_the_present_steps(tmp_path: Path) -> None:
    def press(result: Result) -> None:
        if len(result.history) == 2:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    how: Any = {**HERE, "epochs": 5}
    result = fit(SMALL, DATA, checkpoint=tmp_path, callbacks=[press], **how)
    assert result.interrupted
    assert len(result.history) == 2
    assert signal.getsignal(signal.SIGINT) is before
    assert same(fit(SMALL, DATA, resume=tmp_path, **how), fit(SMALL, DATA, **how))


def test_a_second_ctrl_c_does_not_wait() -> None:
    def press_twice(result: Result) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit(SMALL, DATA, epochs=3, callbacks=[press_twice], **HERE)


def test_other_threads_can_train() -> None:
    results: list[Result] = []
    worker = threading.Thread(target=lambda: results.append(fit(SMALL, DATA, **HERE)))
    worker.start()
    worker.join()
    assert same(results[0], fit(SMALL, DATA, **HERE))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"epochs": 0}, "epochs to be a whole number from 1; got 0"),
        ({"epochs": 1.5}, "epochs"),
        ({"batch_size": 0}, "batch_size"),
        ({"rate": 0.0}, "a rate above 0"),
        ({"rate": float("nan")}, "a rate above 0"),
        ({"rate": "fast"}, "a rate above 0"),
        ({"momentum": 1.0}, "momentum from 0 to below 1"),
        ({"decay": -0.1}, "a decay of 0 or more"),
        ({"seed": -1}, "seed"),
        ({"precision": "float16"}, "precision of float32 or float64"),
        ({"schedule": "stairs"}, "a schedule such as constant, step"),
        ({"optimizer": "sgdm"}, "an optimizer of sgd, nesterov, adam, adamw or lion; got 'sgdm'"),
        ({"optimizer": "adam", "momentum": 0.9}, "no momentum with adam; got 0.9"),
        ({"optimizer": SGD(0.5), "momentum": 0.9}, "one momentum; got 0.9 and sgd:0.5"),
        ({"clip": 0}, "a clip above 0; got 0"),
        ({"average": 1.0}, "an average from 0 to below 1; got 1.0"),
        ({"smoothing": 1.0}, "a smoothing from 0 to below 1; got 1.0"),
        ({"class_weights": [1.0, 2.0]}, "class_weights for 4 classes; got 2"),
        ({"loss": "hinge"}, "a loss of cross-entropy, .*; got 'hinge'"),
        ({"loss": "squared-error"}, "the loss cross-entropy for the classes of synthetic"),
        ({"loss": "squared-error", "smoothing": 0.1}, "smoothing and class_weights once"),
        ({"augment": "blur:3"}, "augment such as 'flip,crop:4,cutout:8'; got 'blur:3'"),
        ({"augment": "flip,flip"}, "augment such as"),
        ({"augment": "crop:4"}, r"augment expects images \(N, C, H, W\)"),
        ({"train_only": "9"}, "train_only to name layers; '9' is none"),
        ({"train_only": "0"}, "train_only to name layers"),
        ({"train_only": 3}, "train_only such as 'fc'"),
        ({"validation": 1.0}, "a validation share from 0 to below 1; got 1.0"),
        ({"validation": 1e-9}, "a share that takes at least one image"),
        ({"patience": 0}, "patience to be a whole number from 1; got 0"),
        ({"decay_biases": 1}, "decay_biases of True or False; got 1"),
        ({"settings": {"rate": 1}}, "settings of pareo.training.Settings"),
        ({"rates": 0.1}, "no setting 'rates'"),
        ({"weights": {"nowhere": np.zeros(1)}}, "it has no parameter 'nowhere'"),
        ({"weights": {"1.b": np.zeros(3)}}, r"the weight 1.b of shape \(16,\); got \(3,\)"),
        ({"device": "abacus"}, "Device expects"),
        ({"resume": "nowhere.safetensors"}, "nowhere.safetensors: expected a checkpoint"),
    ],
)
def test_wrong_settings_are_said(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(PareoError, match=said):
        fit(SMALL, DATA, **{**HERE, **wrong})


def test_data_that_does_not_fit_is_said() -> None:
    with pytest.raises(PareoError, match=r"expects images of shape \(1, 28, 28\); got \(1, 8, 8\)"):
        fit(networks.papers_cnn(), DATA)
    with pytest.raises(PareoError, match="has 3 classes, 0 to 2; a label of the data is 3"):
        fit(networks.mlp([64, 3]), DATA)
