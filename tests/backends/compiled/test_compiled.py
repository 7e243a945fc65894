"""What only the compiled device has: several ways to convolve, and machine code on disk."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pareo import Device, op
from pareo.backends import blas
from pareo.backends.compiled.kernels import skinny_matmul


def layer(draw: Any) -> Any:
    """Shapes on both sides of every border between the three ways to convolve."""
    filters = draw(st.sampled_from([1, 2, 3, 4, 6, 7, 30, 33]))
    channels = draw(st.sampled_from([1, 2, 3, 9]))
    kh, kw = draw(st.integers(1, 7)), draw(st.integers(1, 8))
    stride = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 3)]))
    padding = draw(st.tuples(*[st.integers(0, 2)] * 4))
    rows, columns = kh + draw(st.integers(0, 9)), kw + draw(st.integers(0, 9))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    x = random.standard_normal((draw(st.integers(0, 5)), channels, rows, columns))
    w = random.standard_normal((filters, channels, kh, kw))
    return x, w, {"stride": stride, "padding": padding}


@given(st.data(), st.sampled_from([1, 2, 3]))
@settings(max_examples=60)
def test_every_way_to_convolve_agrees_with_numpy(data: Any, threads: int) -> None:
    x, w, how = layer(data.draw)
    with Device("vectorized"):
        y = op.conv(x, w, **how)
        gx = op.conv_input_gradient(y, w, size=x.shape[2:], **how)
        gw = op.conv_weight_gradient(x, y, size=w.shape[2:], **how)
    with Device("compiled", threads=threads):
        # float64 on both sides: what is left is the order of sums.
        np.testing.assert_allclose(op.conv(x, w, **how), y, rtol=1e-9, atol=1e-9)
        found = op.conv_input_gradient(y, w, size=x.shape[2:], **how)
        np.testing.assert_allclose(found, gx, rtol=1e-9, atol=1e-7)
        found = op.conv_weight_gradient(x, y, size=w.shape[2:], **how)
        np.testing.assert_allclose(found, gw, rtol=1e-9, atol=1e-7)


PROGRAM = """
import numpy as np
from pareo import Device, op
from pareo.backends import blas
from pareo.backends.compiled.kernels import skinny_matmul
with Device("compiled"):
    print(op.sigmoid(np.zeros(2, np.float32)))
"""


def run_with_cache(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PAREO_CACHE_DIR": str(folder), "PAREO_VERBOSE": "1"}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )


def test_machine_code_is_compiled_once_and_kept(tmp_path: Path) -> None:
    first = run_with_cache(tmp_path)
    assert "pareo: compiling elementwise_loops.sigmoid ..." in first.stderr
    assert re.search(r"sigmoid \.\.\. \d+\.\d s\n", first.stderr)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")}
    assert kept
    second = run_with_cache(tmp_path)
    assert second.stdout == first.stdout
    assert second.stderr == ""
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")} == kept


GENERATED = """
import numpy as np
from pareo import Device
from pareo.nn import Conv, Dense, Flatten, MaxPool, Sequential
from pareo.training.step import Step
network = Sequential([Conv(2, 3), MaxPool(2), Flatten(), Dense(3)], (1, 6, 6))
step = Step(network, 16, Device("compiled"))
assert step.loops
order = np.zeros((1, 16), np.int64)
step.run(network.initialise(0), {}, np.ones((16, 1, 6, 6), np.float32), order[0], order, rate=0.1)
"""


def test_a_generated_loop_is_announced_too(tmp_path: Path) -> None:
    environment = {**os.environ, "PAREO_CACHE_DIR": str(tmp_path), "PAREO_VERBOSE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", GENERATED],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(r"pareo: compiling generated\.\w+ \.\.\. \d+\.\d s\n", done.stderr)


def test_a_pipe_sees_only_results(tmp_path: Path) -> None:
    environment = {**os.environ, "PAREO_CACHE_DIR": str(tmp_path)}
    environment.pop("PAREO_VERBOSE", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("a", "b"),
    [((300, 200), (200, 500)), ((500, 200), (200, 30)), ((5, 90, 80), (5, 80, 70)),
     ((90, 80), (6, 80, 70)), ((6, 90, 80), (1, 80, 70)), ((0, 4), (4, 3)), ((3, 0), (0, 4))],
)  # fmt: skip
def test_products_are_split_over_our_threads_and_blas_keeps_to_one(
    a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    random = np.random.default_rng(0)
    left, right = random.standard_normal(a), random.standard_normal(b)
    with Device("compiled", threads=3):
        found = op.dot(left, right)
    # Another order of the sums.
    np.testing.assert_allclose(found, left @ right, rtol=1e-12, atol=1e-12)
    if found.size:
        assert blas.describe()["threads"] == 1


@pytest.mark.parametrize("rows", [8, 16, 24, 32])
@pytest.mark.parametrize(("depth", "columns"), [(1028, 1022), (2052, 514), (4, 262144)])
def test_few_rows_by_a_large_transpose(rows: int, depth: int, columns: int) -> None:
    random = np.random.default_rng(rows)
    a = random.standard_normal((rows, depth), np.float32)
    w = random.standard_normal((columns, depth), np.float32)
    assert skinny_matmul.suits(a, w)
    with Device("compiled", threads=2):
        found = op.dot(a, w.T)
    exact = a.astype(np.float64) @ w.T.astype(np.float64)
    # Sums of thousands of float32 products of order one.
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-3)
    assert np.linalg.norm(found - exact) < 1e-6 * np.linalg.norm(exact)
