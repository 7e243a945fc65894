"""Convolutions by filters of a single pixel, against float64 and PyTorch."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from pareo import Device, op, trace
from pareo.backends.compiled.conv import convolution, pointwise
from pareo.backends.compiled.runtime import registers
from pareo.spec import Spec

# By the norm, in float32: sums of up to thousands of products, in any order.
NEAR = 2e-6
PLAIN: dict[str, Any] = {"padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}


@pytest.fixture(autouse=True)
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """These loops are right, if not fast, on processors without AVX-512, too."""
    monkeypatch.setattr(registers, "HAS_AVX512", True)


def convolved(x: Any, w: Any, g: Any, stride: Any) -> tuple[Any, Any, Any]:
    """The convolution and its two gradients."""
    how = {"stride": stride, **PLAIN}
    return (
        op.conv(x, w, **how),
        op.conv_input_gradient(g, w, size=x.shape[2:], **how),
        op.conv_weight_gradient(x, g, size=(1, 1), **how),
    )


def distance(found: Any, expected: Any) -> float:
    return float(np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-30))


def drawn(
    seed: int, images: int, channels: int, filters: int, size: Any, stride: Any
) -> tuple[Any, Any, Any]:
    """Images, filters and errors."""
    random = np.random.default_rng(seed)
    results = [-(-size[i] // stride[i]) for i in (0, 1)]
    shapes = (images, channels, *size), (filters, channels, 1, 1), (images, filters, *results)
    x, w, g = (random.standard_normal(shape) for shape in shapes)
    return x, w, g


@settings(max_examples=40)
@given(
    images=some.integers(1, 9),
    channels=some.sampled_from([1, 3, 15, 16, 17, 33, 64, 127, 129, 300]),
    filters=some.sampled_from([1, 2, 13, 14, 15, 29, 48, 100, 257]),
    size=some.tuples(some.integers(1, 40), some.integers(1, 40)),
    stride=some.tuples(some.integers(1, 3), some.integers(1, 3)),
    threads=some.integers(1, 3),
    seed=some.integers(0, 2**32 - 1),
)
@example(images=9, channels=129, filters=29, size=(40, 39), stride=(1, 1), threads=3, seed=1)
@example(images=1, channels=300, filters=257, size=(7, 7), stride=(1, 1), threads=3, seed=2)
@example(images=2, channels=1, filters=1, size=(4, 4), stride=(1, 1), threads=2, seed=3)
@example(images=9, channels=300, filters=15, size=(33, 40), stride=(1, 1), threads=2, seed=4)
@example(images=4, channels=17, filters=33, size=(15, 14), stride=(2, 2), threads=2, seed=5)
def test_any_shape_agrees_with_float64(
    images: int, channels: int, filters: int, size: Any, stride: Any, threads: int, seed: int
) -> None:
    """Split by pixels and by rows of the result, also where the gradient's sums are turned."""
    arrays = drawn(seed, images, channels, filters, size, stride)
    expected = convolved(*arrays, stride)
    with Device("compiled", threads=threads):
        found = convolved(*(a.astype(np.float32) for a in arrays), stride)
    for one, true in zip(found, expected, strict=True):
        assert one.shape == true.shape
        assert distance(one, true) < NEAR


def test_where_single_pixels_are_multiplied() -> None:
    x, w = Spec((2, 20, 8, 8)), (40, 20, 1, 1)

    def algorithm(x: Spec, w: Any, **how: Any) -> str:
        out = Spec((x.shape[0], w[0], *x.shape[2:]), x.dtype)
        return convolution._algorithm(x, w, out, **({"stride": (1, 1), **PLAIN} | how))

    assert algorithm(x, w) == "pointwise"
    assert algorithm(x, w, stride=(2, 2)) == "pointwise"
    assert algorithm(x, w, stride=(3, 3)) != "pointwise"  # few pixels are left
    assert algorithm(x, w, padding=(0, 1, 0, 0)) != "pointwise"
    assert algorithm(x, (40, 10, 1, 1), groups=2) != "pointwise"
    assert algorithm(x, (40, 20, 1, 2)) != "pointwise"
    assert algorithm(Spec(x.shape, "float64"), w) != "pointwise"
    assert not pointwise.suits(Spec((0, 20, 8, 8)), w, stride=(1, 1), **PLAIN)


@pytest.mark.parametrize("name", ["relu", "sigmoid", "tanh"])
@pytest.mark.parametrize("stride", [1, 2])
def test_bias_and_activation_are_fused(name: str, stride: int) -> None:
    random = np.random.default_rng(1)
    x, w, b = (random.standard_normal(s) for s in ((3, 16, 25, 31), (20, 16, 1, 1), (20,)))

    def step(x: Any, w: Any, b: Any) -> Any:
        return getattr(op, name)(op.add_bias(op.conv(x, w, stride=(stride, stride)), b))

    single = [a.astype(np.float32) for a in (x, w, b)]
    run = trace(step, *single).compile(Device("compiled"))
    assert [i.name for i in run.program.instructions] == [f"conv_bias_{name}"]
    assert distance(run(*single), step(x, w, b)) < NEAR


@pytest.mark.parametrize("stride", [1, 2])
def test_pixels_of_nan_and_infinity_stay_where_they_are(stride: int) -> None:
    x, w, g = drawn(3, 2, 40, 20, (11, 9), (stride, stride))
    x[1, 3, 4, 6] = np.nan
    g[0, 2, 3, 3] = np.inf
    expected = convolved(x, w, g, (stride, stride))
    with Device("compiled", threads=2):
        found = convolved(*(a.astype(np.float32) for a in (x, w, g)), (stride, stride))
    for one, true in zip(found, expected, strict=True):
        assert np.array_equal(np.isfinite(one), np.isfinite(true))


def test_long_sums_of_the_gradient_do_not_round_ones_away() -> None:
    x, out = np.ones((530, 1, 180, 180), np.float32), np.empty((1, 1, 1, 1), np.float32)
    with Device("compiled", threads=1):
        specs = pointwise.gradient_scratch(Spec.of(x), out.shape, (1, 1))
        scratch = tuple(np.empty(spec.shape, spec.dtype) for spec in specs)
        pointwise.weight_gradient(out, x, x, (1, 1), scratch)
    assert out == 530 * 180 * 180  # more than 2**24


@pytest.mark.parametrize("stride", [1, 2])
def test_pytorch_agrees(stride: int) -> None:
    torch = pytest.importorskip("torch")
    arrays = [a.astype(np.float32) for a in drawn(5, 4, 70, 50, (14, 15), (stride, stride))]
    x, w, g = (torch.tensor(a, requires_grad=True) for a in arrays)
    y = torch.nn.functional.conv2d(x, w, stride=stride)
    y.backward(g.detach())
    with Device("compiled", threads=2):
        found = convolved(*arrays, (stride, stride))
    for one, other in zip(found, (y.detach(), x.grad, w.grad), strict=True):
        assert distance(one, other.numpy()) < NEAR
