"""Batch normalisation: fused with what is around it, and accurate for large means."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as some

from pareo import Device, Spec, op, trace, value_and_grad

EPSILON = 1e-3


def _active(name: str, a: Any) -> Any:
    return op.clip(a, 0, 1) if name == "clip" else getattr(op, name)(a)


def _chain(name: str) -> Any:
    def loss(x: Any, s: Any, b: Any, r: Any, g: Any) -> Any:
        y, mean, variance = op.batch_norm(x, s, b, EPSILON)
        return op.sum(op.hadamard(_active(name, y), g)), mean, variance

    return loss


def _residual(relu: bool) -> Any:
    def loss(x: Any, s: Any, b: Any, r: Any, g: Any) -> Any:
        y, mean, variance = op.batch_norm(x, s, b, EPSILON)
        # r is read through another operator, which needs the gradient of the sum too.
        total = op.add(y, op.scale(2.0, r))
        result = op.relu(total) if relu else total
        both = op.add(op.hadamard(result, g), op.tanh(result))
        return op.sum(both), mean, variance

    return loss


CASES = {
    "relu": (_chain("relu"), {"batch_norm_relu", "batch_norm_relu_gradient"}),
    "clip": (_chain("clip"), {"batch_norm_clip", "batch_norm_clip_gradient"}),
    "silu": (_chain("silu"), {"batch_norm_silu", "batch_norm_silu_gradient"}),
    "hard_swish": (_chain("hard_swish"), {"batch_norm_hard_swish"}),
    "sum": (_residual(False), {"batch_norm_add"}),
    "sum, relu": (_residual(True), {"batch_norm_add_relu", "add_relu_batch_norm_gradient"}),
}
# Where the slope of an activation changes at once.
KINKS = {"relu": (0,), "clip": (0, 1), "silu": (), "hard_swish": (-3, 3), "sum": ()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("threads", [1, 2])
def test_fused_passes_compute_what_single_operators_do(name: str, threads: int) -> None:
    loss, expected_names = CASES[name]
    random = np.random.default_rng(3)
    # Large enough for two threads and several blocks; planes of an odd size.
    x, r, g = random.standard_normal((3, 2, 4, 41, 203))
    s, b = random.standard_normal((2, 4))

    def step(x: Any, s: Any, b: Any, r: Any, g: Any) -> Any:
        def first(x: Any, s: Any, b: Any, r: Any) -> Any:
            total, mean, variance = loss(x, s, b, r, g)
            return total, (mean, variance)

        return value_and_grad(first, wrt=(0, 1, 2, 3), aux=True)(x, s, b, r)

    program = trace(step, *map(Spec.of, (x, s, b, r, g)))
    with Device("vectorized"):
        expected = program.compile()(x, s, b, r, g)
        wanted = [np.array(a) for a in _leaves(expected)]
    device = Device("compiled", threads=threads)
    compiled = program.compile(device)
    assert expected_names <= {i.name for i in compiled.program.instructions}
    found = _leaves(compiled(x, s, b, r, g))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)


@settings(max_examples=25)
@given(
    name=some.sampled_from([name for name in CASES if name not in ("silu", "hard_swish")]),
    images=some.integers(1, 9),
    channels=some.integers(1, 3),
    size=some.tuples(some.integers(1, 40), some.integers(1, 40)),
    threads=some.integers(1, 2),
    seed=some.integers(0, 2**32 - 1),
)
def test_planes_of_any_size_in_float32(
    name: str, images: int, channels: int, size: Any, threads: int, seed: int
) -> None:
    """Also where a plane leaves most of a vector empty."""
    assume(images * size[0] * size[1] > 1)
    _compare_with_double(name, (images, channels, *size), threads, seed)


@settings(max_examples=25)
@given(
    name=some.sampled_from(["relu", "clip", "silu", "hard_swish"]),
    shape=some.tuples(some.integers(2, 600), some.integers(1, 150)),
    threads=some.integers(1, 2),
    seed=some.integers(0, 2**32 - 1),
)
def test_matrices_of_any_size_in_float32(
    name: str, shape: tuple[int, int], threads: int, seed: int
) -> None:
    _compare_with_double(name, shape, threads, seed)


def _compare_with_double(name: str, shape: tuple[int, ...], threads: int, seed: int) -> None:
    """Forward and backward of a case in float32, beside float64."""
    random = np.random.default_rng(seed)
    x, r, g = random.standard_normal((3, *shape))
    s, b = random.uniform(0.5, 2, (2, shape[1]))

    def step(x: Any, s: Any, b: Any, r: Any, g: Any) -> Any:
        def first(x: Any, s: Any, b: Any, r: Any) -> Any:
            total, mean, variance = CASES[name][0](x, s, b, r, g)
            return total, (mean, variance)

        return value_and_grad(first, wrt=(0, 1, 2, 3), aux=True)(x, s, b, r)

    with Device("vectorized"):
        y = op.batch_norm(x, s, b, EPSILON)[0] + (2 * r if name.startswith("sum") else 0)
        wanted = _leaves(step(x, s, b, r, g))
    # Rounding must not move a number to the other side of a kink.
    assume(all(np.abs(y - kink).min() > 1e-5 for kink in KINKS[name.split(", ")[-1]]))
    single = [a.astype(np.float32) for a in (x, s, b, r, g)]
    with Device("compiled", threads=threads):
        found = _leaves(trace(step, *single).compile()(*single))
    for one, other in zip(found, wanted, strict=True):
        off = np.linalg.norm(np.asarray(one) - np.asarray(other))
        # Of a sum of so many numbers of about one, which may cancel out.
        assert off <= 1e-5 * (np.linalg.norm(other) + np.sqrt(x.size))


def _leaves(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in _leaves(part)]
    return [result]


@pytest.mark.smoke
@pytest.mark.parametrize("shape", [(8, 3, 50, 50), (40, 3, 5, 5), (3000, 3)])
def test_statistics_are_accurate_where_the_mean_is_large(shape: Any) -> None:
    random = np.random.default_rng(4)
    x = (random.standard_normal(shape) + 3000).astype(np.float32)
    axes = (0, *range(2, len(shape)))
    with Device("compiled"):
        y, mean, variance = op.batch_norm(x, np.ones(3, np.float32), np.zeros(3, np.float32))
    exact = x.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean(axes), rtol=1e-7)
    # The sum of squares alone would have no correct digit: its terms are 9e6, in float32.
    np.testing.assert_allclose(variance, exact.var(axes), rtol=2e-6)
    centred = exact - exact.mean(axes, keepdims=True)
    expected = centred / np.sqrt(exact.var(axes, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, expected, rtol=0, atol=5e-6)


@pytest.mark.parametrize("shape", [(2, 1, 2, 3), (3, 2, 9), (4, 7), (2, 3, 2, 10)])
def test_a_gradient_does_not_depend_on_where_arrays_lie(shape: tuple[int, ...]) -> None:
    """Where a result is close behind an operand, LLVM fears an overlap and takes another path."""
    random = np.random.default_rng(0)
    for _ in range(20):
        g, x = (random.standard_normal(shape).astype(np.float32) for _ in range(2))
        vectors = [random.random(shape[1]).astype(np.float32) for _ in range(3)]
        apart = np.zeros(1 << 14, np.float32)[-g.size :].reshape(shape)
        close, beside, behind = np.zeros((3, *shape), np.float32)
        close[...], beside[...] = g, x
        with Device("compiled"):
            expected = op.batch_norm_gradient(g, x, *vectors, epsilon=0.1, out=(apart, None, None))
            found = op.batch_norm_gradient(
                close, beside, *vectors, epsilon=0.1, out=(behind, None, None)
            )
        for result, value in zip(found, expected, strict=True):
            np.testing.assert_array_equal(result, value)
