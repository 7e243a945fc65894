"""What rounding does to a step: the measure itself, against what float32 really does."""

import numpy as np
import pytest

import pareo.operators as op
from pareo import nn
from pareo.lab.contestants import Task, pareo_step
from pareo.lab.experiment.gate.rounding import BITS, UNIT, Grid, Rounded, Sums
from pareo.nn import networks
from pareo.program import trace
from pareo.spec import Spec

pytestmark = pytest.mark.smoke

EVERY = nn.Sequential(
    [
        nn.Conv(4, 3, padding=1), nn.ReLU(), nn.MaxPool(2), nn.Lrn(3),
        nn.Auxiliary(nn.Sequential([nn.Flatten(), nn.Dense(3)])),
        nn.Branches([nn.Conv(2, 1)], [nn.Conv(3, 3, padding=1), nn.Tanh()]),
        nn.BatchNorm(), nn.Residual([nn.Conv(5, 3, padding=1, groups=5), nn.LayerNorm(axis=1)]),
        nn.Subsample(2, 2), nn.Sigmoid(), nn.Flatten(), nn.Dense(3), nn.Softmax(),
    ],
    (2, 8, 8),
    "every",
)  # fmt: skip


@pytest.mark.parametrize("bits", BITS.values())
def test_a_grid_rounds_each_value_by_a_part_of_it(bits: int) -> None:
    values = np.random.default_rng(0).standard_normal(100_000) * 10.0 ** np.arange(-10, 10).repeat(
        5000
    )
    values[::7] = values[0]
    values[::11] = 0.0
    rounded = values.copy()
    Grid(bits, draw=3).round(rounded)
    assert np.all(np.abs(rounded - values) <= 2.0**-bits * np.abs(values) * (1 + 1e-9))
    assert np.abs(rounded - values).max() > 2.0 ** -(bits + 1) * np.abs(values).min()
    assert len(np.unique(rounded[values == values[7]])) == 1  # equal values stay equal
    assert np.all(rounded[values == 0] == 0)


def test_a_run_without_a_grid_is_the_exact_step() -> None:
    task = Task(EVERY, batch=4, rate=0.5)
    images, labels = task.data()
    order = task.order(len(labels), 0, 1)
    start = task.parameters()
    loss, gradients, state = Rounded(EVERY, 4)(start, images[order[0]], labels[order[0]])
    trainer = pareo_step.PareoTrainer(task, "vectorized", "float64")
    assert loss == pytest.approx(trainer.run(order)[0], rel=1e-13)
    for path, after in trainer.parameters().items():
        found = state[path] if path in state else start[path] - 0.5 * gradients[path]
        np.testing.assert_allclose(found, after, atol=1e-13)


def test_the_reach_is_the_same_each_time_and_grows_with_the_unit() -> None:
    task = Task(networks.papers_cnn(), batch=8)
    batch = [a[:8] for a in task.data()]
    run = Rounded(task.network, 8)
    found = {name: run.reach(task.parameters(), *batch, name)[0] for name in BITS}
    assert found["float32"] == run.reach(task.parameters(), *batch, "float32")[0]
    for path, fine in found["float32"].gradients.items():
        # A smooth network: the reach is proportional to the unit, up to what draws differ by.
        assert 2**11 / 8 < found["tf32"].gradients[path] / fine < 2**11 * 8
        assert 2 < found["bfloat16"].gradients[path] / found["tf32"].gradients[path] < 32


@pytest.mark.parametrize("seed", range(4))
def test_a_float32_sum_in_order_stays_within_what_is_allowed_for_it(seed: int) -> None:
    # Sums that cancel, whose terms come in runs of one sign, as those of a filter's gradient do.
    draw = np.random.default_rng(seed)
    terms = np.sin(np.linspace(0, 2 * np.pi * draw.integers(1, 6), 70_000))[:, None]
    terms = (terms + 0.1 * draw.standard_normal((70_000, 8))).astype(np.float32)
    in_order = np.cumsum(terms, axis=0, dtype=np.float32)[-1]
    exact, sizes = terms.sum(axis=0, dtype=np.float64), np.abs(terms).sum(axis=0, dtype=np.float64)
    (instruction,) = trace(lambda x: op.sum(x, axis=0), Spec(terms.shape)).instructions
    sums = Sums(UNIT)
    sums.add("b", instruction, sizes, exact)
    error = np.linalg.norm(in_order - exact)
    assert sums.errors["b"] / 30 < error < sums.errors["b"]
