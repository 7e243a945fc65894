"""BLAS threads follow the device."""

import numpy as np
import pytest

from pareo import Device, op
from pareo.backends import blas

pytestmark = pytest.mark.smoke


def test_matrix_products_use_the_threads_of_the_device() -> None:
    a = np.ones((64, 64))
    for threads in (1, 2, 1):
        with Device("vectorized", threads=threads):
            op.dot(a, a)
        assert blas.describe()["threads"] == threads
