"""What a run offers besides steps: validation, patience, the best epoch, callbacks, targets."""

import builtins
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pareo
from pareo import nn
from pareo.data import Dataset, load
from pareo.errors import DataError, PareoError
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.training import Callback, Epoch, History, Result, SettingError, Settings, fit
from pareo.training import load as load_checkpoint
from pareo.training.evaluate import evaluate, score, top

pytestmark = pytest.mark.smoke

DATA = load("synthetic:1x8x8:4:300")  # 250 to learn from, 50 to test with
SMALL = networks.mlp([64, 16, 4])
HERE: dict[str, Any] = {"device": "vectorized", "batch_size": 32, "rate": 0.05}
NORMALISED = Sequential(
    [nn.Conv(4, 3, padding=1, bias=False), nn.BatchNorm(), nn.ReLU(), nn.Flatten(), nn.Dense(4)],
    (1, 8, 8),
)
MODERN: dict[str, Any] = {
    "device": "vectorized", "batch_size": 32, "rate": 0.01, "optimizer": "adam",
    "schedule": "warmup:1+cosine", "average": 0.9, "augment": "crop:1", "clip": 1.0,
    "smoothing": 0.1, "decay": 1e-3,
}  # fmt: skip


def bits(arrays: Any) -> dict[str, bytes]:
    return {path: a.tobytes() for path, a in arrays.items()}


def test_settings_as_one_object_or_as_shortcuts() -> None:
    settings = Settings(batch_size=32, rate=0.05, optimizer="adam")
    one = fit(SMALL, DATA, settings, epochs=2, device="vectorized")
    two = fit(SMALL, DATA, optimizer="adam", epochs=2, **HERE)
    three = fit(SMALL, DATA, settings.changed(rate=9.0), rate=0.05, epochs=2, device="vectorized")
    assert bits(one.parameters) == bits(two.parameters) == bits(three.parameters)
    assert one.settings == two.settings == three.settings == settings
    assert len(fit(SMALL, DATA, Settings(schedule="cosine", epochs=3)).history) == 3


def test_a_normalised_network_learns_with_everything_on() -> None:
    result = fit(NORMALISED, DATA, epochs=6, **MODERN)
    assert result.accuracy is not None
    assert result.accuracy >= 0.96  # two of the 50 images may be wrong
    assert evaluate(result, DATA, device="vectorized").accuracy == result.accuracy
    assert bits(result.weights) != bits(result.parameters)  # the average is what was tested
    assert result.weights.keys() == result.parameters.keys()
    assert (result.parameters["1.variance"] != 1).all()


def test_it_resumes_with_everything_on(tmp_path: Path) -> None:
    whole = fit(NORMALISED, DATA, epochs=3, **MODERN)
    first = {"checkpoint": tmp_path, "callbacks": [lambda result: True]}
    fit(NORMALISED, DATA, epochs=3, **first, **MODERN)
    rest = fit(NORMALISED, DATA, epochs=3, resume=tmp_path, **MODERN)
    assert bits(rest.parameters) == bits(whole.parameters)
    assert bits(rest.slots) == bits(whole.slots)
    assert rest.history.column("test_loss") == whole.history.column("test_loss")
    for changed, said in (
        ({"optimizer": "adamw"}, "was trained with optimizer adam; got adamw"),
        ({"schedule": "cosine"}, r"with schedule warmup:1\+cosine; got cosine"),
        ({"augment": "flip"}, "with augment crop:1; got flip"),
        ({"average": 0.5}, "with average 0.9; got 0.5"),
        ({"smoothing": 0.0}, "with smoothing 0.1; got 0.0"),
    ):
        with pytest.raises(DataError, match=said):
            fit(NORMALISED, DATA, epochs=3, resume=tmp_path, **{**MODERN, **changed})


