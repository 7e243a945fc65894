"""Average pooling of many planes at once, against PyTorch in float64."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from pareo import Device, op
from pareo.backends.compiled.kernels import average_pool_lanes, pooling
from pareo.backends.compiled.runtime.lanes import LANES
from pareo.spec import Spec

torch = pytest.importorskip("torch")
F = torch.nn.functional

# Sums of up to 49 numbers, in any order, and a quotient.
NEAR: dict[str, float] = {"rtol": 1e-5, "atol": 1e-6}


def pooled(x: Any, **how: Any) -> tuple[Any, Any, Any]:
    """The averages, errors to go with them, and the gradient that PyTorch computes."""
    images = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    size, stride, padding, ceil = how["size"], how["stride"], how["padding"], how["ceil"]
    y = F.avg_pool2d(images, size, stride, padding, ceil_mode=ceil, count_include_pad=False)
    g = np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)
    y.backward(torch.tensor(g, dtype=torch.float64))
    return y.detach().numpy(), g, images.grad.numpy()


@settings(max_examples=40)
@given(
    images=some.integers(1, 4),
    channels=some.integers(1, 40),
    image=some.tuples(some.integers(1, 24), some.integers(1, 40)),
    size=some.tuples(some.integers(1, 7), some.integers(1, 7)),
    stride=some.tuples(some.integers(1, 4), some.integers(1, 4)),
    padding=some.tuples(some.integers(0, 3), some.integers(0, 3)),
    ceil=some.booleans(),
    threads=some.integers(1, 3),
)
@example(3, 33, (16, 17), (3, 3), (1, 1), (1, 1), False, 2)
@example(2, 20, (9, 10), (5, 2), (2, 3), (2, 1), True, 2)
@example(1, 40, (4, 4), (3, 3), (1, 1), (1, 1), False, 1)
@example(2, 20, (9, 11), (2, 2), (2, 2), (0, 0), False, 2)
@example(1, 3, (8, 11), (2, 2), (2, 2), (0, 0), False, 1)
def test_any_window_agrees_with_pytorch(
    images: int, channels: int, image: Any, size: Any, stride: Any, padding: Any, ceil: bool,
    threads: int,
) -> None:  # fmt: skip
    if any(2 * p > k for p, k in zip(padding, size, strict=True)):  # PyTorch refuses them
        return
    if any(n + 2 * p < k for n, p, k in zip(image, padding, size, strict=True)):
        return
    x = np.random.default_rng(0).standard_normal((images, channels, *image)).astype(np.float32)
    how: dict[str, Any] = {"size": size, "stride": stride, "padding": padding, "ceil": ceil}
    y, g, gx = pooled(x, **how)
    with Device("compiled", threads=threads):
        np.testing.assert_allclose(op.average_pool(x, **how), y, **NEAR)
        np.testing.assert_allclose(op.average_pool_gradient(g, image, **how), gx, **NEAR)


def test_which_planes_are_averaged_together(monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {"size": (3, 3), "stride": (1, 1), "padding": (1, 1, 1, 1)}

    def in_lanes(shape: Any, dtype: str = "float32", **other: Any) -> bool:
        x, all_ = Spec(shape, dtype), how | other
        sizes = [
            (n + 2 * p - k) // s + 1
            for n, p, k, s in zip(
                shape[2:], all_["padding"][:2], all_["size"], all_["stride"], strict=True
            )
        ]
        return pooling._averages_in_lanes(x, x.like((*shape[:2], *sizes)), all_)

    assert in_lanes((2, LANES, 9, 9))
    assert not in_lanes((1, LANES // 2, 9, 9))
    assert not in_lanes((2, LANES, 9, 9), "float64")
    assert not in_lanes((2, LANES, 1, LANES - 1))
    assert not in_lanes((2, LANES, 8, 8), size=(2, 2), stride=(2, 2), padding=(0, 0, 0, 0))
    monkeypatch.setattr(average_pool_lanes, "MOST", LANES * 11 * 11 - 1)
    assert not in_lanes((2, LANES, 9, 9))


def test_what_is_not_finite_reaches_its_windows_alone() -> None:
    x = np.ones((1, 2 * LANES, 9, 9), np.float32)
    x[0, 3, 4, 5], x[0, 4, 0, 0] = np.nan, np.inf
    how: dict[str, Any] = {"size": (3, 3), "stride": (2, 2), "padding": (1, 1), "ceil": False}
    y, _, _ = pooled(x, **how)
    with Device("compiled"):
        found = op.average_pool(x, **how)
        spread = op.average_pool_gradient(found, (9, 9), **how)
    assert np.array_equal(np.isfinite(found), np.isfinite(y))
    assert not np.isfinite(spread[0, 3, 4, 5])
    assert np.isfinite(spread[0, [0, 1, 2, *range(5, 2 * LANES)]]).all()
