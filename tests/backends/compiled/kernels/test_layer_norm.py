"""Layer normalisation of rows of any length and of channels, beside float64."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from pareo import Device, op
from pareo.backends.compiled.kernels.layer_norm_pieces import LONGEST

EPSILON = 1e-5


def results(x: Any, g: Any, scale: Any, shift: Any, axis: int = -1) -> list[Any]:
    """What is normalised along an axis, and the gradients of x, scale and shift."""
    y = op.layer_norm(x, scale, shift, axis=axis, epsilon=EPSILON)
    return [y, *op.layer_norm_gradient(g, x, scale, axis=axis, epsilon=EPSILON)]


@settings(max_examples=40)
@given(
    rows=some.integers(1, 40),
    columns=some.integers(2, 200),
    mean=some.sampled_from([0.0, 300.0]),
    threads=some.integers(1, 2),
    seed=some.integers(0, 2**32 - 1),
)
@example(600, 37, 300.0, 2, 0)
@example(2, LONGEST + 3, 300.0, 1, 0)
def test_rows_of_any_length(rows: int, columns: int, mean: float, threads: int, seed: int) -> None:
    compare((rows, columns), mean, threads, seed)


@settings(max_examples=40)
@given(
    images=some.integers(1, 6),
    channels=some.integers(2, 40),
    size=some.tuples(some.integers(1, 30), some.integers(1, 30)),
    mean=some.sampled_from([0.0, 300.0]),
    threads=some.integers(1, 2),
    seed=some.integers(0, 2**32 - 1),
)
@example(2, 3, (1, 1100), 300.0, 2, 0)
@example(1, LONGEST + 3, (1, 5), 0.0, 1, 0)
def test_channels_of_images_of_any_size(
    images: int, channels: int, size: tuple[int, int], mean: float, threads: int, seed: int
) -> None:
    compare((images, channels, *size), mean, threads, seed)


def compare(shape: tuple[int, ...], mean: float, threads: int, seed: int) -> None:
    """All results along the second axis in float32, beside float64."""
    random = np.random.default_rng(seed)
    x, g = random.standard_normal((2, *shape))
    x += mean
    scale, shift = random.uniform(0.5, 2, (2, shape[1]))
    single = [a.astype(np.float32) for a in (x, g, scale, shift)]
    with Device("vectorized"):
        wanted = [np.array(a) for a in results(*(a.astype(np.float64) for a in single), 1)]
    with Device("compiled", threads=threads):
        found = results(*single, 1)
    spread = np.asarray(single[0], np.float64).std(axis=1).min()
    for one, other in zip(found, wanted, strict=True):
        off = np.linalg.norm(np.asarray(one) - other)
        # Two channels may be close to each other: x itself is rounded by 3e-5 at 300.
        assert off <= 1e-5 / min(1, spread) * (np.linalg.norm(other) + np.sqrt(other.size))


@pytest.mark.parametrize("where", [0, 17])
def test_a_nan_stays_in_its_row(where: int) -> None:
    x = np.random.default_rng(1).standard_normal((6, 18)).astype(np.float32)
    x[3, where] = np.nan
    with Device("compiled"):
        y = np.asarray(op.layer_norm(x, *np.ones((2, 18), np.float32)))
    assert np.isnan(y[3]).all()
    assert np.isfinite(np.delete(y, 3, axis=0)).all()
