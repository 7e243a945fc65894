"""What XLA says that a step of JAX's needs: its arguments, its results, and what lies between."""

import gc

import pytest

from pareo import nn
from pareo.lab.contestants import CONTESTANTS, Task, jax_step
from pareo.lab.sweep.runner import data_bytes

jax = pytest.importorskip("jax")

NETWORK = nn.Sequential(
    [nn.Conv(8, 3), nn.ReLU(), nn.Flatten(), nn.Dense(10)], (3, 16, 16), "small"
)


def used(name: str, batch: int) -> int:
    jax.clear_caches()  # what other tests compiled is not this one's
    gc.collect()
    task = Task(NETWORK, batch)
    trainer = CONTESTANTS[name].build(task)
    trainer.run(task.order(task.count(), 0, 2))
    found = jax_step.step_bytes()
    assert found is not None
    return found - data_bytes(task, task.count())


@pytest.mark.parametrize("name", ["jax", "jax-scan"])
def test_all_that_a_step_needs_is_counted(name: str) -> None:
    parameters = 4 * sum(a.size for a in NETWORK.initialise(0).values())
    activations = 4 * 8 * 14 * 14  # of one image, after the convolution
    small, large = used(name, 8), used(name, 128)
    assert small > parameters
    assert 100 * activations < large - small < 120 * 20 * activations
