"""Programs and loops write 0 for subnormal results on x86-64, and leave the caller's mode alone."""

import numpy as np
import pytest

from pareo import Device, Spec, op, trace
from pareo.backends.compiled.kernels import elementwise_loops
from pareo.backends.compiled.runtime.registers import IS_X86
from pareo.backends.compiled.runtime.subnormals import flushed
from pareo.backends.compiled.runtime.thread_pool import split_numbered
from pareo.backends.threads import run_concurrently
from pareo.nn import Conv, Dense, Flatten, MaxPool, ReLU, Sequential, networks
from pareo.training.optimizers import SGD
from pareo.training.recipe import Recipe
from pareo.training.step import Step, new_slots

only_x86 = pytest.mark.skipif(not IS_X86, reason="nothing is changed on Arm")
SMALL = np.float32(3e-38)  # normal, but its half is not
SIZE = 1 << 19  # enough for two threads


def halves(numbers=1000):
    """Halves of a small number, as NumPy computes them in this thread."""
    return np.full(numbers, SMALL) * np.float32(0.25)


def half(out, a):
    elementwise_loops.scale(out, a, np.array([0.25], np.float32))


@only_x86
def test_a_function_that_is_flushed_writes_zeros_and_restores_the_mode():
    assert halves().all()
    assert not flushed(halves)().any()
    assert halves().all()


@only_x86
def test_the_mode_is_restored_after_an_error():
    @flushed
    def fail():
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fail()
    assert halves().all()


@only_x86
def test_subnormal_operands_keep_their_values():
    small = np.full(1000, 1e-39, np.float32)
    assert (flushed(lambda: small * np.float32(1e10))() > 1e-30).all()


@only_x86
def test_workers_take_over_the_mode_of_each_task():
    found = {}

    def work(part, lo, hi):
        found[part] = halves().any()

    def parts():
        found.clear()
        with Device("compiled", threads=3):
            split_numbered(work, 3)
        return dict(found)

    for _ in range(3):
        assert not any(flushed(parts)().values())
        assert all(parts().values())


@only_x86
def test_threads_of_a_loop_take_over_the_mode():
    found = {}
    flushed(lambda: run_concurrently(3, lambda n: found.update({n: halves().any()})))()
    assert found == {0: False, 1: False, 2: False}
    assert halves().all()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_program_flushes_and_an_operator_alone_does_not(threads):
    a = np.full(SIZE, SMALL)
    with Device("compiled", threads=threads) as device:
        program = trace(lambda a: op.scale(0.25, op.relu(a)), Spec((SIZE,), "float32"))
        found = np.array(program.compile(device)(a))
        alone = op.scale(0.25, a)
    assert alone.all()
    assert halves().all()
    assert found.any() != IS_X86


NETWORKS = {
    "dense": networks.mlp([6, 8, 4]),
    "images": Sequential([Conv(3, 3), ReLU(), MaxPool(2), Flatten(), Dense(4)], (1, 12, 12)),
    "instructions": Sequential([Conv(40, 3), ReLU(), Flatten(), Dense(4)], (8, 20, 20)),
}


@only_x86
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_training_flushes_what_an_update_makes_subnormal(name, momentum):
    """Weights that are halved by weight decay become 0 where they would become subnormal."""
    network, recipe = NETWORKS[name], Recipe(SGD(momentum=momentum), decay=0.5)
    step = Step(network, 8, Device("compiled", threads=2), recipe)
    parameters = {
        path: np.full(p.shape, SMALL) for path, p in network.parameters(network.inputs).items()
    }
    slots = new_slots(network, recipe, parameters)
    images = np.zeros((8, *network.inputs), np.float32)
    labels = np.zeros(8, np.int64)
    order = np.tile(np.arange(8), (2, 1))
    losses = step.run(parameters, slots, images, labels, order, 1.0)
    assert np.isfinite(losses).all()
    assert halves().all()
    for path, array in parameters.items():
        size = np.abs(array[np.isfinite(array)])
        assert not ((size > 0) & (size < np.finfo(np.float32).tiny)).any(), path
