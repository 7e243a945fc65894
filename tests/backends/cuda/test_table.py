"""What can be tested of the cuda device without a GPU."""

import numpy as np
import pytest

from pareo import Device, Spec, op
from pareo.backends import cuda
from pareo.backends.cuda import training
from pareo.backends.cuda.kernels import strides
from pareo.backends.cuda.runtime import launch
from pareo.device import why_unavailable
from pareo.errors import DeviceError, DtypeError, ShapeError

pytestmark = pytest.mark.smoke


def test_every_operator_has_a_kernel():
    from importlib import import_module

    for family in cuda.FAMILIES:
        import_module(f"pareo.backends.cuda.kernels.{family}")
    from pareo.backends.cuda.table import backend

    assert set(backend.kernels) >= set(op.registry)


def test_a_machine_without_cuda_says_why_in_one_sentence():
    reason = cuda.reason()
    if reason is None:
        pytest.skip("this machine has a GPU")
    assert why_unavailable("cuda") == f"the device 'cuda' is not available: {reason}"
    assert "\n" not in reason


def test_precision_is_checked_where_it_is_named():
    with pytest.raises(DeviceError, match="'compiled' computes in float32; tf32 is for 'cuda'"):
        Device("compiled", precision="tf32")
    with pytest.raises(DeviceError, match="expects a precision of float32, tf32, bfloat16; got"):
        Device("cuda", precision="half")
    assert Device("cuda", precision="tf32").precision == "tf32"


@pytest.mark.parametrize(
    ("sizes", "steps", "expected"),
    [
        ((2, 3, 4), [(12, 4, 1)], ([24], [[1]])),
        ((2, 3, 4), [(12, 1, 3)], ([2, 3, 4], [[12, 1, 3]])),
        ((2, 1, 4), [(4, 9, 1), (0, 9, 1)], ([2, 4], [[4, 1], [0, 1]])),
        ((), [()], ([1], [[0]])),
        ((1, 1), [(5, 5)], ([1], [[0]])),
    ],
)
def test_axes_are_collapsed_where_all_arrays_allow_it(sizes, steps, expected):
    assert strides.collapsed(sizes, steps) == expected


def test_steps_of_a_broadcast_array_are_zero():
    array = np.zeros((3, 1), np.float32)
    assert strides.element_strides(array, (2, 3, 4)) == [0, 1, 0]


@pytest.mark.parametrize(
    ("images", "labels", "error", "sentence"),
    [
        (np.zeros((4, 3)), np.zeros(4, "i8"), DtypeError, "got float64 and int64"),
        (np.zeros((4, 3), "f4"), np.zeros(4, "u1"), DtypeError, "got float32 and uint8"),
        (np.zeros((4, 5), "f4"), np.zeros(4, "i8"), ShapeError, r"got \(4, 5\) and \(4,\)"),
        (np.zeros((4, 3), "f4"), np.zeros(3, "i8"), ShapeError, r"got \(4, 3\) and \(3,\)"),
        (np.zeros((3, 4), "f4").T, np.zeros(4, "i8"), ShapeError, "C-contiguous"),
        (np.zeros((2, 3), "f4"), np.zeros(2, "i8"), ShapeError, "from 0 to 1; got 0 to 3"),
    ],
)
def test_data_is_checked_before_a_kernel_reads_it(images, labels, error, sentence):
    order = np.arange(4).reshape(2, 2)
    training.check_data(
        Spec((2, 3)), Spec((2,), "int64"), np.zeros((4, 3), "f4"), np.zeros(4, "i8"), order
    )
    with pytest.raises(error, match=sentence):
        training.check_data(Spec((2, 3)), Spec((2,), "int64"), images, labels, order)


def test_a_struct_is_one_element_by_value():
    struct = launch.struct(1, (2, 3), [4])
    assert struct.size == 1
    assert struct.tobytes() == np.arange(1, 5, dtype=np.int64).tobytes()
