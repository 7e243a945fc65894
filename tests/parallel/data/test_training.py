"""Data parallelism: what several workers train is what one alone would have trained."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st
from splitting import EXACT, IMAGES, NORMAL, RECIPES, SINGLE, WIDE, alone, by_parts, same

from pareo.data import Dataset, load
from pareo.errors import PareoError, ShapeError
from pareo.nn import Sequential, networks
from pareo.parallel.data import fit
from pareo.parallel.group.batch_schedule import batch_sizes
from pareo.parallel.group.shared_programs import gradient_layout
from pareo.training import DivergenceError
from pareo.training.settings import Settings


@given_settings(max_examples=8, deadline=None)
@given(
    batch=st.integers(1, 40),
    workers=st.integers(1, 5),
    momentum=st.sampled_from([0.0, 0.9]),
    decay=st.sampled_from([0.0, 1e-3]),
    factors=st.booleans(),
)
def test_parity_with_one_worker(
    batch: int, workers: int, momentum: float, decay: float, factors: bool
) -> None:
    """Batches that workers do not divide, last batches of fewer images than workers, dropout."""
    few = load("synthetic:16:3:32")  # 27 to train with
    run = Settings(batch, 0.05, momentum, decay, seed=3, precision="float64")
    found = fit(WIDE, few, run, 2, workers, device="vectorized", factors=factors)
    expected = alone(WIDE, few, run, 2, "vectorized")
    same(found.parameters, expected.parameters, **EXACT)
    same(found.slots, expected.slots, **EXACT)
    assert found.accuracy == expected.accuracy
    np.testing.assert_allclose(found.test_loss, expected.history[-1].test_loss, rtol=1e-9)
    sizes = np.resize(batch_sizes(27, batch), len(found.losses))
    mean = (found.losses * sizes).reshape(2, -1).sum(axis=1) / 27
    np.testing.assert_allclose(mean, expected.history.column("loss"), rtol=1e-9)


@pytest.mark.parametrize(
    "network",
    [WIDE, pytest.param(IMAGES, marks=pytest.mark.slow)],
    ids=["dense", "convolution"],
)
def test_parity_on_compiled(network: Sequential) -> None:
    shape = "x".join(map(str, network.inputs))
    images = load(f"synthetic:{shape}:3:60")
    run = Settings(batch_size=20, rate=0.05, momentum=0.9)
    found = fit(network, images, run, 2, workers=2)
    same(found.parameters, alone(network, images, run, 2, "compiled").parameters, **SINGLE)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())
def test_parity_with_every_recipe(recipe: dict[str, Any]) -> None:
    """Also in processes, and with dropout and gradients as factors."""
    few = load("synthetic:16:3:32")  # 27 to train with
    run = Settings(8, seed=3, precision="float64", epochs=2, **recipe)
    found = fit(WIDE, few, run, 2, 3, device="vectorized")
    expected = alone(WIDE, few, run, 2, "vectorized")
    same(found.parameters, expected.parameters, **EXACT)
    same(found.slots, expected.slots, **EXACT)
    same(found.weights, expected.weights, **EXACT)
    np.testing.assert_allclose(found.test_loss, expected.history[-1].test_loss, rtol=1e-9)


def test_images_are_augmented_as_by_one_worker_and_only_some_layers_trained() -> None:
    few = load("synthetic:2x8x8:3:32")
    run = Settings(
        8, 0.05, seed=3, precision="float64", augment="flip,crop:2,cutout:3", train_only="4,5",
        average=0.8,
    )  # fmt: skip
    found = fit(IMAGES, few, run, 2, 3, device="vectorized")
    expected = alone(IMAGES, few, run, 2, "vectorized")
    same(found.parameters, expected.parameters, **EXACT)
    same(found.slots, expected.slots, **EXACT)
    start = IMAGES.initialise(3, "float64")
    np.testing.assert_array_equal(found.parameters["0.w"], start["0.w"])


def test_targets_have_a_loss_and_no_accuracy() -> None:
    labels = np.random.default_rng(0).normal(size=(40, 3))
    images = np.random.default_rng(1).normal(size=(40, 16))
    few = Dataset("targets", images[:30], labels[:30], images[30:], labels[30:], 0)
    run = Settings(8, 0.05, precision="float64", loss="squared-error")
    network = networks.mlp([16, 8, 3])
    found = fit(network, few, run, 2, 2, device="vectorized")
    expected = alone(network, few, run, 2, "vectorized")
    same(found.parameters, expected.parameters, **EXACT)
    assert found.accuracy is None
    np.testing.assert_allclose(found.test_loss, expected.history[-1].test_loss, rtol=1e-9)


@pytest.mark.parametrize("how", ["threads", "processes"])
def test_each_worker_has_its_own_statistics_and_the_first_ones_are_kept(how: str) -> None:
    few = load("synthetic:2x8x8:3:32")  # 27: batches of 8, 8, 8 and 3
    run = Settings(8, 0.01, seed=3, precision="float64", optimizer="adam", decay=0.1)
    found = fit(NORMAL, few, run, 2, 2, how, device="vectorized")
    losses, parameters = by_parts(NORMAL, few, run, 2, parts=2, chained=False)
    np.testing.assert_allclose(found.losses, losses, rtol=1e-9)
    same(found.parameters, parameters, **EXACT)
    logits = NORMAL(parameters, few.as_float("float64").test_images)
    assert found.accuracy == np.mean(logits.argmax(axis=1) == few.test_labels)


@pytest.mark.parametrize(
    ("how", "device"),
    [("threads", "vectorized"), ("threads", "compiled"), ("processes", "vectorized")],
)
def test_synchronised_workers_have_the_statistics_of_one(how: str, device: str) -> None:
    few = load("synthetic:2x8x8:3:32")  # 27: batches of 10, 10 and 7
    run = Settings(10, 0.01, seed=3, precision="float64", optimizer="adam", decay=0.1, average=0.9)
    found = fit(NORMAL, few, run, 2, 3, how, device, synchronise=True)
    expected = alone(NORMAL, few, run, 2, device)
    same(found.parameters, expected.parameters, **EXACT)
    same(found.slots, expected.slots, **EXACT)
    assert found.accuracy == expected.accuracy
    apart = fit(NORMAL, few, run, 2, 3, device=device)
    assert not np.allclose(apart.parameters["1.mean"], expected.parameters["1.mean"])


def test_synchronised_workers_need_an_image_each() -> None:
    with pytest.raises(ShapeError, match="needs an image for each of 3 workers; a batch has 2"):
        fit(NORMAL, load("synthetic:2x8x8:3:32"), Settings(5), workers=3, synchronise=True)


def test_one_worker_with_batch_norm_is_as_alone() -> None:
    few = load("synthetic:2x8x8:3:32")
    run = Settings(8, 0.01, precision="float64", optimizer="adamw", decay=0.1, average=0.9)
    found = fit(NORMAL, few, run, 2, 1, device="vectorized")
    expected = alone(NORMAL, few, run, 2, "vectorized")
    same(found.parameters, expected.parameters, **EXACT)
    same(found.slots, expected.slots, **EXACT)


def test_threads_and_processes_give_the_same_bits_in_every_run() -> None:
    images, run = load("synthetic:16:3:60"), Settings(batch_size=13, momentum=0.5)
    hows = ("threads", "threads", "processes")
    runs = [fit(WIDE, images, run, 2, 2, how, "vectorized") for how in hows]
    for other in runs[1:]:
        np.testing.assert_array_equal(other.losses, runs[0].losses)
        for path, array in runs[0].parameters.items():
            np.testing.assert_array_equal(other.parameters[path], array)
    assert runs[2].accuracy == runs[0].accuracy


def test_time_is_accounted_for() -> None:
    result = fit(WIDE, load("synthetic:16:3:60"), Settings(batch_size=10), 3)
    for share in result.shares:
        spent = share.busy + share.communication + share.idle
        assert 0 < spent <= share.seconds
    whole = sum(result.share_of(what) for what in ("busy", "communication", "idle"))
    assert 0 < whole <= 1
    assert sum(result.measured) == pytest.approx(1)


def test_thin_factors_are_exchanged_instead_of_wide_gradients() -> None:
    wide = networks.mlp([784, 784, 784, 10])
    assert list(gradient_layout(wide, 128, "float32").factored) == ["1.w", "3.w"]
    as_wide_as_the_layers = gradient_layout(wide, 512, "float32")
    assert list(as_wide_as_the_layers.factored) == []
    assert not gradient_layout(networks.papers_cnn(), 2, "float32").factored.keys() & {"0.w"}


def test_progress_is_reported_in_order() -> None:
    reports: list[Any] = []
    run = Settings(batch_size=1)
    result = fit(WIDE, load("synthetic:16:3:300"), run, 2, report=reports.append)
    steps = [progress.step for progress in reports]
    assert steps == sorted(steps)
    for progress in reports:
        assert progress.loss == result.losses[progress.step - 1]
        assert progress.steps == 500


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    run = Settings(batch_size=10, rate=1e30)
    with pytest.raises(DivergenceError, match=r"^the loss became nan in step 2: try a rate below"):
        fit(WIDE, load("synthetic:16:3:60"), run)


def test_these_workers_refuse_a_gpu() -> None:
    with pytest.raises(PareoError, match="compute on the CPU"):
        fit(WIDE, load("synthetic:16:3:60"), Settings(), device="cuda")
