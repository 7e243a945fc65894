"""Drawn networks: valid, reproducible, printable, and of every kind that is documented."""

from functools import cache
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pareo import nn
from pareo.errors import PareoError
from pareo.lab.arena import cnn, mid, mlp
from pareo.lab.arena.blocks import PIXELS
from pareo.lab.arena.chance import Chance
from pareo.lab.arena.draw import FLOPS, KINDS, Batches, Drawn, drawn
from pareo.nn.containers import Container

DRAWS = 300
LAYERS = {
    nn.Conv, nn.Dense, nn.Flatten, nn.MaxPool, nn.AveragePool, nn.Subsample, nn.GlobalAveragePool,
    nn.AdaptiveAveragePool, nn.BatchNorm, nn.LayerNorm, nn.Lrn, nn.Normalise, nn.Scale, nn.Residual,
    nn.Gate, nn.Branches, nn.Append, nn.Add, nn.Sigmoid, nn.Tanh, nn.ReLU, nn.LeakyReLU, nn.Clip,
    nn.GELU, nn.SiLU, nn.HardSwish, nn.HardSigmoid,
}  # fmt: skip


@cache
def every() -> list[Drawn]:
    return [drawn(0, index) for index in range(DRAWS)]


def layers(network: nn.Sequential) -> list[tuple[nn.Layer, tuple[int, ...]]]:
    return [(layer, shape) for _, layer, shape in network.walk(network.inputs)]


@pytest.mark.smoke
def test_every_kind_of_layer_is_drawn() -> None:
    found = {type(layer) for one in every() for layer, _ in layers(one.network)}
    assert found - {nn.Sequential} == LAYERS
    assert {one.kind for one in every()} == set(KINDS)


def test_convolutions_are_of_every_kind() -> None:
    found = [(c, s) for one in every() for c, s in layers(one.network) if isinstance(c, nn.Conv)]
    windows = {c.size if isinstance(c.size, tuple) else (c.size, c.size) for c, _ in found}
    assert {(1, 1), (9, 9)} < windows
    assert any(high != wide for high, wide in windows)
    assert {c.stride for c, _ in found} == {1, 2}
    assert {c.dilation for c, _ in found} == {1, 2}
    assert any(1 < c.groups == shape[0] for c, shape in found)
    assert {c.bias for c, _ in found} == {True, False}


def test_sizes_are_those_that_are_documented() -> None:
    for one in every():
        shape, inside = one.network.inputs, layers(one.network)
        assert 1 <= one.batch <= 512
        if one.kind == "mlp":
            assert 1 <= sum(isinstance(layer, nn.Dense) for layer, _ in inside) <= mlp.DEPTH
        elif one.kind == "cnn":
            assert all(cnn.SIDE[0] <= side <= cnn.SIDE[1] for side in shape[1:])
            assert shape[0] <= 3
        else:
            assert all(mid.SIDE[0] <= side <= mid.SIDE[1] for side in shape[1:])


def test_batches_that_are_normalised_have_a_variance() -> None:
    for one in every():
        for layer, shape in layers(one.network):
            if isinstance(layer, nn.BatchNorm):
                assert prod(shape[1:]) >= PIXELS or (one.batch >= 16 and one.batch % 8 == 0)


def test_steps_are_bounded() -> None:
    for one in every()[::5]:
        low = 16 if any(isinstance(n, nn.BatchNorm) for n, _ in layers(one.network)) else 1
        assert one.batch <= low or one.flops <= 1.01 * FLOPS


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.sampled_from(KINDS))
@settings(max_examples=20)
def test_a_network_follows_from_seed_index_and_kind(seed: int, index: int, kind: str) -> None:
    one = drawn(seed, index, [kind], Batches((1, 2)))
    assert one == drawn(seed, index, [kind], Batches((1, 2)))
    assert one.network == drawn(seed, index, [kind], Batches((4, 8))).network
    assert str(one).startswith(f"batch {one.batch}, ")
    assert one.network.name == f"{kind}-{seed}-{index}"
    among_all = drawn(seed, index, KINDS, Batches((1, 2)))
    assert among_all.kind != kind or among_all == one
    assert not any(
        isinstance(layer, Container) and layer.seeds() for layer, _ in layers(one.network)
    )


def test_other_seeds_and_indices_are_other_networks() -> None:
    found = {str(drawn(seed, index)) for seed in range(5) for index in range(5)}
    assert len(found) == 25


def test_a_given_batch_is_kept() -> None:
    heavy = [one for one in every() if one.kind == "mid"][:3]
    for one in heavy:
        assert drawn(0, one.index, batches=Batches.parsed("512")).batch == 512


@given(st.integers(1, 4096), st.integers(1, 4096), st.integers(0, 99))
def test_batches_lie_between(one: int, other: int, seed: int) -> None:
    low, high = sorted((one, other))
    batches = Batches.parsed(f"{low}..{high}")
    assert low <= batches.drawn(Chance(np.random.default_rng(seed))) <= high


@pytest.mark.parametrize("text", ["", "big", "0", "8..1", "1..", "1,,2", "-1", "5000", "1...4"])
def test_wrong_batches_are_refused(text: str) -> None:
    with pytest.raises(PareoError, match="--batch expects sizes"):
        Batches.parsed(text)
