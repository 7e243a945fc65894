"""A seed is a whole number wherever one is given: a fraction is refused in one sentence."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import pareo.operators as op
from pareo import Device, data
from pareo.cli import app
from pareo.errors import PareoError
from pareo.nn import networks
from pareo.parallel.trials.trial import Trial
from pareo.training import fit, load
from pareo.training.classifier import Classifier
from pareo.training.step import Step

DATA = data.load("synthetic:4:2:12")
NETWORK = networks.mlp([4, 2])
TAKERS: dict[str, Callable[[Any], Any]] = {
    "dropout": lambda seed: op.dropout(np.ones(8), 0.5, seed),
    "initialise": lambda seed: NETWORK.initialise(seed),
    "data": lambda seed: data.load("synthetic:4:2:12", seed=seed),
    "fit": lambda seed: fit(NETWORK, DATA, seed=seed, device="vectorized"),
    "fit's order": lambda seed: fit(NETWORK, DATA, order=seed, device="vectorized"),
    "trial": lambda seed: Trial(NETWORK, seed=seed),
    "classifier": lambda seed: Classifier(seed=seed, device="vectorized").fit(
        DATA.images, DATA.labels
    ),
    "step": lambda seed: Step(NETWORK, 2, Device("vectorized")).run(
        NETWORK.initialise(0), {}, DATA.images, DATA.labels, [[0, 1]], 0.1, seed=seed
    ),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_a_seed_that_is_no_whole_number_is_refused(taker: str) -> None:
    for seed in (2.9, 2.0, np.float32(2.9), np.array(2.9), float("nan"), "2", True):
        with pytest.raises(PareoError) as caught:
            TAKERS[taker](seed)
        assert "seed" in str(caught.value) or "order" in str(caught.value), seed
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("taker", TAKERS)
def test_whole_numbers_of_numpy_are_seeds(taker: str) -> None:
    TAKERS[taker](np.array(3) if taker == "dropout" else np.int64(3))


def test_a_seed_below_zero_is_named_as_what_is_wrong() -> None:
    with pytest.raises(PareoError, match=r"synthetic:4:2:12: expects a seed .* got -1"):
        data.load("synthetic:4:2:12", seed=-1)


def test_a_seed_of_numpy_can_be_written_to_a_checkpoint(tmp_path: Any) -> None:
    fit(NETWORK, DATA, seed=np.int64(3), device="vectorized", checkpoint=tmp_path)
    assert load(tmp_path).settings["seed"] == 3


def test_the_command_line_refuses_a_fraction() -> None:
    done = CliRunner().invoke(app, ["train", "mlp-small", "--seed", "2.9"])
    assert done.exit_code == 2
    assert "Invalid value for '--seed'" in done.output
