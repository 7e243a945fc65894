"""Layers and losses of the user's own: trained, saved, loaded, and refused in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pareo import Spec, load, nn, op
from pareo.data import Dataset
from pareo.data import load as load_data
from pareo.errors import DataError, PareoError
from pareo.nn.layers import Layer, Parameter, registered
from pareo.training import fit, losses
from pareo.training.checks import SettingError


@nn.register
@dataclass(frozen=True)
class OwnGate(Layer):
    """A weight for each feature, and a square of it."""

    power: int = 2

    def parameters(self, shape: tuple[int, ...]) -> dict[str, Parameter]:
        return {"g": Parameter(shape, (1, 1), "ones")}

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Any) -> Any:
        return x * parameters["g"] ** self.power + 0.0


@dataclass(frozen=True)
class Unregistered(Layer):
    """A layer that files cannot name."""

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Any) -> Any:
        return -x


@losses.register
@dataclass(frozen=True)
class Hinge(losses.Loss):
    """A squared hinge, for classes."""

    name = "squared-hinge"
    margin: float = 1.0

    def targets(self, batch: int, outputs: int, dtype: Any = "float32") -> Spec:
        return Spec((batch,), "int64", batch=0)

    def __call__(self, outputs: Any, labels: Any) -> Any:
        signs = op.take(2 * np.eye(outputs.shape[1], dtype=outputs.dtype) - 1, labels)
        return op.mean(op.relu(self.margin - signs * outputs) ** 2)


DATA = load_data("synthetic:8:3:120")
NETWORK = nn.Sequential([nn.Dense(16), OwnGate(), nn.ReLU(), nn.Dense(3)], (8,), "gated")
HOW: dict[str, Any] = {"batch_size": 20, "rate": 0.1, "progress": False}


def test_they_train_and_are_saved_and_resumed(tmp_path: Path) -> None:
    result = fit(NETWORK, DATA, epochs=2, loss=Hinge(0.5), checkpoint=tmp_path, **HOW)
    assert result.accuracy is not None
    logits = result.history[-1].test_loss
    assert logits is not None
    found = load(tmp_path)
    assert found.network == NETWORK
    more = fit(NETWORK, DATA, epochs=4, loss=Hinge(0.5), resume=tmp_path, **HOW)
    whole = fit(NETWORK, DATA, epochs=4, loss=Hinge(0.5), **HOW)
    assert whole.accuracy == more.accuracy
    for path, a in whole.parameters.items():
        np.testing.assert_array_equal(a, more.parameters[path])
    with pytest.raises(DataError, match="was trained with loss"):
        fit(NETWORK, DATA, epochs=4, loss=Hinge(0.25), resume=tmp_path, **HOW)


def test_the_test_loss_is_the_losses_own() -> None:
    result = fit(NETWORK, DATA, epochs=1, loss="squared-hinge", **HOW)
    hidden = DATA.test_images @ result.weights["0.w"] + result.weights["0.b"]
    hidden = np.maximum(hidden * result.weights["1.g"] ** 2, 0)
    outputs = hidden @ result.weights["3.w"] + result.weights["3.b"]
    signs = 2 * np.eye(3)[DATA.test_labels] - 1
    expected = np.mean(np.maximum(1 - signs * outputs, 0) ** 2)
    assert result.history[-1].test_loss == pytest.approx(expected, rel=1e-5)
    right = outputs.argmax(axis=1)
    np.testing.assert_array_equal(result.predict(DATA.test_images), right)
    assert result.accuracy == pytest.approx((right == DATA.test_labels).mean())


def test_what_is_not_registered_is_a_sentence(tmp_path: Path) -> None:
    network = nn.Sequential([Unregistered(), nn.Dense(3)], (8,))
    with pytest.raises(DataError, match=r"decorated with nn\.register; got Unregistered\(\)"):
        fit(network, DATA, checkpoint=tmp_path, **HOW)
    result = fit(NETWORK, DATA, **HOW)
    result.save(tmp_path / "a.safetensors")
    kind = registered.pop("OwnGate")
    try:
        with pytest.raises(DataError, match="no layer 'OwnGate'; if it is your own, import"):
            load(tmp_path / "a.safetensors")
    finally:
        registered["OwnGate"] = kind
    with pytest.raises(PareoError, match="register expects a dataclass that is a Layer"):
        nn.register(dict)  # type: ignore[type-var]
    with pytest.raises(PareoError, match="pareo has a layer that is called 'Dense'"):

        @nn.register
        @dataclass(frozen=True)
        class Dense(OwnGate):
            pass

    with pytest.raises(SettingError, match="pareo has a loss that is called 'cross-entropy'"):

        @losses.register
        @dataclass(frozen=True)
        class Other(Hinge):
            name = "cross-entropy"


def test_arrays_are_data() -> None:
    images = np.random.default_rng(0).random((60, 8, 8))
    labels = ["night" if image.mean() < 0.5 else "day" for image in images]
    data = Dataset.of(images, labels, test=0.25, seed=1)
    assert (len(data.images), len(data.test_images), data.shape) == (45, 15, (1, 8, 8))
    assert data.class_names == ("day", "night")
    again = Dataset.of(images, labels, test=0.25, seed=1)
    np.testing.assert_array_equal(again.test_images, data.test_images)
    both = np.concatenate([data.images, data.test_images]).reshape(60, -1)
    assert sorted(map(tuple, both)) == sorted(map(tuple, images.reshape(60, -1)))
    brightness = images.mean(axis=(1, 2))
    assert Dataset.of(images, brightness).has_targets
    given = Dataset.of(images[:50], labels[:50], test=(images[50:], labels[50:]))
    assert (len(given.images), len(given.test_images)) == (50, 10)
    assert Dataset.of(images.tolist(), np.array(labels) == "day", test=0).classes == 2
    for wrong, said in (
        ({"labels": labels[:3]}, "expected 60 labels|one for each|labels"),
        ({"test": 2.0}, "expected a share of more than 0 and less than 1"),
        ({"test": (images,)}, "expected test to be a share, or images and labels"),
        ({"test": (images, ["dusk"] * 60)}, "expected labels of day, night; got 'dusk'"),
    ):
        with pytest.raises(DataError, match=said):
            Dataset.of(**{"images": images, "labels": labels, **wrong})


def test_fit_takes_arrays_and_says_what_it_cannot_take() -> None:
    network = nn.Sequential([nn.Dense(3)], (8,))
    result = fit(network, DATA.images, DATA.labels, epochs=3, **HOW)
    assert result.accuracy is None  # all images are trained on
    same = fit(network, Dataset.of(DATA.images, DATA.labels, test=0), epochs=3, **HOW)
    np.testing.assert_array_equal(result.parameters["0.w"], same.parameters["0.w"])
    regression = nn.Sequential([nn.Dense(1)], (8,))
    how = {**HOW, "loss": "squared-error", "rate": 0.01}
    found = fit(regression, DATA.images, DATA.images.sum(axis=1), **how).predict(DATA.test_images)
    assert found.shape == (len(DATA.test_images),)
    for arguments, said in (
        ((network, DATA.images), "a Dataset, or images and labels"),
        ((network, DATA, DATA.labels), "labels with images that are arrays"),
        (("mlp", DATA), "fit expects a network, such as nn.Sequential"),
        ((nn.Sequential([nn.ReLU()], (8,), "bare"), DATA), "with parameters; bare has none"),
    ):
        with pytest.raises(SettingError, match=said):
            fit(*arguments, **HOW)  # type: ignore[arg-type]


def test_the_default_device_is_that_of_the_command_line() -> None:
    import subprocess
    import sys

    code = "from pareo import op; print(op.get_mode())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "compiled\n"
