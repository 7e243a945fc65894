"""Regressor: scikit-learn's own checks, and what they do not ask."""

import pickle
from typing import Any

import numpy as np
import pytest

from pareo.data import Dataset
from pareo.errors import ShapeError
from pareo.nn import networks
from pareo.training import SettingError, Settings, fit

pytest.importorskip("sklearn", reason="needs scikit-learn")

from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from pareo.training.classifier import Classifier
from pareo.training.regressor import Regressor

ADAM = Settings(optimizer="adam", rate=0.01, batch_size=32, loss="squared-error", schedule="cosine")
X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
Y = X @ [1.0, -2.0, 0.5] + 100


@parametrize_with_checks([Regressor(), Regressor(settings=ADAM)])
def test_scikit_learns_own_checks(estimator: Regressor, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("settings", [None, ADAM])
def test_targets_of_any_size_are_learned(settings: Settings | None) -> None:
    scores = []
    for scale in (1e-3, 1.0, 1e6):
        model = Regressor((16,), epochs=30, settings=settings).fit(X, scale * Y)
        scores.append(model.score(X, scale * Y))
        assert model.predict(X).shape == (200,)
    assert scores[0] > 0.95
    # The same training but for the rounding of the targets, which are scaled.
    assert scores == pytest.approx([scores[0]] * 3, abs=1e-3)


def test_several_targets() -> None:
    both = np.stack([Y, 5 - 3 * Y], axis=1)
    model = Regressor((16,), epochs=30).fit(X, both)
    assert model.predict(X).shape == (200, 2)
    assert model.score(X, both) > 0.98
    constant = Regressor((4,), epochs=2).fit(X, np.full(200, 7.0))
    np.testing.assert_allclose(constant.predict(X), 7.0, atol=3.0)


def test_it_is_pareo_fit_bit_by_bit() -> None:
    network = networks.mlp([3, 5, 1])
    model = Regressor(network, epochs=3, settings=ADAM).fit(X, Y)
    targets = ((Y - Y.mean()) / Y.std()).astype(np.float32)[:, None]
    data = Dataset("targets", X, targets, X[:0], targets[:0], 0)
    expected = fit(network, data, ADAM, epochs=3, device="vectorized", progress=False)
    for path, array in expected.parameters.items():
        np.testing.assert_array_equal(model.parameters_[path], array, strict=True)


def test_pipelines_searches_and_pickles() -> None:
    features, targets = load_diabetes(return_X_y=True)
    model = make_pipeline(StandardScaler(), Regressor((8,), epochs=10))
    search = GridSearchCV(model, {"regressor__rate": [0.001, 0.01]}, cv=2).fit(features, targets)
    assert search.best_score_ > 0.3
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict(features), search.predict(features))
    assert clone(Regressor(settings=ADAM)).settings == ADAM


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ({"network": networks.mlp([3, 2])}, ShapeError, "has 2 outputs; there are 1 targets"),
        ({"network": 3}, SettingError, r"Regressor expects network to be None, widths"),
        ({"settings": 3}, SettingError, "Regressor expects settings to be None or a pareo"),
        ({"settings": Settings()}, SettingError, "the loss squared-error; got cross-entropy"),
        ({"clip": -1.0}, SettingError, "a clip above 0; got -1.0"),
    ],
)
def test_wrong_arguments(how: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Regressor(**how).fit(X, Y)


def test_a_classifier_takes_settings_too() -> None:
    settings = Settings(optimizer="adam", rate=0.01, smoothing=0.1, average=0.9, batch_size=20)
    labels = np.where(Y > 100, "high", "low")
    model = Classifier((8,), epochs=20, settings=settings).fit(X, labels)
    assert model.score(X, labels) > 0.95
