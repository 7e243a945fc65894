"""Arrays on the GPU: explicit, counted transfers, and OutOfMemory errors."""

import numpy as np
import pytest
from devices import needs_gpu

import pareo
from pareo import Device, OutOfMemory, Spec, op, trace
from pareo.errors import DeviceError

pytestmark = [pytest.mark.gpu, needs_gpu]
ONES = np.ones((4, 3), np.float32)


def test_transfers_in_both_directions_are_counted():
    with Device("cuda"), pareo.transfers() as moved:
        there = pareo.to_device({"a": ONES, "b": (ONES[0], ONES[1])})
        assert pareo.to_device(there["a"]) is there["a"]
        back = pareo.to_host(there)
    assert moved.to_device.bytes == moved.to_host.bytes == ONES.nbytes + 24
    assert moved.to_device.calls == moved.to_host.calls == 3
    np.testing.assert_array_equal(back["a"], ONES)
    assert isinstance(back["b"], tuple)


def test_operators_move_nothing():
    with Device("cuda"):
        a = pareo.to_device(ONES)
        with pareo.transfers() as moved:
            op.sum(op.scale(2.0, op.add(a, 1)))
    assert moved.to_device.calls == moved.to_host.calls == 0


def test_arrays_of_the_host_are_refused():
    with Device("cuda"):
        with pytest.raises(DeviceError, match="add on 'cuda' expects CuPy arrays; got one of"):
            op.add(ONES, ONES)
        run = trace(op.relu, Spec((4, 3))).compile()
        with pytest.raises(DeviceError, match="argument 0 on 'cuda' expects CuPy arrays"):
            run(ONES)
        there = pareo.to_device(ONES)
    with (
        pytest.raises(DeviceError, match="expects NumPy arrays; got one of cupy"),
        Device("compiled"),
    ):
        op.add(there, there)


def test_a_gpu_that_does_not_exist():
    with pytest.raises(DeviceError, match="'cuda:99' is not available: this machine has"):  # noqa: SIM117
        with Device("cuda:99"):
            pass


def test_zeros_keep_their_signs():
    with Device("cuda"):
        found = [pareo.to_host(op.add(pareo.to_device(-0 * ONES), zero)) for zero in (-0.0, 0.0)]
    assert not np.signbit(found[1]).any()


def test_out_of_memory_is_reported_and_survived():
    program = trace(lambda x: op.exp(op.dot(x, x)), Spec((600_000, 600_000)))
    with Device("cuda"):
        with pytest.raises(OutOfMemory) as caught:
            program.compile()
        error = caught.value
        assert error.asked == 4 * 600_000**2
        assert 0 < error.free < error.asked
        assert error.predicted == program.memory()
        assert f"{error.asked:,} B were needed" in str(error)
        with pytest.raises(OutOfMemory):
            op.broadcast(pareo.to_device(ONES[:1, :1]), (600_000, 600_000))
        assert pareo.to_host(op.sum(pareo.to_device(ONES))) == 12


def test_labels_that_name_no_class_make_the_loss_nan():
    """Nothing is accessed out of bounds, and the host need not wait to check the labels."""
    with Device("cuda"):
        logits, labels = pareo.to_device((np.zeros((3, 4), np.float32), np.array([0, 9, -1])))
        assert np.isnan(pareo.to_host(op.cross_entropy(logits, labels)))
        one = pareo.to_device(np.ones((), np.float32))
        back = pareo.to_host(op.cross_entropy_gradient(one, logits, labels))
    assert np.isnan(back).all(axis=1).tolist() == [False, True, True]
