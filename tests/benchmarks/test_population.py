"""A population on a GPU in pareo and PyTorch: a short race of two members."""

from typing import Any

import pytest
from benchmarks import population
from devices import needs_gpu

pytestmark = [pytest.mark.gpu, needs_gpu]


def test_a_short_race(capsys: Any) -> None:
    population.main(widths="16", members="2", rounds=2, steps=8)
    assert "torch-graph" in capsys.readouterr().out
