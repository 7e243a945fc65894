"""A program that runs again on the same arrays is replayed as one graph, with the same bits."""

import numpy as np
import pytest
from devices import needs_gpu
from networks_for_tests import papers_cnn

import pareo
from pareo import Device, Spec, op, trace
from pareo.program import differentiate

pytestmark = [pytest.mark.gpu, needs_gpu]


def test_replays_equal_plain_runs():
    loss, arguments = papers_cnn(batch=37)
    program = differentiate(trace(loss, *arguments), wrt=range(2, 8))
    with Device("cuda"):
        there = pareo.to_device(arguments)
        run = program.compile()
        runs = [pareo.to_host(run(*there)) for _ in range(5)]
        assert run._runner.captured is not None
        again = pareo.to_host(run(*[a.copy() for a in there]))  # other arrays: launch by launch
    for other in (*runs[1:], again):
        for a, b in zip(runs[0], other, strict=True):
            assert a.tobytes() == b.tobytes()


def test_a_replay_reads_what_the_arrays_hold_now():
    with Device("cuda"):
        run = trace(lambda x, y: op.dot(op.exp(x), y), Spec((8, 8)), Spec((8, 8))).compile()
        x, y = pareo.to_device((np.zeros((8, 8), np.float32), np.eye(8, dtype=np.float32)))
        for value in range(6):
            x.fill(value)
            found = pareo.to_host(run(x, y))
            np.testing.assert_allclose(found, np.exp(value), rtol=1e-6)


def test_updates_are_made_in_place_and_replayed():
    program = trace(lambda p, g: op.sub(p, op.scale(0.5, g)), Spec((1000,)), Spec((1000,)))
    with Device("cuda"):
        run = program.compile(updates={0: 0})
        p, g = pareo.to_device((np.zeros(1000, np.float32), np.ones(1000, np.float32)))
        for _ in range(8):
            run(p, g)
        assert (pareo.to_host(p) == -4).all()


def test_temporaries_of_a_graph_are_its_own():
    """A product of an array that cuBLAS cannot read allocates memory for its copy."""
    with Device("cuda"):

        def product(x, y):
            return op.dot(op.transpose(x, (2, 0, 1)), y)

        run = trace(product, Spec((16, 16, 8)), Spec((8, 16, 4))).compile()
        x, y = pareo.to_device(
            (np.random.default_rng(0).random((16, 16, 8), np.float32), np.ones((8, 16, 4), "f4"))
        )
        first = pareo.to_host(run(x, y))
        for _ in range(4):
            found = run(x, y)
            noise = [op.scale(7.0, x) for _ in range(20)]
            np.testing.assert_array_equal(pareo.to_host(run(x, y)), first)
            del found, noise


def test_scalars_that_change_are_not_baked_in():
    with Device("cuda"):
        run = trace(lambda x, rate: op.scale(rate, x), Spec((4,)), Spec(())).compile()
        x = pareo.to_device(np.ones(4, np.float32))
        for rate in (1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 1.0):
            assert pareo.to_host(run(x, rate)).tolist() == [rate] * 4


def test_memory_is_released_with_the_executable():
    import cupy

    pool = cupy.cuda.MemoryPool()
    with Device("cuda"), cupy.cuda.using_allocator(pool.malloc):
        x = pareo.to_device(np.ones((1000, 1000), np.float32))
        before = pool.used_bytes()
        run = trace(lambda x: op.exp(op.dot(x, x)), Spec((1000, 1000))).compile()
        for _ in range(3):
            run(x)
        assert pool.used_bytes() >= before + run.nbytes
        del run
        assert pool.used_bytes() == before


def test_views_of_arguments_are_results_of_a_replay_too():
    """No kernel computes them, so they are not part of the graph."""
    with Device("cuda"):

        def both(x):
            return op.exp(x), op.reshape(x, (3, 2)), op.part(op.transpose(x), 0, (1, 3))

        run = trace(both, Spec((2, 3))).compile()
        x = pareo.to_device(np.arange(6, dtype=np.float32).reshape(2, 3))
        for _ in range(5):
            _, shaped, part = run(x)
            assert pareo.to_host(shaped).tolist() == [[0, 1], [2, 3], [4, 5]]
            assert pareo.to_host(part).tolist() == [[1, 4], [2, 5]]
        assert run._runner.captured is not None
