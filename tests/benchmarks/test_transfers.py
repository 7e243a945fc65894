"""Steps with and without moving arrays: each way computes the same step."""

import numpy as np
import pytest
from benchmarks import transfers

from pareo import Device, nn
from pareo.nn.network import Sequential
from pareo.training.step import step_program

pytestmark = pytest.mark.smoke


def test_operator_by_operator_is_the_same_step() -> None:
    network = Sequential([nn.Flatten(), nn.Dense(4), nn.Sigmoid(), nn.Dense(3)], (2, 2))
    program = step_program(network, 5)
    draw = np.random.default_rng(0)
    x, y = draw.random((5, 2, 2), dtype=np.float32), draw.integers(0, 3, 5)
    start = list(network.initialise(0).values())
    with Device("vectorized"):
        found = transfers.one_by_one(program, [*start, x, y, np.float32(0.1)], moving=True)
    loss, moved, _ = program.compile(Device("vectorized"))(
        network.initialise(0), {}, x, y, (np.float32(0.1),), ()
    )
    assert found[0] == pytest.approx(loss)
    for a, b in zip(found[1:], moved.values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_ways_that_need_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    transfers.main(widths="4", ways="vectorized; compiled, step")
    assert "vectorized" in capsys.readouterr().out
