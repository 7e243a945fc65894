"""Classifier: scikit-learn's own checks, and what they do not ask."""

import dataclasses
import pickle
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from pareo import Device
from pareo.data import Dataset, load
from pareo.errors import DeviceError, PareoError, ShapeError
from pareo.nn import Dense, Flatten, ReLU, Sequential, networks
from pareo.training import DivergenceError, SettingError, fit

pytest.importorskip("sklearn", reason="needs scikit-learn")

from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from pareo.training import estimator
from pareo.training.classifier import Classifier

DEVICES = ("sequential", "vectorized", "compiled")
DATA = load("synthetic:30:3:90")


@parametrize_with_checks([Classifier(), Classifier(device="compiled", batch_size=64, rate=0.1)])
# Some checks draw labels at random, and it is true that nothing can be learned from them.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learns_own_checks(estimator: Classifier, check: Any) -> None:
    check(estimator)


def test_it_is_pareo_fit_bit_by_bit() -> None:
    network = networks.mlp([30, 5, 3])
    settings: dict[str, Any] = {
        "epochs": 2, "batch_size": 7, "rate": 0.1, "momentum": 0.5, "decay": 0.01, "seed": 3,
    }  # fmt: skip
    model = Classifier(network, **settings).fit(DATA.images, DATA.labels)
    expected = fit(network, DATA, device="vectorized", progress=False, **settings)
    assert model.parameters_.keys() == expected.parameters.keys()
    for path, array in expected.parameters.items():
        np.testing.assert_array_equal(model.parameters_[path], array, strict=True)
    assert model.history_.column("loss") == expected.history.column("loss")
    assert model.score(DATA.test_images, DATA.test_labels) == expected.accuracy


def test_the_seed_decides() -> None:
    one, same, other = (
        Classifier(epochs=9, seed=seed).fit(DATA.images, DATA.labels).predict_proba(DATA.images)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_devices_agree() -> None:
    found = {
        device: Classifier((5,), epochs=5, device=device)
        .fit(DATA.images, DATA.labels)
        .predict_proba(DATA.test_images)
        for device in DEVICES
    }
    for device in DEVICES:
        # Twenty-five steps in float32 that add in another order.
        np.testing.assert_allclose(found[device], found["sequential"], atol=1e-5)


def test_the_device_may_be_an_object_or_the_one_in_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []

    def spy(*arguments: Any, **named: Any) -> Any:
        result = fit(*arguments, **named)
        used.append(result.device)
        return result

    monkeypatch.setattr(estimator, "fit", spy)
    device = Device("vectorized", threads=1)
    Classifier(epochs=10, device=device).fit(DATA.images, DATA.labels).predict(DATA.images)
    with Device("sequential"):
        model = Classifier((), epochs=10, device=None).fit(DATA.images, DATA.labels)
        model.predict(DATA.images)
    assert used == [device, Device("sequential")]
    with pytest.raises(DeviceError, match="got 'abacus'"):
        Classifier(device="abacus").fit(DATA.images, DATA.labels)


def test_it_learns_digits_in_a_pipeline() -> None:
    images, labels = load_digits(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(images, labels, random_state=0)
    model = make_pipeline(StandardScaler(), Classifier(epochs=12))
    assert model.fit(train, train_labels).score(test, test_labels) > 0.96


def test_a_search_over_networks_and_rates() -> None:
    names = np.array(["ant", "bee", "cat"])
    model = make_pipeline(StandardScaler(), Classifier(epochs=8))
    grid = {"classifier__network": [(4,), (16, 8)], "classifier__rate": [1e-6, 0.05]}
    with pytest.warns(ConvergenceWarning):
        search = GridSearchCV(model, grid, cv=3).fit(DATA.images, names[DATA.labels])
    assert search.best_params_["classifier__rate"] == 0.05
    assert search.best_score_ > 0.9
    assert set(search.predict(DATA.test_images)) <= set(names)


def test_a_clone_and_a_pickle_are_the_same() -> None:
    network = Sequential([Dense(4), ReLU(), Dense(3)], input_shape=(30,))
    model = Classifier(network, epochs=10).fit(DATA.images, DATA.labels)
    expected = model.predict_proba(DATA.images)
    again = clone(model).fit(DATA.images, DATA.labels)
    for other in (again, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict_proba(DATA.images), expected)


@pytest.mark.parametrize("rows", [1, 2, 15, 17])
def test_a_row_does_not_depend_on_its_company(rows: int) -> None:
    model = Classifier(epochs=5).fit(DATA.images, DATA.labels)
    alone = model.predict_proba(DATA.images[:rows])
    np.testing.assert_array_equal(alone, model.predict_proba(DATA.images)[:rows])


@pytest.mark.parametrize("network", ["papers-cnn", networks.papers_cnn()])
def test_images_for_a_convolutional_network(network: Any) -> None:
    digits = load("mnist").as_float()
    images, labels = digits.images[:60], digits.labels[:60]
    with pytest.warns(ConvergenceWarning, match="after 1 epochs the loss, .*, is no better than"):
        model = Classifier(network, epochs=1).fit(images, labels)
    assert model.n_features_in_ == 784
    assert model.network_ == networks.papers_cnn()
    rows = model.predict_proba(images.reshape(60, 784))
    assert rows.shape == (60, 10)
    np.testing.assert_array_equal(model.predict_proba(images[:, 0]), rows)


def test_a_network_of_two_dimensions() -> None:
    network = Sequential([Flatten(), Dense(3)], input_shape=(5, 6))
    model = Classifier(network, epochs=20).fit(DATA.images, DATA.labels)
    assert model.score(DATA.images.reshape(-1, 5, 6), DATA.labels) > 0.9


def test_outputs_to_spare_are_left_out() -> None:
    model = Classifier(networks.mlp([30, 8, 9]), epochs=20).fit(DATA.images, DATA.labels)
    found = model.predict_proba(DATA.test_images)
    assert found.shape == (15, 3)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert model.score(DATA.test_images, DATA.test_labels) > 0.9


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        (
            {"network": networks.papers_cnn()},
            ShapeError,
            r"papers-cnn expects inputs of shape \(1, 28, 28\), which is 784 features; got 30",
        ),
        (
            {"network": networks.mlp([30, 2])},
            ShapeError,
            "mlp-30-2 has 2 outputs, too few for 3 classes",
        ),
        ({"network": "mlp-huge"}, ShapeError, "a network is one of papers-cnn, .*; got 'mlp-huge'"),
        ({"network": 3}, SettingError, r"widths such as \(64,\), a name or a Sequential; got 3"),
        ({"network": (0,)}, ShapeError, r"each at least 1; got \[30, 0, 3\]"),
        ({"epochs": 0}, SettingError, "fit expects epochs to be a whole number from 1; got 0"),
        ({"batch_size": 1.5}, SettingError, "batch_size to be a whole number from 1; got 1.5"),
        ({"rate": -1}, SettingError, "fit expects a rate above 0; got -1"),
        ({"momentum": 1}, SettingError, "fit expects a momentum from 0 to below 1; got 1"),
        ({"decay": "much"}, SettingError, "fit expects a decay of 0 or more; got 'much'"),
        ({"seed": None}, SettingError, "fit expects seed to be a whole number from 0; got None"),
    ],
)
def test_a_setting_that_does_not_fit(
    settings: dict[str, Any], kind: type[PareoError], message: str
) -> None:
    model = Classifier(**settings)
    with pytest.raises(kind, match=message):
        model.fit(DATA.images, DATA.labels)
    with pytest.raises(NotFittedError):
        model.predict(DATA.images)


