"""Operators at sizes where kernels split their work: many blocks, stretches, tails, chunks."""

import numpy as np
import pytest
from devices import home, needs_gpu, placed

from pareo import Device, op
from pareo.backends.cuda.kernels import convolution, linear

pytestmark = [pytest.mark.gpu, needs_gpu]
RANDOM = np.random.default_rng(7)


def both(operator, *operands, **how):
    """What `vectorized` and `cuda` compute."""
    with Device("vectorized"):
        expected = operator(*operands, **how)
    with Device("cuda"):
        found = operator(*[placed("cuda", a) for a in operands], **how)
    return home("cuda", found), expected


def draw(*shape, dtype=np.float64):
    return RANDOM.uniform(-1, 1, shape).astype(dtype)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 1023, 4096, 4099, 1 << 20, (1 << 20) + 7])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_elementwise(count, dtype):
    a, b = draw(count, dtype=dtype), draw(count, dtype=dtype)
    for operands in ((a, b), (a, b[:1]), (a[:1], b), (a[::2].copy(), b[::2].copy())):
        np.testing.assert_array_equal(*both(op.add, *operands))
    with Device("cuda"):  # a start that is not on 16 bytes
        there = placed("cuda", a)[1:]
        np.testing.assert_array_equal(home("cuda", op.add(there, there)), a[1:] + a[1:])


@pytest.mark.parametrize(
    "shape", [(1,), (33,), (5000,), (300, 7), (7, 300), (64, 10, 99), (2, 70000)]
)
@pytest.mark.parametrize("name", ["sum", "mean", "max"])
def test_reductions(shape, name):
    a = draw(*shape)
    axes = [None, *range(len(shape)), (0, len(shape) - 1)]
    for axis in axes if len(shape) > 1 else axes[:1]:
        found, expected = both(op.registry[name], a, axis=axis)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("shape", [(5000,), (3, 2000), (2000, 3)])
def test_argmax(shape):
    a = RANDOM.integers(0, 50, shape).astype(np.float64)  # with many equals: the first counts
    for axis in (None, 0, len(shape) - 1):
        np.testing.assert_array_equal(*both(op.argmax, a, axis=axis))


@pytest.mark.parametrize("classes", [1, 10, 33, 1000, 5000])
def test_softmax_and_cross_entropy(classes):
    a, labels = 9 * draw(70, classes), RANDOM.integers(0, classes, 70)
    for operator in (op.softmax, op.log_softmax):
        np.testing.assert_allclose(*both(operator, a), rtol=1e-11)
    np.testing.assert_allclose(*both(op.cross_entropy, a, labels), rtol=1e-12)
    g = np.ones(())
    np.testing.assert_allclose(*both(op.cross_entropy_gradient, g, a, labels), atol=1e-15)


@pytest.mark.parametrize("axes", [(1, 0, 2), (2, 1, 0), (0, 2, 1), (2, 0, 1)])
def test_transposes_and_parts(axes):
    a = draw(65, 33, 70)
    np.testing.assert_array_equal(*both(op.transpose, a, axes))
    np.testing.assert_array_equal(*both(op.part, a, 1, (3, 30)))
    np.testing.assert_array_equal(*both(op.part_gradient, a, 1, (3, 36), 40))
    np.testing.assert_array_equal(*both(lambda x, y: op.concat([x, y], 1), a, a[:, :5].copy()))


GEOMETRIES = [
    {"stride": 2, "padding": (1, 2, 3, 4)},
    {"dilation": 2, "padding": 3},
    {"groups": 4},
    {"groups": 2, "stride": (2, 1), "padding": (2, 1)},
]


@pytest.mark.parametrize("how", GEOMETRIES)
@pytest.mark.parametrize("limit", [1, 1 << 17, 1 << 28])
def test_convolutions_in_chunks(how, limit, monkeypatch):
    monkeypatch.setattr(convolution, "LIMIT", limit)
    groups = how.get("groups", 1)
    x, w = draw(9, 8, 19, 23), draw(12, 8 // groups, 3, 5)
    found, y = both(op.conv, x, w, **how)
    np.testing.assert_allclose(found, y, atol=1e-12)
    g = draw(*y.shape)
    pairs = [
        both(op.conv_input_gradient, g, w, size=(19, 23), **how),
        both(op.conv_weight_gradient, x, g, size=(3, 5), **how),
    ]
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, atol=1e-11)


@pytest.mark.parametrize("how", [{"size": 3, "stride": 2}, {"size": (5, 2), "padding": (2, 1)}])
def test_pooling(how):
    x = RANDOM.integers(0, 9, (3, 20, 31, 45)).astype(np.float64)  # with equals in windows
    for operator in (op.max_pool, op.average_pool):
        found, pooled = both(operator, x, **how)
        np.testing.assert_allclose(found, pooled, rtol=1e-13)
    g = draw(*pooled.shape)
    np.testing.assert_allclose(*both(op.max_pool_gradient, g, x, **how), atol=1e-13)
    np.testing.assert_allclose(*both(op.average_pool_gradient, g, (31, 45), **how), atol=1e-13)
    w, b = draw(4, 3), draw()
    np.testing.assert_allclose(*both(op.subsample, x, w, b, stride=3), atol=1e-11)


@pytest.mark.parametrize("beta", [0.75, 0.6])
def test_lrn_dropout_and_sgd(beta):
    x, g = draw(2, 40, 17, 19), draw(2, 40, 17, 19)
    how = {"size": 5, "alpha": 0.3, "beta": beta, "k": 2.0}
    np.testing.assert_allclose(*both(op.lrn, x, **how), rtol=1e-13)
    np.testing.assert_allclose(*both(op.lrn_gradient, g, x, **how), atol=1e-13)
    np.testing.assert_array_equal(*both(op.dropout, x, rate=0.4, seed=-77))
    for found, expected in zip(*both(op.sgd, x, g, g, 0.1, 0.9, 1e-3), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-14)
    np.testing.assert_allclose(*both(op.squared_error, x, g), rtol=1e-12)
    for activation in (op.sigmoid, op.tanh, op.relu):  # fused with the bias
        found, expected = both(lambda a, b, f=activation: f(op.add_bias(a, b)), x, x[0, :, 0, 0])
        np.testing.assert_allclose(found, expected, atol=1e-14)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_precisions_round_as_they_say(precision):
    a, b = draw(256, 512, dtype=np.float32), draw(512, 256, dtype=np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    with Device("cuda", precision=precision):
        found = home("cuda", op.dot(placed("cuda", a), placed("cuda", b)))
    error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    # Factors are rounded to 24, 11 and 8 bits: each bit less doubles the error.
    low, high = {"float32": (0, 1e-6), "tf32": (5e-5, 1e-3), "bfloat16": (5e-4, 1e-2)}[precision]
    assert low < error < high


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_a_matrix_times_itself_is_that_of_dot(precision):
    with Device("cuda", precision=precision):
        a = placed("cuda", draw(96, 96, dtype=np.float32))
        found = home("cuda", linear.squared(a)())
        expected = home("cuda", op.dot(a, a))
    if precision == "bfloat16":  # which comes as its bits, the result rounded as well
        found = (found.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(found, expected, rtol=2.0**-8, atol=1e-5)
