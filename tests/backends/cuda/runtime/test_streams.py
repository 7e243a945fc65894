"""Steps of a captured program run on several streams, with the same bits as one by one."""

import gc
from dataclasses import replace

import numpy as np
import pytest
from devices import needs_gpu
from recipes import sgd

import pareo
from pareo import Device, Spec, nn, op, trace
from pareo.backends.cuda.runtime import streams
from pareo.program import plan
from pareo.program.compiler import prepared
from pareo.training.step import Step

pytestmark = [pytest.mark.gpu, needs_gpu]
SIDE = 384  # so that kernels take long enough to overlap


def tangled(seed):
    """A program of many products and sums that depend on each other and reuse memory."""

    def program(*inputs):
        rng = np.random.default_rng(seed)
        values = list(inputs)
        for _ in range(60):
            one, other = (values[i] for i in rng.integers(max(0, len(values) - 9), len(values), 2))
            made = [
                lambda a, b: op.scale(1 / SIDE, op.dot(a, b)),
                op.add,
                lambda a, b: op.tanh(op.sub(a, op.transpose(b, (1, 0)))),
                lambda a, b: op.add(op.sigmoid(a), op.sum(b, axis=0, keepdims=True)),
            ][rng.integers(4)]
            values.append(op.tanh(made(one, other)))
        return tuple(values[-4:])

    return trace(program, *[Spec((SIDE, SIDE))] * 3)


@pytest.mark.parametrize("seed", range(6))
def test_streams_give_the_same_bits(seed):
    rng = np.random.default_rng(seed)
    with Device("cuda"):
        run = tangled(seed).compile()
        there = pareo.to_device([rng.standard_normal((SIDE, SIDE), np.float32) for _ in range(3)])
        plain = [result.copy() for result in run(*there)]  # launch by launch
        for _ in range(20):
            for result, wanted in zip(run(*there), plain, strict=True):
                assert (result == wanted).all()
                result.fill(np.nan)  # so that the next run cannot pass by leftovers
        assert run._runner.captured is not None


def test_where_memory_is_short_it_is_reused_sooner():
    import cupy

    program, pool = tangled(3), cupy.cuda.MemoryPool()  # other tests left parts of blocks in use
    with Device("cuda") as device, cupy.cuda.using_allocator(pool.malloc):
        there = [cupy.ones((SIDE, SIDE), np.float32) for _ in range(3)]
        backend = device.backend
        tight = plan(prepared(program, backend), backend, tight=True).bytes
        roomy = program.compile()
        assert roomy.nbytes > 1.2 * tight
        wanted = [result.copy() for result in roomy(*there)]
        more = roomy.nbytes
        del roomy
        gc.collect()
        pool.free_all_blocks()
        pool.set_limit(pool.used_bytes() + (tight + more) // 2)
        try:
            run = program.compile()
        finally:
            pool.set_limit(0)
        assert run.nbytes == tight
        for _ in range(4):
            for result, one in zip(run(*there), wanted, strict=True):
                assert (result == one).all()


def test_after_a_failed_step_the_next_capture_works(monkeypatch):
    import cupy

    with Device("cuda"):
        run = tangled(1).compile()
        there = [cupy.ones((SIDE, SIDE), np.float32) for _ in range(3)]
        wanted = [result.copy() for result in run(*there)]
        steps, at = run._calls, len(run._calls) // 2

        def fail(values):
            raise MemoryError("no room for this step")

        run._calls = [*steps[:at], replace(steps[at], run=fail), *steps[at + 1 :]]
        with pytest.raises(MemoryError, match="no room for this step"):
            run(*there)  # the second call, which captures
        run._calls = steps
        for _ in range(4):
            for result, one in zip(run(*there), wanted, strict=True):
                assert (result == one).all()
        assert run._runner.captured is not None


def test_several_streams_are_used(monkeypatch):
    """The tests above would pass with one stream."""
    import cupy

    used = set()
    stream = streams._stream

    def noted(line, priority):
        used.add(line)
        return stream(line, priority)

    monkeypatch.setattr(streams, "_stream", noted)
    with Device("cuda"):
        run = tangled(0).compile()
        there = [cupy.ones((SIDE, SIDE), np.float32) for _ in range(3)]
        for _ in range(3):
            run(*there)
    assert len(used) > 2


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_training_on_several_streams_gives_the_same_losses(precision, monkeypatch):
    """A network with parallel branches, captured on several streams and on one."""
    branch = [nn.Conv(16, 1), nn.ReLU(), nn.Conv(32, 3, 1, 1), nn.ReLU()]
    pooled = [nn.MaxPool(3, 1, 1), nn.Conv(16, 1), nn.ReLU()]
    module = nn.Branches([nn.Conv(32, 1), nn.ReLU()], branch, pooled)
    layers = [nn.Conv(32, 3, 1, 1), nn.ReLU(), module, module, nn.Flatten(), nn.Dense(10)]
    network = nn.Sequential(layers, (3, 16, 16))
    rng = np.random.default_rng(0)
    images = rng.standard_normal((32, 3, 16, 16), np.float32)
    labels = rng.integers(0, 10, 32)
    device = Device("cuda", precision=precision)
    runs = []
    for several in (True, False):
        if not several:
            monkeypatch.setattr(streams, "capturing", lambda: False)
        step = Step(network, 32, device, sgd(0.9))
        with device:
            parameters = pareo.to_device(network.initialise(1))
            slots = pareo.to_device(
                {f"velocity.{k}": np.zeros_like(v) for k, v in parameters.items()}
            )
            there = pareo.to_device((images, labels))
            losses = [
                float(step.executable(parameters, slots, *there, (np.float32(0.01),), ())[0])
                for _ in range(8)
            ]
        runs.append(losses)
    # cuDNN may choose plans whose order of summation is not fixed.
    np.testing.assert_allclose(*runs, rtol=2e-2 if precision == "bfloat16" else 2e-3)
    assert runs[0][-1] < runs[0][0]