def test_a_share_is_set_aside_for_validation() -> None:
    training, held = DATA.split(0.2, seed=3)
    result = fit(SMALL, DATA, validation=0.2, seed=3, epochs=2, **HERE)
    tested = replace(training, test_images=held.images, test_labels=held.labels)
    expected = fit(SMALL, tested, seed=3, epochs=2, **HERE)
    assert bits(result.parameters) == bits(expected.parameters)
    assert result.history.column("accuracy") == expected.history.column("accuracy")
    assert result.history.column("test_loss") == expected.history.column("test_loss")


def test_patience_ends_a_run_and_the_best_is_kept(tmp_path: Path) -> None:
    noise = replace(DATA, labels=np.random.default_rng(0).integers(0, 4, len(DATA.labels)))
    how: dict[str, Any] = {**HERE, "rate": 0.5, "momentum": 0.9, "epochs": 50}
    kept: dict[int, Any] = {}

    def note(result: Result) -> None:
        kept[result.history[-1].number] = bits(result.parameters)

    result = fit(SMALL, noise, patience=3, checkpoint=tmp_path, callbacks=[note], **how)
    best = result.best
    assert best is not None
    assert len(result.history) == best.number + 3 < 50
    assert best.accuracy == max(result.history.column("accuracy"))
    found = load_checkpoint(tmp_path / "best.safetensors")
    assert found.epoch == best.number
    assert bits(found.parameters) == kept[best.number]
    assert load_checkpoint(tmp_path).epoch == len(result.history)
    again = fit(SMALL, noise, patience=3, checkpoint=tmp_path, resume=tmp_path, **how)
    assert len(again.history) == len(result.history)  # its patience is at an end already


def test_a_checkpoint_in_a_file_of_its_own_is_one_file(tmp_path: Path) -> None:
    fit(SMALL, DATA, epochs=2, checkpoint=tmp_path / "run.safetensors", **HERE)
    assert [file.name for file in tmp_path.iterdir()] == ["run.safetensors"]


def test_callbacks_are_called_in_order() -> None:
    calls: list[tuple[str, int]] = []

    class Watching(Callback):
        def on_start(self, result: Result) -> None:
            calls.append(("start", len(result.history)))

        def on_epoch(self, result: Result) -> bool:
            calls.append(("epoch", len(result.history)))
            return len(result.history) == 2

        def on_end(self, result: Result) -> None:
            calls.append(("end", len(result.history)))

    fit(SMALL, DATA, epochs=9, callbacks=[Watching(), lambda result: None], **HERE)
    assert calls == [("start", 0), ("epoch", 1), ("epoch", 2), ("end", 2)]


def test_training_starts_from_given_weights() -> None:
    before = fit(SMALL, DATA, epochs=4, **HERE).parameters
    frozen = fit(SMALL, DATA, weights=before, train_only="3", epochs=1, **HERE)
    assert bits({"w": frozen.parameters["1.w"]}) == bits({"w": before["1.w"]})
    assert frozen.parameters["3.w"].tobytes() != before["3.w"].tobytes()
    assert frozen.history[0].loss < fit(SMALL, DATA, epochs=1, **HERE).history[0].loss
    part = fit(SMALL, DATA, weights={"1.w": before["1.w"]}, train_only="3", epochs=1, **HERE)
    assert part.parameters["1.w"].tobytes() == before["1.w"].tobytes()


def targets(kind: str) -> Dataset:
    """Two numbers to predict from 64 pixels; above 0 or not for several labels."""
    made = [images.reshape(len(images), 64) @ np.linspace(-1, 1, 128).reshape(64, 2)
            for images in (DATA.images, DATA.test_images)]  # fmt: skip
    if kind == "several":
        made = [(numbers > 0).astype(np.float32) for numbers in made]
    return Dataset(kind, DATA.images, made[0], DATA.test_images, made[1], 0)


@pytest.mark.parametrize(
    ("kind", "loss"), [("regression", "squared-error"), ("several", "binary-cross-entropy")]
)
def test_targets_are_learned(kind: str, loss: str, tmp_path: Path) -> None:
    data, network = targets(kind), networks.mlp([64, 16, 2])
    how: dict[str, Any] = {**HERE, "rate": 0.01, "optimizer": "adam", "loss": loss, "epochs": 5}
    result = fit(network, data, checkpoint=tmp_path, **how)
    losses = result.history.column("test_loss")
    assert losses[-1] < 0.8 * losses[0]
    assert result.history.column("accuracy") == [None] * 5
    assert result.history.best == int(np.argmin(losses))
    again = fit(network, data, resume=tmp_path, **how)
    assert bits(again.parameters) == bits(result.parameters)
    if kind == "regression":
        assert evaluate(result, data, device="vectorized").loss == pytest.approx(losses[-1])


