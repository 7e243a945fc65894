"""The newer operators where an array takes several blocks, and where numbers are extreme."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from devices import DEVICES, home, placed

from pareo import Device, op

FAST = DEVICES[1:]  # `sequential` is too slow for these sizes
on_fast = pytest.mark.parametrize("device", FAST)
NAN, INF = np.nan, np.inf


def run(device: str, operator: Any, *operands: Any, **more: Any) -> Any:
    with Device(device):
        found = operator(*[placed(device, a) for a in operands], **more)
    if isinstance(found, tuple):
        return tuple(home(device, one) for one in found)
    return home(device, found)


def close(found: Any, expected: Any, tolerance: float) -> None:
    expected = np.asarray(expected)
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


@on_fast
@pytest.mark.parametrize("shape", [(300, 7, 15, 15), (5000, 9), (2, 3, 400, 401)])
def test_batch_norm_of_a_large_mean(device: str, shape: tuple[int, ...]) -> None:
    """Mean 10,000 and deviation 1 in float32: the variance is right to a thousandth of a percent.

    The sum of squares minus the square of the sum would have no correct digit.
    """
    random = np.random.default_rng(0)
    x = (1e4 + random.standard_normal(shape)).astype("float32")
    scale, shift = np.ones((2, shape[1]), "float32")
    y, mean, variance = run(device, op.batch_norm, x, scale, shift)
    wide = x.astype("float64")
    axes = (0, *range(2, x.ndim))
    centre = wide.mean(axes, keepdims=True)
    spread = wide.var(axes, keepdims=True)
    np.testing.assert_allclose(mean, centre.reshape(-1), rtol=1e-6)
    np.testing.assert_allclose(variance, spread.reshape(-1), rtol=1e-5)
    # A device may subtract the mean in float32, whose rounding is up to 5e-4 here.
    close(y, (wide - centre) / np.sqrt(spread + 1e-5) + 1, 1e-3)


@on_fast
@pytest.mark.parametrize(("shape", "axis"), [((900, 700), -1), ((3, 300, 20, 21), 1)])
def test_layer_norm_of_many_lines(device: str, shape: tuple[int, ...], axis: int) -> None:
    random = np.random.default_rng(1)
    x, g = (random.standard_normal(shape) for _ in range(2))
    scale, shift = random.standard_normal((2, shape[axis]))
    found = run(device, op.layer_norm, x, scale, shift, axis=axis)
    moved = torch.tensor(np.moveaxis(x, axis, -1)).requires_grad_()
    weights = [torch.tensor(a).requires_grad_() for a in (scale, shift)]
    expected = torch.layer_norm(moved, (shape[axis],), *weights)
    close(found, np.moveaxis(expected.detach().numpy(), -1, axis), 1e-12)
    expected.backward(torch.tensor(np.moveaxis(g, axis, -1)))
    by_x, by_scale, by_shift = run(device, op.layer_norm_gradient, g, x, scale, axis=axis)
    close(by_x, np.moveaxis(moved.grad.numpy(), -1, axis), 1e-12)
    close(by_scale, weights[0].grad, 1e-12)
    close(by_shift, weights[1].grad, 1e-12)


@on_fast
@pytest.mark.parametrize("shape", [(2, 3, 70, 90, 8), (1, 1, 700, 600, 4)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_over_many_keys(device: str, shape: tuple[int, ...], causal: bool) -> None:
    batch, heads, queries, keys, inner = shape
    random = np.random.default_rng(2)
    q = random.standard_normal((batch, heads, queries, inner))
    k, v = random.standard_normal((2, batch, heads, keys, inner))
    g = random.standard_normal(q.shape)
    mask = random.standard_normal((batch, 1, queries, keys))
    given = [torch.tensor(a).requires_grad_() for a in (q, k, v)]
    scores = given[0] @ given[1].transpose(-1, -2) / math.sqrt(inner) + torch.tensor(mask)
    if causal:
        scores = scores.masked_fill(torch.ones(queries, keys).triu(1) > 0, -INF)
    expected = torch.softmax(scores, -1) @ given[2]
    expected.backward(torch.tensor(g))
    y, sums = run(device, op.attention_with_sums, q, k, v, mask, causal=causal)
    close(y, expected.detach(), 1e-12)
    close(sums, torch.logsumexp(scores, -1).detach(), 1e-12)
    parts = run(device, op.attention_gradient, g, q, k, v, y, sums, mask, causal=causal)
    for part, tensor in zip(parts, given, strict=True):
        close(part, tensor.grad, 1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_a_query_whose_keys_are_all_forbidden_gives_zero(device: str) -> None:
    q = k = v = np.ones((2, 3))
    mask = np.array([[-INF, -INF], [0, -INF]])
    y, sums = run(device, op.attention_with_sums, q, k, v, mask)
    np.testing.assert_allclose(y, [[0, 0, 0], [1, 1, 1]])
    assert sums[0] == -INF
    parts = run(device, op.attention_gradient, v, q, k, v, y, sums, mask)
    assert all(np.isfinite(part).all() for part in parts)
    assert not parts[0][0].any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_normal_distribution_far_out(device: str, dtype: str) -> None:
    """gelu of negative numbers keeps its relative accuracy: exp(-a * a / 2) loses a few digits."""
    a = np.linspace(-12, 6, 2001).astype(dtype)
    expected = [float(x) * 0.5 * math.erfc(-float(x) * math.sqrt(0.5)) for x in a]
    found = run(device, op.gelu, a)
    np.testing.assert_allclose(found, expected, rtol=200 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["clip", "gelu", "silu", "hard_sigmoid", "leaky_relu"])
def test_activations_keep_a_nan_and_their_limits(name: str, device: str) -> None:
    how = {"low": 0, "high": 6} if name == "clip" else {}
    found = run(device, op.registry[name], np.array([NAN, 1e4, -1e4, INF]), **how)
    ends = {"clip": [6, 0, 6], "hard_sigmoid": [1, 0, 1], "leaky_relu": [1e4, -100, INF]}
    np.testing.assert_allclose(found, [NAN, *ends.get(name, [1e4, 0, INF])])


@pytest.mark.parametrize("device", DEVICES)
def test_norm_does_not_overflow(device: str) -> None:
    a = np.full(100, 1e30, "float32")
    np.testing.assert_allclose(run(device, lambda a: op.norm([a]), a), 1e31, rtol=1e-6)


@on_fast
def test_blocks_of_activations_and_updates(device: str) -> None:
    random = np.random.default_rng(3)
    a, g, v = random.standard_normal((3, 150_001))
    tensor = torch.tensor(a).requires_grad_()
    expected = torch.nn.functional.gelu(tensor)
    expected.backward(torch.tensor(g))
    close(run(device, op.gelu, a), expected.detach(), 1e-14)
    close(run(device, op.gelu_gradient, g, a), tensor.grad, 1e-14)
    new, first, second = run(device, op.adam, a, g, v, v * v, rate=0.1)
    close(first, 0.9 * v + 0.1 * g, 1e-13)
    close(second, 0.999 * v * v + 0.001 * g * g, 1e-13)
    close(new, a - 0.1 * first / (np.sqrt(second) + 1e-8), 1e-11)
