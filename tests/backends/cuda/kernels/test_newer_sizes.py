"""The operators of newer networks at sizes where kernels split their work, against PyTorch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from devices import home, needs_gpu, placed

from pareo import Device, Spec, op, trace
from pareo.backends.cuda.kernels import attention as tiles
from pareo.program import differentiate

pytestmark = [pytest.mark.gpu, needs_gpu]
RANDOM = np.random.default_rng(8)


def on_gpu(operator, *operands, **how):
    """What `cuda` computes from arrays of the host, on the host."""
    with Device("cuda"):
        return home("cuda", operator(*[placed("cuda", a) for a in operands], **how))


def draw(*shape):
    return RANDOM.uniform(-1, 1, shape)


def close(found, expected, tolerance=1e-11):
    """Equal up to the tolerance times the largest number; sums here have up to 1e5 terms."""
    expected = np.asarray(expected.detach() if torch.is_tensor(expected) else expected)
    limit = tolerance * max(1.0, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=limit)


def tensors(*arrays):
    return [torch.tensor(a, requires_grad=True) for a in arrays]


@pytest.mark.parametrize(
    "shape", [(300, 70), (5, 3, 64, 67), (64, 130, 4, 4), (2, 1, 300, 300), (1, 3, 1, 2), (7, 5, 9)]
)
def test_batch_norm(shape):
    x, g, scale, shift = draw(*shape), draw(*shape), draw(shape[1]), draw(shape[1])
    y, mean, variance = on_gpu(op.batch_norm, x, scale, shift)
    parts = on_gpu(op.batch_norm_gradient, g, x, scale, mean, variance)
    a, b, c = tensors(x, scale, shift)
    expected = F.batch_norm(a, None, None, b, c, training=True)
    expected.backward(torch.tensor(g))
    close(y, expected)
    for part, tensor in zip(parts, (a, b, c), strict=True):
        close(part, tensor.grad)
    found = on_gpu(op.batch_norm_inference, x, scale, shift, mean, variance)
    close(found, expected)


@pytest.mark.parametrize("shape", [(8, 3, 50, 50), (5000, 40)])
def test_batch_norm_of_large_means(shape):
    """A float32 near 10,000 is a multiple of 0.001, so its statistics are known to 7 digits."""
    x = (RANDOM.normal(1e4, 1, shape)).astype(np.float32)
    ones = np.ones(shape[1], np.float32)
    y, mean, variance = on_gpu(op.batch_norm, x, ones, 0 * ones)
    exact, axes = x.astype(np.float64), (0, *range(2, x.ndim))
    np.testing.assert_allclose(mean, exact.mean(axes), rtol=1e-7)
    np.testing.assert_allclose(variance, exact.var(axes), rtol=1e-6)
    along = (1, -1, *[1] * (x.ndim - 2))
    centred = exact - exact.mean(axes).reshape(along)
    close(y, centred / np.sqrt(exact.var(axes) + 1e-5).reshape(along), 1e-6)


@pytest.mark.parametrize(
    ("shape", "axis"), [((7, 1000), 1), ((700, 33), 1), ((3, 40, 17, 19), 1), ((5, 3000, 2), 1)]
)
def test_layer_norm(shape, axis):
    x, g, scale, shift = draw(*shape), draw(*shape), draw(shape[axis]), draw(shape[axis])
    a, b, c = tensors(x, scale, shift)
    moved = F.layer_norm(a.movedim(axis, -1), b.shape, b, c).movedim(-1, axis)
    moved.backward(torch.tensor(g))
    close(on_gpu(op.layer_norm, x, scale, shift, axis=axis), moved)
    parts = on_gpu(op.layer_norm_gradient, g, x, scale, axis=axis)
    for part, tensor in zip(parts, (a, b, c), strict=True):
        close(part, tensor.grad)


HEADS = [  # leading axes, queries, keys, columns of q and k, columns of v
    ((2, 3), 100, 130, 20, 12),
    ((4,), 65, 65, 64, 64),
    ((1, 2), 33, 200, 70, 128),
    ((), 300, 31, 5, 3),
    ((2,), 70, 90, 150, 40),  # too large for a tile
]


@pytest.mark.parametrize(("leading", "queries", "keys", "depth", "width"), HEADS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("limit", [1, 1 << 26])
def test_attention(leading, queries, keys, depth, width, causal, limit, monkeypatch):
    monkeypatch.setattr(tiles, "LIMIT", limit)
    q, k = draw(*leading, queries, depth), draw(*leading, keys, depth)
    v, g = draw(*leading, keys, width), draw(*leading, queries, width)
    mask = 3 * draw(*leading[:1], *[1] * (len(leading) - 1), 1 if leading else queries, keys)
    mask[RANDOM.uniform(size=mask.shape) < 0.2] = -np.inf
    mask[..., 0] = 0.0  # every query sees the first key
    a, b, c = tensors(q, k, v)
    scores = a @ b.mT / np.sqrt(depth) + torch.tensor(mask)
    if causal:
        scores = scores + torch.full((queries, keys), -torch.inf, dtype=a.dtype).triu(1)
    expected = scores.softmax(-1) @ c
    expected.backward(torch.tensor(g))
    y, sums = on_gpu(op.attention_with_sums, q, k, v, mask, causal)
    close(y, expected)
    close(sums, scores.logsumexp(-1))
    parts = on_gpu(op.attention_gradient, g, q, k, v, y, sums, mask, causal)
    for part, tensor in zip(parts, (a, b, c), strict=True):
        close(part, tensor.grad)


def test_attention_reads_any_layout():
    """Heads of (batch, tokens, heads, columns), as a transposed view."""
    packed = draw(2, 70, 3, 3, 16)
    there = placed("cuda", packed)
    with Device("cuda"):
        q, k, v = (there[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
        y, sums = op.attention_with_sums(q, k, v)
        parts = op.attention_gradient(y, q, k, v, y, sums)
        plain = [a.copy() for a in (q, k, v)]
        other, others = op.attention_with_sums(*plain)
        more = op.attention_gradient(y, *plain, y, sums)
    for found, expected in zip((y, sums, *parts), (other, others, *more), strict=True):
        np.testing.assert_array_equal(home("cuda", found), home("cuda", expected))


@pytest.mark.parametrize("width", [16, 200])
def test_a_query_without_keys_is_zero(width):
    q = draw(2, 5, width)
    mask = np.zeros((5, 5))
    mask[3] = -np.inf
    y, sums = on_gpu(op.attention_with_sums, q, q, q, mask)
    assert not y[:, 3].any()
    assert (sums[:, 3] == -np.inf).all()
    assert np.isfinite(y).all()
    parts = on_gpu(op.attention_gradient, q, q, q, q, y, sums, mask)
    assert all(np.isfinite(part).all() for part in parts)
    assert not parts[0][:, 3].any()


@pytest.mark.parametrize("rows", [1, 3, 500, 30000])
@pytest.mark.parametrize("columns", [(), (3,), (300,)])
def test_take(rows, columns):
    a, index = draw(rows, *columns), RANDOM.integers(0, rows, (40, 60))
    np.testing.assert_array_equal(on_gpu(op.take, a, index), a[index])
    g = draw(40, 60, *columns)
    found = on_gpu(op.take_gradient, g, index, size=rows)
    expected = np.zeros((rows, *columns))
    np.add.at(expected, index, g)
    np.testing.assert_array_equal(found, expected)  # in the same order
    np.testing.assert_array_equal(found, on_gpu(op.take_gradient, g, index, size=rows))


def test_a_place_that_does_not_exist_is_nan():
    """A kernel cannot raise an error, and a check in advance would make the host wait."""
    index = np.array([0, 3, -1])
    found = on_gpu(op.take, np.ones((3, 4)), index)
    np.testing.assert_array_equal(np.isnan(found[:, 0]), [False, True, True])
    assert np.isnan(on_gpu(op.take_gradient, np.ones((3, 4)), index, size=3)).all()


def test_norm_pad_and_split():
    arrays = [draw(n) for n in (1, 5, 10**5, 3, 0, 8192, 8193)] + [draw(2, 3)] * 90
    expected = np.sqrt(sum((a**2).sum() for a in arrays))
    with Device("cuda"):
        found = home("cuda", op.norm([placed("cuda", a) for a in arrays]))
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    large = np.full(10, 1e30, np.float32)  # whose squares are no float32
    with Device("cuda"):
        np.testing.assert_allclose(home("cuda", op.norm([placed("cuda", large)])), 1e30 * 10**0.5)
    a = draw(30, 40, 50)
    widths = [(0, 3), (2, 0), (1, 1)]
    found = on_gpu(op.pad, a, widths=widths, value=2.5)
    np.testing.assert_array_equal(found, np.pad(a, widths, constant_values=2.5))
    for part, expected in zip(on_gpu(op.split, a, sizes=(7, 0, 33), axis=1),
                              np.split(a, [7, 7], 1), strict=True):  # fmt: skip
        np.testing.assert_array_equal(part, expected)


GEOMETRIES = [
    {"padding": 1},
    {"stride": 2, "padding": (1, 2, 3, 4)},
    {"dilation": (2, 1), "padding": 3},
]


@pytest.mark.parametrize("how", GEOMETRIES)
@pytest.mark.parametrize("each", [1, 3])
@pytest.mark.parametrize("window", [(3, 3), (7, 9)])
def test_depthwise_convolution(how, each, window):
    x, w = draw(9, 8, 29, 33), draw(8 * each, 1, *window)
    padding = how["padding"]
    sides = padding if isinstance(padding, tuple) else (padding,) * 4
    top, left, bottom, right = sides
    a, b = tensors(x, w)
    more = {"stride": how.get("stride", 1), "dilation": how.get("dilation", 1), "groups": 8}
    expected = F.conv2d(F.pad(a, (left, right, top, bottom)), b, **more)
    g = draw(*expected.shape)
    expected.backward(torch.tensor(g))
    how = {**how, "groups": 8}
    close(on_gpu(op.conv, x, w, **how), expected)
    close(on_gpu(op.conv_input_gradient, g, w, size=(29, 33), **how), a.grad)
    close(on_gpu(op.conv_weight_gradient, x, g, size=window, **how), b.grad)


def test_numbers_of_optimisers_broadcast():
    """One rate for each member, as a vector along the first axis, and one for all."""
    p, g, m, s = draw(3, 40), draw(3, 40), draw(3, 40), np.abs(draw(3, 40))
    rates = np.array([0.1, 0.2, 0.3]).reshape(3, 1)
    for name, slots in (("sgd", [m]), ("lion", [m]), ("adam", [m, s])):
        together = on_gpu(op.registry[name], p, g, *slots, rates)
        for i in range(3):
            own = [a[i] for a in (p, g, *slots)]
            alone = on_gpu(op.registry[name], *own, float(rates[i, 0]))
            for found, expected in zip(together, alone, strict=True):
                np.testing.assert_allclose(found[i], expected, rtol=1e-14)


@pytest.mark.parametrize("shape", [(6, 5, 12, 12), (6, 5, 3, 5), (40, 50)])
def test_batch_norm_fused_with_what_follows(shape):
    """Training and inference of a residual block, compared with one operator after the other."""
    x, r, s, b, g = draw(*shape), draw(*shape), draw(shape[1]), draw(shape[1]), draw(*shape)

    def inner(x, s, b, r):
        y = op.relu(op.batch_norm(x, s, b)[0])
        return op.relu(op.add(op.batch_norm(y, s, b)[0], r))

    def loss(x, s, b, r):
        return op.sum(op.hadamard(inner(x, s, b, r), g))

    def apply(x, s, b, r):
        y = op.relu(op.batch_norm_inference(x, s, b, b, op.hadamard(s, s)))
        return op.add(r, op.batch_norm_inference(y, s, b, b, op.hadamard(s, s)))

    arrays = [x, s, b, r]
    programs = [
        differentiate(trace(loss, *[Spec.of(a) for a in arrays]), wrt=(0, 1, 2, 3)),
        trace(apply, *[Spec.of(a) for a in arrays]),
    ]
    for program in programs:
        found, expected = (
            [home(device, a) for a in program.compile(Device(device))(
                *[placed(device, a) for a in arrays])]
            if program is programs[0]
            else [home(device, program.compile(Device(device))(
                *[placed(device, a) for a in arrays]))]
            for device in ("cuda", "vectorized")
        )  # fmt: skip
        for one, other in zip(found, expected, strict=True):
            close(one, other)
    names = {i.name for p in programs for i in p.compile(Device("cuda")).program.instructions}
    assert {"batch_norm_relu", "batch_norm_add_relu", "batch_norm_inference_add"} <= names
    assert {"relu_batch_norm_gradient", "relu_and_batch_norm_gradient"} <= names


def both(operator, *operands, **how):
    """What `cuda` and `vectorized` compute, as lists of results."""
    with Device("vectorized"):
        expected = operator(*operands, **how)
    found = on_gpu(operator, *operands, **how)
    return [list(result) if isinstance(result, tuple) else [result] for result in (found, expected)]


ACTIVATIONS = {
    "gelu": [{}, {"approximate": True}],
    "silu": [{}],
    "hard_sigmoid": [{}],
    "hard_swish": [{}],
    "leaky_relu": [{"slope": 0.3}],
    "clip": [{"low": -0.5, "high": 6.0}],
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-14)])
def test_activations(name, dtype, tolerance):
    """Every layout, tails of packs, and numbers so large that an exponential overflows."""
    a = (12 * draw(301, 37)).astype(dtype)
    a[0, :6] = [-1000, 1000, 0, -0.0, 3, -3]
    g = draw(301, 37).astype(dtype)
    for how in ACTIVATIONS[name]:
        for x, e in ((a, g), (a.T, g.T), (a[:, ::2], g[:, ::2])):
            for one, other in zip(*both(op.registry[name], x, **how), strict=True):
                close(one, other, tolerance)
            there = both(op.registry[f"{name}_gradient"], e, x, **how)
            for one, other in zip(*there, strict=True):
                close(one, other, 4 * tolerance)  # a slope is a sum of products


@pytest.mark.parametrize("how", [{"flip": True}, {"crop": 4}, {"cutout": 7}, {}])
@pytest.mark.parametrize("seed", [0, 5, -3])
def test_augmentation_has_the_same_bits(how, seed):
    x = draw(50, 3, 28, 33).astype(np.float32)
    for found, expected in zip(*both(op.augment, x, seed=seed, **how), strict=True):
        np.testing.assert_array_equal(found, expected)
    every = {"flip": True, "crop": 3, "cutout": 8}
    for found, expected in zip(*both(op.augment, x, seed=seed, **every), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("name", "slots", "how"),
    [
        ("sgd", 1, {"momentum": 0.9, "decay": 0.01, "nesterov": True}),
        ("adam", 2, {"first_correction": 0.1, "second_correction": 0.001, "decay": 0.1}),
        ("adam", 2, {"decay": 0.1, "decoupled": True}),
        ("lion", 1, {"decay": 0.1}),
    ],
)
def test_optimisers(name, slots, how):
    arrays = [np.abs(draw(70, 1001)) for _ in range(2 + slots)]
    for found, expected in zip(*both(op.registry[name], *arrays, 0.1, **how), strict=True):
        close(found, expected, 1e-14)
