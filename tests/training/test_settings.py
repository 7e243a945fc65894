"""Settings: checked, changed by shortcuts, written as JSON, and read from earlier versions."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pareo.errors import DataError
from pareo.training import SettingError, Settings
from pareo.training.augmentation import Augmentation
from pareo.training.losses import BinaryCrossEntropy, CrossEntropy, SquaredError
from pareo.training.optimizers import SGD, Adam, AdamW
from pareo.training.schedules import CosineEpochs, Step, Warmup
from pareo.training.settings import from_plain

pytestmark = pytest.mark.smoke

OLD = {
    "batch_size": 64, "rate": 0.4, "momentum": 0.9, "decay": 0.01, "seed": 3,
    "precision": "float32", "schedule": "cosine", "epochs": 5, "order": None,
}  # fmt: skip


def test_text_becomes_objects() -> None:
    settings = Settings(
        optimizer="adamw:0.9:0.98:1e-6", schedule="warmup:2+step:30:0.1", augment="flip,crop:4",
        loss="cross-entropy", smoothing=0.1, class_weights=[1, 2], train_only="fc, layer4",
    )  # fmt: skip
    assert settings.optimizer == AdamW(0.9, 0.98, 1e-6)
    assert settings.schedule == Warmup(2, Step(30, 0.1))
    assert settings.augment == Augmentation(flip=True, crop=4)
    assert settings.loss == CrossEntropy(0.1, (1, 2))
    assert settings.train_only == ("fc", "layer4")


def test_momentum_is_that_of_the_optimizer() -> None:
    assert Settings(momentum=0.9).optimizer == SGD(0.9)
    assert Settings(optimizer="nesterov").momentum == 0.9
    assert Settings(optimizer="nesterov", momentum=0.5).optimizer == SGD(0.5, nesterov=True)
    assert Settings(optimizer=SGD(0.3)).momentum == 0.3
    assert Settings(optimizer="adam").momentum == 0
    changed = Settings(momentum=0.9).changed(optimizer=SGD(0.3))
    assert changed.optimizer == SGD(0.3)
    assert Settings(optimizer="nesterov").changed(momentum=0).optimizer == SGD()
    assert Settings(optimizer=Adam()).changed(rate=0.1).optimizer == Adam()
    with pytest.raises(SettingError, match="no momentum with adam"):
        Settings(optimizer="adam").changed(momentum=0.9)


def test_smoothing_is_that_of_the_loss() -> None:
    smooth = Settings(loss=CrossEntropy(0.1, (1.0, 2.0)))
    assert (smooth.smoothing, smooth.class_weights) == (0.1, (1.0, 2.0))
    assert smooth.changed(smoothing=0.2).loss == CrossEntropy(0.2, (1.0, 2.0))
    assert smooth.changed(loss="squared-error").loss == SquaredError()
    assert smooth.changed(seed=3).loss == smooth.loss
    with pytest.raises(SettingError, match="smoothing and class_weights once"):
        Settings(loss="binary-cross-entropy", smoothing=0.1)


def test_epochs_matter_only_where_the_schedule_ends() -> None:
    assert Settings(epochs=7) == Settings()
    assert Settings(schedule="step:2", epochs=7).epochs is None
    assert Settings(schedule="warmup:1+cosine", epochs=7).epochs == 7
    with pytest.raises(SettingError, match="epochs with the schedule cosine; got None"):
        Settings(schedule="cosine").rates(0, 1, 1)
    with pytest.raises(SettingError, match="the schedule cosine changes the rate in each step"):
        Settings(schedule="cosine", epochs=3).rate_in(0)


ANY = st.builds(
    Settings,
    batch_size=st.integers(1, 999),
    rate=st.floats(1e-6, 10),
    decay=st.floats(0, 1),
    seed=st.integers(0, 2**40),
    precision=st.sampled_from(["float32", "float64", "tf32", "bfloat16"]),
    schedule=st.sampled_from(["constant", "cosine:0.1", "onecycle:0.2", "warmup:3steps+step:2"]),
    epochs=st.integers(1, 99),
    order=st.none() | st.integers(0, 99),
    optimizer=st.sampled_from(["sgd:0.5", "nesterov:0.7", "adam:0.8:0.9:0.1", "adamw", "lion"]),
    decay_biases=st.booleans(),
    clip=st.none() | st.floats(0.1, 9),
    loss=st.sampled_from([CrossEntropy(0.1), CrossEntropy(0.2, (1, 2)), BinaryCrossEntropy()]),
    average=st.floats(0, 0.999),
    augment=st.sampled_from(["", "flip", "crop:2,cutout:3"]),
    train_only=st.lists(st.sampled_from(["fc", "1.2"]), max_size=2),
    validation=st.floats(0, 0.9),
)


@given(ANY)
def test_json_returns_the_same(settings: Settings) -> None:
    plain = json.loads(json.dumps(settings.plain()))
    assert from_plain(plain, "a file") == settings
    assert plain == settings.plain()
    assert settings.changed() == settings


def test_settings_of_version_0_2_keep_their_meaning() -> None:
    found = from_plain(OLD, "a file")
    assert found.optimizer == SGD(0.9)
    assert found.schedule == CosineEpochs()
    assert found.decay_biases  # every parameter decayed
    assert (found.batch_size, found.rate, found.seed, found.epochs) == (64, 0.4, 3, 5)
    assert found.rate_in(0) == 0.05
    assert from_plain(found.plain(), "a file") == found


@pytest.mark.parametrize(
    "wrong",
    [
        {**OLD, "rate": "fast"},
        {**OLD, "schedule": "stairs"},
        {**Settings().plain(), "optimizer": None},
        {**Settings().plain(), "augment": ["flip"]},
        {**Settings().plain(), "more": 1},
        {"rate": 0.1},
    ],
)
def test_other_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="a file: its settings are not those of a run"):
        from_plain(wrong, "a file")


@given(st.booleans(), st.integers(0, 9), st.integers(0, 9))
def test_augmentation_as_text(flip: bool, crop: int, cutout: int) -> None:
    made = Augmentation(flip, crop, cutout)
    assert Augmentation.parse(str(made)) == made
    assert bool(made) == (flip or crop > 0 or cutout > 0)


@pytest.mark.parametrize("text", ["flip:1", "crop", "crop:-1", "crop:1.5", "crop:²", "x", ",", 3])
def test_wrong_augmentation(text: Any) -> None:
    with pytest.raises(SettingError, match="augment such as 'flip,crop:4,cutout:8'"):
        Augmentation.parse(text)
