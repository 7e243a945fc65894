"""The memory that a step was said to take is what it takes, whichever way it runs."""

import gc
import tracemalloc

import numpy as np
import pytest
from devices import needs_gpu
from recipes import sgd

import pareo
from pareo import Device
from pareo.errors import ShapeError
from pareo.nn import Sequential, networks
from pareo.training.step import Step

LOOPED = {"papers-cnn": networks.papers_cnn(), "mlp-small": networks.mlp("small")}
FEW = 10 << 10  # bytes for each worker: views, shares of a loss, the like of them in Python
PANELS = 25 << 10  # of each worker's own: columns of weights at hand, and some rows of the loss


def data(network: Sequential, batch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Some images, their labels, and an order of two steps."""
    draw = np.random.default_rng(1)
    images = draw.random((50, *network.inputs)).astype(np.float32)
    return images, draw.integers(0, network.classes, 50), draw.integers(0, 50, (2, batch))


@pytest.mark.parametrize(("batch", "threads"), [(1, 2), (100, 1), (2000, 2), (2000, 3)])
@pytest.mark.parametrize(
    ("name", "momentum"), [("papers-cnn", 0.0), ("papers-cnn", 0.9), ("mlp-small", 0.9)]
)
def test_of_a_loop(name: str, batch: int, threads: int, momentum: float) -> None:
    network = LOOPED[name]
    step = Step(network, batch, Device("compiled", threads=threads), sgd(momentum))
    assert step.loops
    images, labels, order = data(network, batch)
    parameters = network.initialise(0)
    own = {f"velocity.{path}": np.zeros_like(p) for path, p in parameters.items()}
    slots = own if momentum else {}
    given = sum(array.nbytes for array in (*parameters.values(), *slots.values()))
    step.run(parameters, slots, images, labels, order, 0.1)  # compiled
    tracemalloc.start()
    try:
        step.run(parameters, slots, images, labels, order, 0.1)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert given + most == pytest.approx(step.memory(), rel=0.01, abs=FEW * threads)
    assert step.memory(2 * batch) >= step.memory()
    with pytest.raises(ShapeError):
        step.memory(0)


@pytest.mark.parametrize("batch", [1, 2000])
def test_of_a_table(batch: int) -> None:
    """It works in the executable's memory and in the batch, which is an argument."""
    network = networks.mlp("small")
    step = Step(network, batch, Device("compiled", threads=2))
    images, labels, order = data(network, batch)
    parameters = network.initialise(0)
    step.run(parameters, {}, images, labels, order, 0.1)  # compiled
    given = sum(array.nbytes for array in parameters.values()) + step.executable.nbytes
    batch_bytes = images[0].nbytes * batch + labels[0].nbytes * batch
    assert given + batch_bytes == pytest.approx(step.memory(), abs=FEW)
    tracemalloc.start()
    try:
        step.run(parameters, {}, images, labels, order, 0.1)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * FEW + 2 * PANELS


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("batch", [1, 100, 512])
@pytest.mark.parametrize("name", LOOPED)
def test_of_a_kernel_for_many_steps(name: str, batch: int, momentum: float) -> None:
    import cupy

    gc.collect()  # what other tests left
    network, pool = LOOPED[name], cupy.get_default_memory_pool()
    images, labels, order = data(network, batch)
    with Device("cuda") as place:
        there = pareo.to_device((images, labels))
        before = pool.used_bytes()
        step = Step(network, batch, place, sgd(momentum))
        assert step.loops  # what the kernel works in is there from here on
        parameters = pareo.to_device(network.initialise(0))
        slots = {
            f"velocity.{path}": cupy.zeros_like(p) for path, p in parameters.items() if momentum
        }
        step.run(parameters, slots, *there, order, 0.1)
        used = pool.used_bytes() - before
    # CuPy's memory comes in pieces of 512 bytes; slots are copied while it runs.
    pieces = 512 * (2 * len(parameters) + 4)
    copied = sum(array.nbytes for array in slots.values())
    assert used <= step.memory() + pieces
    assert used >= step.memory() - copied
