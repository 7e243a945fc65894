"""Convolution layers: every contestant computes the same, and wrong results are not timed."""

import io
from typing import Any

import numpy as np
import pytest
from benchmarks import convolution
from benchmarks.convolution import CONTESTANTS, LAYERS, Layer, parity, race
from rich.console import Console

TINY = Layer("tiny", (2, 3, 6, 6), (4, 3, 3, 3), 1, 1)


@pytest.mark.parametrize("name", CONTESTANTS)
def test_every_contestant_computes_the_layer(name: str) -> None:
    for layer in (TINY, Layer("first", (2, 1, 9, 9), (6, 1, 5, 5), first=True)):
        results = [np.array(a) for a in CONTESTANTS[name](layer, 1)()]
        assert parity(results, layer) == ""


def test_a_bias_gradient_that_is_one_percent_off_is_refused() -> None:
    results = [np.array(a) for a in CONTESTANTS["pareo-vectorized"](TINY, 1)()]
    results[2] *= 1.01
    assert parity(results, TINY) == "gradient of b differs by 1.0e-02"
    results[0][0, 0, 0, 0] = np.nan
    assert parity(results, TINY).startswith("y differs by nan")


def test_flops_of_the_papers_layer() -> None:
    assert LAYERS[0].flops == 2 * 2 * 128 * 6 * 24 * 24 * 25


@pytest.mark.slow
def test_race_prints_a_table_in_turn() -> None:
    text = io.StringIO()
    race(TINY, ["pareo-vectorized", "numpy, plain im2col"], 1, 3, Console(file=text, width=120))
    assert "pareo-vectorized" in text.getvalue()
    assert "not timed" not in text.getvalue()


def test_a_contestant_that_differs_is_listed_without_a_time(monkeypatch: Any) -> None:
    monkeypatch.setattr(convolution, "parity", lambda results, layer: "y differs by 1.0e+00")
    text = io.StringIO()
    race(TINY, ["pareo-vectorized"], 1, 3, Console(file=text, width=120))
    assert "not timed" in text.getvalue()
    assert "y differs by 1.0e+00" in text.getvalue()
