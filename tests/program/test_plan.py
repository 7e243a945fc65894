"""Memory: planned before anything runs, equal to what is allocated, and little."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from networks_for_tests import papers_cnn

from pareo import Device, Spec, op, trace
from pareo.program import differentiate

DEVICES = ["sequential", "vectorized", "compiled"]


def chain(x: Any) -> Any:
    """Twenty layers, each of another size than its neighbours, so that none works in place."""
    for layer in range(20):
        x = op.sigmoid(op.dot(x, np.ones((x.shape[1], 64 + layer % 3), np.float32)))
    return x


def training_step(batch: int = 16) -> tuple[Any, list[Any]]:
    loss, arguments = papers_cnn(batch=batch)
    specs = [Spec(a.shape, a.dtype, batch=0 if i < 2 else None) for i, a in enumerate(arguments)]
    return differentiate(trace(loss, *specs), wrt=range(2, 8)), arguments


@pytest.mark.parametrize("device", DEVICES)
def test_chain_needs_less_than_half_of_its_intermediates(device: str) -> None:
    program = trace(chain, Spec((128, 64), batch=0))
    every = sum(program.specs[n].nbytes for i in program.instructions for n in i.outputs)
    run = program.compile(Device(device))
    assert run.nbytes < every / 2


@pytest.mark.parametrize("device", DEVICES)
def test_planned_bytes_are_the_bytes_allocated(device: str) -> None:
    program, arguments = training_step()
    place = Device(device)
    program.compile(place)  # whatever is imported or compiled once
    tracemalloc.start()
    run = program.compile(place)
    arrays = tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)]
    )
    tracemalloc.stop()
    allocated = sum(trace.size for trace in arrays.traces)
    assert run.nbytes == run.plan.bytes
    # The arena, up to one alignment step, and copies of the few constants that are numbers.
    assert run.plan.bytes <= allocated <= run.plan.bytes + 256
    given = sum(a.nbytes for a in arguments)
    numbers = sum(c.nbytes for c in run.program.constants.values())
    assert program.memory(on=place) == run.plan.bytes + given + numbers


def peak_of_a_call(device: str, batch: int) -> int:
    """The most bytes that one call holds at once beyond what the executable owns.

    The least of several calls: an array that a call needs is there in each of them, while what
    threads of `compiled` hand each other depends on how they happen to run.
    """
    program, arguments = training_step(batch)
    run = program.compile(Device(device))
    run(*arguments)
    peaks = []
    tracemalloc.start()
    for _ in range(20 if device == "compiled" else 3):
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        run(*arguments)
        peaks.append(tracemalloc.get_traced_memory()[1] - held)
    tracemalloc.stop()
    return min(peaks)


@pytest.mark.parametrize("device", ["vectorized", "compiled"])
def test_a_call_allocates_no_arrays(device: str) -> None:
    small, large = peak_of_a_call(device, 64), peak_of_a_call(device, 2048)
    # Views and frames are a few kilobytes; NumPy's iterators have buffers of a fixed 8192 elements.
    assert large < 128 * 1024
    # 32 kB is less than one byte for each element of the smallest activation that batch 2048 adds.
    # What threads hand each other takes 15 kB more or less, at any batch size.
    assert large < small + 32 * 1024


@pytest.mark.parametrize("device", DEVICES)
def test_memory_for_any_batch_without_running(device: str) -> None:
    program, _ = training_step(batch=4)
    place = Device(device)
    for batch in (1, 4, 32, 500):
        assert program.memory(batch, on=place) == training_step(batch)[0].memory(on=place)
    # Work arrays may be bounded, activations are not.
    assert program.memory(500, on=place) > 20 * program.memory(4, on=place)


def test_views_take_no_memory() -> None:
    program = trace(lambda x: op.dot(op.transpose(op.reshape(x, (4, 2))), op.reshape(x, (4, 2))),
                    Spec((8,)))  # fmt: skip
    run = program.compile(Device("vectorized"))
    assert len(run.plan.views) == 2
    assert run.nbytes == 64  # the 2 x 2 result, in one aligned piece
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(run(x), x.reshape(4, 2).T @ x.reshape(4, 2))


def test_a_reshape_of_scattered_elements_is_gathered() -> None:
    program = trace(lambda x: op.exp(op.reshape(op.transpose(x), (6,))), Spec((2, 3), "float64"))
    x = np.arange(6.0).reshape(2, 3)
    for device in DEVICES:
        found = program.compile(Device(device))(x)
        np.testing.assert_allclose(found, np.exp(x.T.reshape(6)), rtol=1e-15)


def test_update_is_in_place_but_not_on_inputs() -> None:
    def step(p: Any, g: Any) -> Any:
        return op.sgd(op.exp(p), op.exp(g), op.relu(p), rate=0.1)

    run = trace(step, Spec((1024,)), Spec((1024,))).compile(Device("compiled"))
    assert run.nbytes == 3 * 4096, "the results lie where parameter and velocity were"
    p, g = np.ones(1024, np.float32), np.ones(1024, np.float32)
    run(p, g)
    assert (p == 1).all()
    assert (g == 1).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [3, 300])
def test_no_operand_is_overwritten_while_another_view_of_it_is_read(device: str, size: int) -> None:
    if device == "sequential" and size > 3:
        pytest.skip("plain loops over so many elements show nothing more")

    def turned(x: Any) -> Any:
        y = op.relu(x)
        return op.add(y, op.transpose(y))

    def scaled(x: Any) -> Any:
        y = op.relu(x)
        return op.scale(op.reshape(op.part(op.part(y, 0, (1, 2)), 1, (1, 2)), ()), y)

    x = np.random.default_rng(0).standard_normal((size, size))
    for function in (turned, scaled):
        with Device(device):
            expected = function(x)
            assert np.array_equal(trace(function, x).compile()(x), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_one_value_in_two_places_of_an_update(device: str) -> None:
    def both(z: Any, x: Any) -> Any:
        y = op.relu(x)
        return op.sgd(op.relu(z), y, y, rate=0.5, momentum=0.25)

    def only_velocity(z: Any, x: Any) -> Any:
        y = op.relu(x)
        return op.sgd(y, op.relu(z), y, rate=0.5, momentum=0.25)[1]

    z, x = np.array([1.0, 2.0]), np.array([2.0, 4.0])
    for function in (both, only_velocity):
        with Device(device):
            expected = function(z, x)
            found = trace(function, z, x).compile()(z, x)
        assert np.array_equal(np.array(found), np.array(expected))