def test_features_that_are_too_large_are_told() -> None:
    message = re.escape(
        "or scale the features first: make_pipeline(StandardScaler(), Classifier())"
    )
    with pytest.warns(
        ConvergenceWarning, match="no better than that of guessing, .*: .*" + message
    ):
        cross_val_score(Classifier(epochs=5), *load_wine(return_X_y=True), cv=2)
    with pytest.raises(
        DivergenceError, match=r"the loss became .*: try a rate below .*, " + message
    ):
        Classifier(rate=1e30).fit(DATA.images, DATA.labels)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_no_label_and_no_number() -> None:
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        Classifier().fit(DATA.images, DATA.images[:, 0])
    with pytest.raises(ValueError, match=r"value too large for dtype\(.float32.\)"):
        Classifier().fit(DATA.images.astype(float) * 1e300, DATA.labels)


def test_ctrl_c_ends_a_search_and_not_one_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(network: Sequential, data: Dataset, *given: Any, **named: Any) -> Any:
        return dataclasses.replace(fit(network, data, *given, **named), interrupted=True)

    monkeypatch.setattr(estimator, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        GridSearchCV(Classifier(), {"epochs": [1, 2]}).fit(DATA.images, DATA.labels)


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_pareo_does_not_import_scikit_learn() -> None:
    assert python("import sys, pareo, pareo.training; print('sklearn' in sys.modules)") == "False"


def test_without_scikit_learn_one_sentence_says_how_to_get_it() -> None:
    code = """
import sys
sys.modules["sklearn"] = None
try:
    from pareo.training.classifier import Classifier
except ImportError as error:
    print(error)
"""
    expected = "pareo.Classifier and pareo.Regressor need scikit-learn 1.6 or later"
    assert python(code) == f"{expected}: pip install scikit-learn"
