"""Max pooling and its gradient against plain loops: any window, NaN, infinities, many planes."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pareo import op
from pareo.backends.compiled.kernels import max_pool_lanes
from pareo.device import Device
from pareo.errors import ShapeError

pytestmark = pytest.mark.parametrize("device", ["vectorized", "compiled"])


def first_largest(window: np.ndarray) -> int:
    """The number of the first maximum, in reading order; NaN is larger than all."""
    nans = np.flatnonzero(np.isnan(window))
    return int(nans[0] if len(nans) else window.argmax())


def plain(x, g, size, stride, padding):
    """What is pooled, and the gradient, window by window."""
    pooled, gradient = np.empty_like(g), np.zeros_like(x)
    for i, j in product(range(g.shape[2]), range(g.shape[3])):
        top, left = i * stride[0] - padding[0], j * stride[1] - padding[1]
        rows = slice(max(0, top), min(x.shape[2], top + size[0]))
        columns = slice(max(0, left), min(x.shape[3], left + size[1]))
        for n, c in np.ndindex(*x.shape[:2]):
            window = x[n, c, rows, columns]
            at = first_largest(window.reshape(-1))
            pooled[n, c, i, j] = window.reshape(-1)[at]
            row, column = np.unravel_index(at, window.shape)
            gradient[n, c, rows.start + row, columns.start + column] += g[n, c, i, j]
    return pooled, gradient


sides = st.integers(1, 12)


@settings(deadline=None, max_examples=60)
@given(
    planes=st.tuples(st.integers(1, 3), st.integers(1, 37)),
    image=st.tuples(sides, sides),
    size=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    share=st.tuples(*[st.floats(0, 0.99)] * 4),
    ceil=st.booleans(),
    odd=st.sampled_from([0.0, 0.2, 0.7]),
    dtype=st.sampled_from(["float32", "float64"]),
    strip=st.sampled_from([1, 1 << 9, 1 << 16]),
    seed=st.integers(0, 99),
)
@example((3, 28), (2, 6), (4, 5), (1, 3), (0.8, 0, 0, 0), False, 0.2, "float32", 1 << 16, 0)
def test_it_is_what_plain_loops_compute(
    device, planes, image, size, stride, share, ceil, odd, dtype, strip, seed
):
    """Few different numbers, so that several are the largest; `strip` is of floats."""
    random = np.random.default_rng(seed)
    x = random.integers(-2, 3, (*planes, *image)).astype(dtype)
    x[random.random(x.shape) < odd] = -np.inf
    x[random.random(x.shape) < odd / 4] = np.nan
    padding = tuple(int(part * size[side % 2]) for side, part in enumerate(share))
    how = {"size": size, "stride": stride, "padding": padding, "ceil": ceil}
    usual, max_pool_lanes.STRIP = max_pool_lanes.STRIP, strip
    try:
        with Device(device, threads=2):
            pooled = op.max_pool(x, **how)
            g = random.integers(1, 9, pooled.shape).astype(dtype)
            found = op.max_pool_gradient(g, x, **how)
    except ShapeError:  # the window is larger than the image
        return
    finally:
        max_pool_lanes.STRIP = usual
    wanted, gradient = plain(x, g, size, stride, padding)
    np.testing.assert_array_equal(pooled, wanted)
    np.testing.assert_array_equal(found, gradient)


def test_large_images_are_pooled_strip_by_strip(device):
    random = np.random.default_rng(0)
    x = random.standard_normal((1, 17, 150, 131)).astype("float32")
    how = {"size": (3, 4), "stride": (2, 3), "padding": (1, 2, 1, 0)}
    with Device(device):
        pooled = op.max_pool(x, **how)
        g = random.integers(1, 9, pooled.shape).astype("float32")
        found = op.max_pool_gradient(g, x, **how)
    assert max_pool_lanes.strip_sizes(150, 131, pooled.shape[2], 3, 2)[0] < pooled.shape[2]
    wanted, gradient = plain(x, g, how["size"], how["stride"], how["padding"])
    np.testing.assert_array_equal(pooled, wanted)
    np.testing.assert_array_equal(found, gradient)
