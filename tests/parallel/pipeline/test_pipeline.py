"""Pipelines: layers split over workers train as one worker would."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st
from splitting import EXACT, IMAGES, NORMAL, RECIPES, SINGLE, WIDE, alone, by_parts, same

from pareo.data import load
from pareo.errors import ShapeError
from pareo.nn import (
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    ReLU,
    Sequential,
    networks,
)
from pareo.nn.containers import Branches
from pareo.nn.network import Auxiliary
from pareo.parallel import model
from pareo.parallel.group.errors import WorkerError
from pareo.parallel.pipeline.balance import cuts, layer_costs, shares
from pareo.parallel.pipeline.stages import schedule
from pareo.training.settings import Settings

_HEAD = Sequential([Flatten(), Dense(8), ReLU(), Dropout(0.4), Dense(3)])
HEADS = Sequential(
    [Conv(4, 3), ReLU(), Auxiliary(_HEAD), Branches([Conv(2, 1)], [Conv(3, 3, padding=1), ReLU()]),
     AveragePool(2), Flatten(), Dropout(0.5), Dense(3)],
    (2, 8, 8),
)  # fmt: skip


@given_settings(max_examples=6, deadline=None)
@given(
    batch=st.integers(1, 30),
    micro=st.integers(1, 6),
    workers=st.integers(1, 6),
    momentum=st.sampled_from([0.0, 0.9]),
)
def test_parity_with_one_worker(batch: int, micro: int, workers: int, momentum: float) -> None:
    few = load("synthetic:16:3:32")  # 27 to train with
    run = Settings(batch, 0.05, momentum, 1e-3, seed=3, precision="float64")
    found = model.pipeline(WIDE, few, run, 2, workers, device="vectorized", micro=micro)
    expected = alone(WIDE, few, run, 2, "vectorized")
    same(found.parameters, expected.parameters, **EXACT)
    same(found.slots, expected.slots, **EXACT)
    assert found.accuracy == expected.accuracy
    np.testing.assert_allclose(found.test_loss, expected.history[-1].test_loss, rtol=1e-9)
    steps = -(-27 // min(batch, 27))
    assert found.losses.shape == (2 * steps,)
    assert len(found.predicted) == len(found.measured) == workers


@pytest.mark.parametrize("at", [[2], [4], [1, 3, 5]])
def test_heads_branches_and_dropout_wherever_the_cut_is(at: list[int]) -> None:
    few = load("synthetic:2x8x8:3:32")
    run = Settings(batch_size=9, rate=0.05, precision="float64")
    workers = len(at) + 1
    found = model.pipeline(HEADS, few, run, 2, workers, device="vectorized", micro=2, at=at)
    expected = alone(HEADS, few, run, 2, "vectorized")
    same(found.parameters, expected.parameters, **EXACT)
    losses = found.losses.reshape(2, 3).mean(axis=1)  # three batches of 9 in an epoch
    np.testing.assert_allclose(losses, expected.history.column("loss"), rtol=1e-9)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())
def test_parity_with_every_recipe(recipe: dict[str, Any]) -> None:
    few = load("synthetic:16:3:32")
    run = Settings(8, seed=3, precision="float64", epochs=2, **recipe)
    found = model.pipeline(WIDE, few, run, 2, 3, device="vectorized", micro=2)
    expected = alone(WIDE, few, run, 2, "vectorized")
    same(found.parameters, expected.parameters, **EXACT)
    assert found.slots.keys() == expected.slots.keys()
    for name, array in expected.slots.items():
        np.testing.assert_allclose(found.slots[name], array, **EXACT, err_msg=name)
    np.testing.assert_allclose(found.test_loss, expected.history[-1].test_loss, rtol=1e-9)


def test_augmentation_and_layers_that_are_not_trained() -> None:
    few = load("synthetic:2x8x8:3:32")
    run = Settings(
        9, 0.05, precision="float64", augment="flip,crop:2,cutout:3", train_only=("4", "5"),
        average=0.8,
    )  # fmt: skip
    found = model.pipeline(IMAGES, few, run, 2, 2, device="vectorized", micro=2, at=[4])
    expected = alone(IMAGES, few, run, 2, "vectorized")
    same(found.parameters, expected.parameters, **EXACT)
    same(found.weights, expected.weights, **EXACT)


NAMED = Sequential({"stem": NORMAL.layers[0], "norm": BatchNorm(), "": NORMAL.layers[3],
                    "rest": Sequential(NORMAL.layers[4:])}, (2, 8, 8))  # fmt: skip


@pytest.mark.parametrize("network", [NORMAL, NAMED], ids=["numbered", "named"])
def test_batch_norm_with_one_micro_batch_is_as_in_one_worker(network: Sequential) -> None:
    few = load("synthetic:2x8x8:3:32")
    run = Settings(9, 0.01, precision="float64", optimizer="adam", decay=0.1, average=0.9)
    found = model.pipeline(network, few, run, 2, 2, device="vectorized", micro=1, at=[2])
    expected = alone(network, few, run, 2, "vectorized")
    same(found.parameters, expected.parameters, **EXACT)
    same(found.weights, expected.weights, **EXACT)
    assert found.accuracy == expected.accuracy


def test_stages_without_anything_to_train_keep_parameters_and_statistics() -> None:
    few = load("synthetic:2x8x8:3:32")
    run = Settings(
        9, 0.05, precision="float64", train_only=("3", "6"), clip=0.3, average=0.9, optimizer="adam"
    )
    found = model.pipeline(NORMAL, few, run, 2, 3, device="vectorized", micro=1, at=[2, 4])
    expected = alone(NORMAL, few, run, 2, "vectorized")
    same(found.parameters, expected.parameters, **EXACT)
    same(found.weights, expected.weights, **EXACT)
    np.testing.assert_array_equal(found.parameters["1.mean"], 0)


@pytest.mark.parametrize("how", ["threads", "processes"])
def test_each_micro_batch_has_its_own_statistics(how: str) -> None:
    few = load("synthetic:2x8x8:3:32")
    run = Settings(9, 0.01, precision="float64", optimizer="adam", decay=0.1)
    found = model.pipeline(NORMAL, few, run, 2, 2, how, device="vectorized", micro=3)
    losses, parameters = by_parts(NORMAL, few, run, 2, parts=3, chained=True)
    np.testing.assert_allclose(found.losses, losses, rtol=1e-9)
    same(found.parameters, parameters, **EXACT)


def test_a_stage_may_have_no_parameters() -> None:
    network = networks.mlp([16, 8, 3])  # Flatten, Dense, ReLU, Dense
    few, run = load("synthetic:16:3:32"), Settings(batch_size=9, precision="float64")
    found = model.pipeline(network, few, run, 1, 4, device="vectorized", at=[1, 2, 3])
    same(found.parameters, alone(network, few, run, 1, "vectorized").parameters, **EXACT)


@pytest.mark.smoke
def test_parity_on_compiled() -> None:
    few, run = load("synthetic:2x8x8:3:60"), Settings(batch_size=20, rate=0.05)
    found = model.pipeline(IMAGES, few, run, 2)
    same(found.parameters, alone(IMAGES, few, run, 2, "compiled").parameters, **SINGLE)


def test_threads_and_processes_give_the_same_bits_in_every_run() -> None:
    few, run = load("synthetic:16:3:60"), Settings(batch_size=13, momentum=0.5)
    hows = ("threads", "threads", "processes")
    runs = [model.pipeline(WIDE, few, run, 2, 2, how, "vectorized") for how in hows]
    for other in runs[1:]:
        np.testing.assert_array_equal(other.losses, runs[0].losses)
        for path, array in runs[0].parameters.items():
            np.testing.assert_array_equal(other.parameters[path], array)


@pytest.mark.smoke
@given(stages=st.integers(1, 6), micro=st.integers(1, 12))
def test_every_stage_runs_every_micro_batch_forward_and_backward_and_keeps_few(
    stages: int, micro: int
) -> None:
    for stage in range(stages):
        passes = schedule(stage, stages, micro)
        for direction in ("forward", "backward"):
            assert [m for p, m in passes if p == direction] == list(range(micro))
        kept = np.cumsum([1 if p == "forward" else -1 for p, _ in passes])
        assert kept.min() >= 0
        assert kept.max() <= stages - stage


@given(
    costs=st.lists(st.integers(0, 9), min_size=1, max_size=7),
    stages=st.integers(1, 4),
)
def test_the_slowest_stage_is_as_fast_as_any_cut_allows(costs: list[int], stages: int) -> None:
    from itertools import combinations, pairwise

    def slowest(edges: Any) -> float:
        return max(sum(costs[a:b]) for a, b in pairwise(edges))

    if stages > len(costs):
        with pytest.raises(ShapeError, match="layers has 1 to"):
            cuts(costs, stages)
        return
    every = combinations(range(1, len(costs)), stages - 1)
    best = min(slowest([0, *inner, len(costs)]) for inner in every)
    assert slowest(cuts(costs, stages)) == best


def test_predicted_shares_follow_the_work() -> None:
    costs = layer_costs(Sequential([Dense(400), ReLU(), Dense(400), Dense(3)], (400,)), 32)
    assert costs[2] > costs[0] > costs[1], "the first needs no gradient of its input"
    assert shares(costs, [0, 2, 4]) == pytest.approx(
        [sum(costs[:2]) / sum(costs), sum(costs[2:]) / sum(costs)]
    )


@pytest.mark.parametrize("at", [[], [0], [6], [2, 1], [9]])
def test_cuts_that_make_no_stages_are_refused(at: list[int]) -> None:
    with pytest.raises(ShapeError, match="2 workers on 6 layers need 1 cuts in rising order"):
        model.pipeline(WIDE, load("synthetic:16:3:32"), Settings(), workers=2, at=at)


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    run = Settings(batch_size=10, rate=1e30)
    with pytest.raises(WorkerError, match=r"the loss became nan in step 2: try a rate below"):
        model.pipeline(WIDE, load("synthetic:16:3:60"), run)