def test_labels_that_do_not_fit_are_said() -> None:
    data = targets("regression")
    with pytest.raises(SettingError, match=r"for the targets .*numbers, such as labels\.argmax"):
        fit(networks.mlp([64, 2]), data, **HERE)
    with pytest.raises(SettingError, match="targets from 0 to 1 with the loss binary-cross-ent"):
        fit(networks.mlp([64, 2]), data, loss="binary-cross-entropy", **HERE)
    with pytest.raises(PareoError, match="has 3 outputs; regression has 2 targets"):
        fit(networks.mlp([64, 3]), data, loss="squared-error", **HERE)


def test_too_small_a_last_batch_is_said_before_training() -> None:
    flat = Sequential([nn.Flatten(), nn.Dense(4), nn.BatchNorm(), nn.Dense(4)], (1, 8, 8))
    one_left = replace(DATA, images=DATA.images[:33], labels=DATA.labels[:33])
    with pytest.raises(PareoError, match="more than one element a channel in training"):
        fit(flat, one_left, **HERE)


def test_evaluation(tmp_path: Path) -> None:
    result = fit(SMALL, DATA, epochs=1, **HERE)
    found = evaluate(result, DATA, device="vectorized")
    assert found.accuracy == result.accuracy
    assert found.loss == pytest.approx(result.history[-1].test_loss)
    assert found.images == 50
    assert found.confusion is not None
    assert found.confusion.sum() == 50
    np.testing.assert_array_equal(found.confusion.sum(axis=1), np.bincount(DATA.test_labels))
    assert np.trace(found.confusion) / 50 == pytest.approx(found.accuracy)
    assert found.top5 == 1.0  # of four classes
    result.save(tmp_path / "weights.safetensors")
    assert pareo.evaluate(tmp_path / "weights.safetensors", DATA).accuracy == found.accuracy
    with pytest.raises(PareoError, match="data with a test set"):
        evaluate(result, replace(DATA, test_images=DATA.images[:0], test_labels=DATA.labels[:0]))


def test_top_counts_as_scikit_learn_does() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(size=(99, 12)), generator.integers(0, 12, 99)
    for count in (1, 2, 5, 11):
        expected = metrics.top_k_accuracy_score(labels, logits, k=count, labels=range(12))
        assert top(logits, labels, count) == pytest.approx(expected)
    assert top(logits, labels, 1) == score(logits, labels)[1]
    assert top(np.zeros((2, 3)), np.array([0, 2]), 1) == 0.5  # of equal outputs, the first


HISTORY = History(
    [Epoch(1, 2.0, 0.9, 0.5, 0.8, 10.0, 1e9, 0.25), Epoch(2, 2.0, 0.5, 0.7, 0.6, 10.0, 1e9, None)]
)


def test_a_history_as_a_figure() -> None:
    figure = HISTORY.plot()
    shown = {trace.name: list(trace.y) for trace in figure.data}
    assert shown == {"loss": [0.9, 0.5], "test loss": [0.8, 0.6], "accuracy": [0.5, 0.7]}
    assert all(list(trace.x) == [1, 2] for trace in figure.data)
    alone = History([replace(HISTORY[0], accuracy=None, test_loss=None)])
    assert [trace.name for trace in alone.plot().data] == ["loss"]


def test_a_history_as_a_frame() -> None:
    frame = HISTORY.frame()
    assert frame["accuracy"].tolist() == [0.5, 0.7]
    assert frame.index.tolist() == [1, 2]


def test_without_pandas_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any, **other: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *more, **other)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"History\.frame needs pandas: pip install pandas"):
        HISTORY.frame()
