"""Products that add to a matrix, against NumPy, in every layout."""

import os
import signal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pareo import moving
from pareo.backends import blas
from pareo.backends.compiled.runtime import generated_module


def laid_out(draw: Any, matrix: Any) -> Any:
    """The same matrix in C order, turned, or with gaps."""
    how = draw(st.sampled_from(["plain", "turned", "gaps", "backwards"]))
    if how == "turned":
        return np.ascontiguousarray(matrix.T).T
    if how == "gaps":
        return np.repeat(matrix, 2, axis=1)[:, ::2]
    return np.ascontiguousarray(matrix[::-1])[::-1] if how == "backwards" else matrix


@given(st.data(), st.sampled_from([np.float32, np.float64]), st.booleans())
def test_add_product(data: Any, dtype: Any, keep: bool) -> None:
    rows, depth, columns = (data.draw(st.integers(0 if i == 1 else 1, 6)) for i in range(3))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    a, b, out = (
        random.standard_normal(shape).astype(dtype)
        for shape in ((rows, depth), (depth, columns), (rows, columns))
    )
    expected = (out if keep else 0) - 2.0 * (a.astype(float) @ b.astype(float))
    blas.add_product(out, laid_out(data.draw, a), laid_out(data.draw, b), -2.0, keep)
    # float32 keeps seven digits of sums of at most six terms of order one.
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_without_the_library_numpy_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_products", {})
    out = np.ones((2, 2))
    blas.add_product(out, np.eye(2), np.full((2, 2), 3.0), 10.0)
    assert out.tolist() == [[31, 31], [31, 31]]
    blas.add_product(out, np.eye(2), np.full((2, 2), 3.0), 10.0, keep=False)
    assert out.tolist() == [[30, 30], [30, 30]]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_lock_that_another_thread_has_does_not_block_a_forked_child() -> None:
    with blas._lock, generated_module._lock, moving._lock:
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)  # ends a deadlock
            with blas._lock, generated_module._lock, moving._lock:
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
