"""Splits by neurons: several workers with shards of dense layers train as one worker would."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st
from splitting import EXACT, IMAGES, RECIPES, SINGLE, WIDE, alone, same

from pareo.data import load
from pareo.errors import ShapeError
from pareo.nn import GELU, BatchNorm, Dense, Dropout, Flatten, Sequential, Tanh, networks
from pareo.parallel import model
from pareo.parallel.neurons.segments import segments
from pareo.training import DivergenceError
from pareo.training.settings import Settings

LONE = Sequential([Dropout(0.2), Dense(3), Tanh()], (16,), "one layer")
NETWORKS = {
    "pair": networks.mlp([16, 9, 3], "sigmoid"),
    "pair and one, dropout everywhere": WIDE,
    "two pairs": networks.mlp([16, 7, 12, 9, 3], "tanh"),
    "one": LONE,
}


@given_settings(max_examples=8, deadline=None)
@given(
    network=st.sampled_from(list(NETWORKS.values())),
    batch=st.integers(1, 30),
    workers=st.integers(1, 4),
    momentum=st.sampled_from([0.0, 0.9]),
)
def test_parity_with_one_worker(
    network: Sequential, batch: int, workers: int, momentum: float
) -> None:
    few = load("synthetic:16:3:32")  # 27 to train with
    run = Settings(batch, 0.05, momentum, 1e-3, seed=3, precision="float64")
    found = model.neurons(network, few, run, 2, workers, device="vectorized")
    expected = alone(network, few, run, 2, "vectorized")
    same(found.parameters, expected.parameters, **EXACT)
    same(found.slots, expected.slots, **EXACT)
    assert found.accuracy == expected.accuracy
    np.testing.assert_allclose(found.test_loss, expected.history[-1].test_loss, rtol=1e-9)
    assert sum(found.predicted) == pytest.approx(1)


@pytest.mark.smoke
def test_parity_on_compiled() -> None:
    network, run = networks.mlp([16, 40, 30, 3]), Settings(batch_size=20, rate=0.05)
    few = load("synthetic:16:3:60")
    found = model.neurons(network, few, run, 2)
    same(found.parameters, alone(network, few, run, 2, "compiled").parameters, **SINGLE)


def test_threads_and_processes_give_the_same_bits_in_every_run() -> None:
    few, run = load("synthetic:16:3:60"), Settings(batch_size=13, momentum=0.5)
    hows = ("threads", "threads", "processes")
    runs = [model.neurons(WIDE, few, run, 2, 2, how, "vectorized") for how in hows]
    for other in runs[1:]:
        np.testing.assert_array_equal(other.losses, runs[0].losses)
        for path, array in runs[0].parameters.items():
            np.testing.assert_array_equal(other.parameters[path], array)


def test_layers_go_in_pairs() -> None:
    found, after = segments(networks.mlp([784, 196, 196, 196, 10]), 2)
    assert [segment.pair for segment in found] == [("1", "3"), ("5", "7")]
    assert [segment.split for segment in found] == [196, 196]
    assert after == ()
    assert [segment.pair for segment in segments(WIDE, 2)[0]] == [("0", "3"), ("5",)]


@pytest.mark.parametrize(
    ("network", "workers", "sentence"),
    [
        (IMAGES, 2, r"network has Conv 4 @ 3x3: split its data, or its layers in a pipeline"),
        (networks.mlp([16, 2, 3]), 3, r"3 workers cannot share 2 neurons of mlp-16-2-3"),
    ],
)
def test_what_cannot_be_split_is_refused(network: Any, workers: int, sentence: str) -> None:
    shape = "x".join(map(str, network.inputs))
    with pytest.raises(ShapeError, match=sentence):
        model.neurons(network, load(f"synthetic:{shape}:3:32"), Settings(), workers=workers)


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    run = Settings(batch_size=10, rate=1e30)
    with pytest.raises(DivergenceError, match=r"the loss became nan in step 2: try a rate below"):
        model.neurons(WIDE, load("synthetic:16:3:60"), run)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())
def test_parity_with_every_recipe(recipe: dict[str, Any]) -> None:
    few = load("synthetic:16:3:32")
    run = Settings(8, seed=3, precision="float64", epochs=2, **recipe)
    found = model.neurons(WIDE, few, run, 2, 3, device="vectorized")
    expected = alone(WIDE, few, run, 2, "vectorized")
    same(found.parameters, expected.parameters, **EXACT)
    same(found.slots, expected.slots, **EXACT)
    np.testing.assert_allclose(found.test_loss, expected.history[-1].test_loss, rtol=1e-9)


def test_names_missing_biases_augmentation_and_layers_that_are_not_trained() -> None:
    network = Sequential(
        {"flat": Flatten(), "one": Dense(9, bias=False), "act": GELU(), "": Dense(8),
         "last": Dense(3, bias=False)},
        (2, 4, 4),
    )  # fmt: skip
    few = load("synthetic:2x4x4:3:32")
    run = Settings(
        9, 0.05, 0.9, precision="float64", augment="flip,crop:1", train_only=("one", "last"),
        average=0.8, decay=0.1,
    )  # fmt: skip
    found = model.neurons(network, few, run, 2, 2, device="vectorized")
    expected = alone(network, few, run, 2, "vectorized")
    same(found.parameters, expected.parameters, **EXACT)
    same(found.slots, expected.slots, **EXACT)


def test_batch_norm_is_refused() -> None:
    network = Sequential([Dense(8), BatchNorm(), Dense(3)], (16,), "normal")
    with pytest.raises(ShapeError, match="takes dense layers; normal has BatchNorm"):
        model.neurons(network, load("synthetic:16:3:32"), Settings())
