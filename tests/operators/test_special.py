"""NaN, infinities, signed zeros and ties: as IEEE 754, NumPy and PyTorch have them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from devices import DEVICES, home, placed

from pareo import Device, Spec, op, trace
from pareo.program import value_and_grad

NAN, INF = np.nan, np.inf

every_device = pytest.mark.parametrize("device", DEVICES)
every_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


def on(device: str, operator: Any) -> Callable[..., Any]:
    """An operator on a device, from arrays of the host to arrays of the host."""

    def call(*operands: Any, **more: Any) -> Any:
        with Device(device):
            found = operator(*[placed(device, a) for a in operands], **more)
        return home(device, found)

    return call


def values(dtype: str) -> Any:
    limits = np.finfo(dtype)
    more = [limits.max, -limits.max, limits.smallest_normal, limits.smallest_subnormal]
    return np.array([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, 1000.0, -1000.0, *more], dtype)


def pairs(first: Any, second: Any) -> tuple[Any, Any]:
    a, b = np.meshgrid(first, second)
    return a.copy(), b.copy()


def same(found: Any, expected: Any, rounding: float = 0, signs: bool = False) -> None:
    """Equal, NaN to NaN; with `rounding`, up to so many units in the last place."""
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype
    rtol = rounding * float(np.finfo(found.dtype).eps) if rounding else 0
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=0, equal_nan=True, strict=True)
    if signs:
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(expected)[known])


@pytest.mark.parametrize(
    ("name", "function"),
    [("add", np.add), ("sub", np.subtract), ("hadamard", np.multiply), ("div", np.divide)],
)
@every_device
@every_dtype
def test_arithmetic(name: str, function: Callable[..., Any], device: str, dtype: str) -> None:
    """Every special value with every other; each result is rounded once, so all bits agree."""
    a, b = pairs(values(dtype), values(dtype))
    with np.errstate(all="ignore"):
        same(on(device, op.registry[name])(a, b), function(a, b), signs=True)


@every_device
@every_dtype
def test_scale(device: str, dtype: str) -> None:
    for alpha in values(dtype):
        with np.errstate(all="ignore"):
            same(on(device, op.scale)(alpha, values(dtype)), alpha * values(dtype), signs=True)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("exp", np.exp),
        ("log", np.log),
        ("tanh", np.tanh),
        ("sigmoid", lambda a: 1 / (1 + np.exp(-a))),
        ("relu", lambda a: np.maximum(a, 0)),
    ],
)
@every_device
@every_dtype
def test_functions(name: str, function: Callable[..., Any], device: str, dtype: str) -> None:
    """Mathematical libraries differ from each other by a few units in the last place."""
    a = values(dtype)
    with np.errstate(all="ignore"):
        same(on(device, op.registry[name])(a), function(a), rounding=4)


@pytest.mark.parametrize(
    ("name", "function", "outputs"),
    [
        ("sigmoid_gradient", lambda g, y: g * y * (1 - y), [NAN, 0.0, 0.5, 1.0]),
        ("tanh_gradient", lambda g, y: g * (1 - y * y), [NAN, -1.0, 0.0, 0.5, 1.0]),
        ("relu_gradient", lambda g, y: np.where(y <= 0, 0, g), [NAN, INF, 0.0, -0.0, 3.0]),
    ],
)
@every_device
@every_dtype
def test_function_gradients(
    name: str, function: Callable[..., Any], outputs: list[float], device: str, dtype: str
) -> None:
    g, y = pairs(values(dtype), np.array(outputs, dtype))
    with np.errstate(all="ignore"):
        same(on(device, op.registry[name])(g, y), function(g, y).astype(dtype), rounding=4)


ROWS = [
    [NAN, 1, 2],
    [1, NAN, INF],
    [INF, -INF, 0],
    [INF, 1, 1],
    [-INF, 1, 1],
    [-INF, -INF, -INF],
    [INF, INF, 1],
    [1000, 0, -1000],
    [-0.0, 0.0, -0.0],
    [1, 1, 0],
]


@pytest.mark.parametrize(
    ("name", "function"),
    [("sum", np.sum), ("mean", np.mean), ("max", np.max), ("argmax", np.argmax)],
)
@pytest.mark.parametrize("axis", [0, 1, None])
@every_device
@every_dtype
def test_reductions(
    name: str, function: Callable[..., Any], axis: int | None, device: str, dtype: str
) -> None:
    """A NaN is the largest of all; argmax gives the first of equals, and the first NaN."""
    rows = np.array(ROWS, dtype)
    for a in (rows, rows.T.copy(), rows[:, ::-1]):
        with np.errstate(all="ignore"):
            expected = np.asarray(function(a, axis=axis))
            found = on(device, op.registry[name])(a, axis=axis)
        same(found, expected, rounding=0 if name in ("max", "argmax") else 4)


@pytest.mark.parametrize(
    ("name", "function"), [("softmax", torch.softmax), ("log_softmax", torch.log_softmax)]
)
@every_device
@every_dtype
def test_softmax(name: str, function: Callable[..., Any], device: str, dtype: str) -> None:
    rows = np.array(ROWS, dtype)
    same(
        on(device, op.registry[name])(rows),
        function(torch.tensor(rows), -1).numpy(),
        rounding=8,
    )


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("label", [0, 1, 2])
@every_device
@every_dtype
def test_cross_entropy(row: list[float], label: int, device: str, dtype: str) -> None:
    logits = torch.tensor([row], dtype=getattr(torch, dtype), requires_grad=True)
    expected = F.cross_entropy(logits, torch.tensor([label]))
    expected.backward()
    given = logits.detach().numpy(), np.array([label])
    same(on(device, op.cross_entropy)(*given), expected.detach().numpy(), rounding=8)
    found = on(device, op.cross_entropy_gradient)(np.ones((), dtype), *given)
    # PyTorch leaves 0 where this gives -0 or a rounding error: exp(log(1)) - 1.
    np.testing.assert_allclose(found, logits.grad.numpy(), rtol=0, atol=8 * np.finfo(dtype).eps)


LOSSES: dict[str, Callable[..., Any]] = {
    "softmax": lambda device, a: on(device, op.softmax)(a),
    "softmax of columns": lambda device, a: on(device, op.softmax)(a, axis=0),
    "log_softmax": lambda device, a: on(device, op.log_softmax)(a),
    "log_softmax of columns": lambda device, a: on(device, op.log_softmax)(a, axis=0),
    "cross_entropy": lambda device, a: on(device, op.cross_entropy)(a, np.array([0, 2])),
    "cross_entropy_gradient": lambda device, a: on(device, op.cross_entropy_gradient)(
        np.ones((), a.dtype), a, np.array([0, 2])
    ),
    "both": lambda device, a: home(
        device,
        trace(_loss_and_gradient, Spec((2, 3), a.dtype), Spec((2,), "int64")).compile(
            Device(device)
        )(placed(device, a), placed(device, np.array([0, 2])))[0],
    ),
}


def _loss_and_gradient(logits: Any, labels: Any) -> Any:
    return value_and_grad(lambda a: op.cross_entropy(a, labels))(logits)


@pytest.mark.parametrize("name", LOSSES)
@every_device
@every_dtype
def test_a_shift_of_all_logits_changes_no_bit(name: str, device: str, dtype: str) -> None:
    """These numbers hold the shift without rounding, so the differences are what they were."""
    logits = np.array([[0, 1, 2], [3, 1, -2]], dtype)
    shift = np.dtype(dtype).type(2**20 if dtype == "float32" else 2**40)
    assert np.array_equal((logits + shift) - shift, logits)
    same(LOSSES[name](device, logits + shift), LOSSES[name](device, logits))


@every_device
@every_dtype
def test_the_largest_logits_there_are(device: str, dtype: str) -> None:
    logits = np.full((2, 3), np.finfo(dtype).max, dtype)
    third = np.log(np.array(3, dtype))
    same(on(device, op.cross_entropy)(logits, np.array([0, 2])), third, rounding=2)
    same(on(device, op.log_softmax)(logits), np.full((2, 3), -third), rounding=2)


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 2), None, ()])
@every_device
@every_dtype
def test_max_gradient_of_a_nan(axis: Any, device: str, dtype: str) -> None:
    """NaN for all elements of which one is NaN, as PyTorch's `amax` has it; no others."""
    a = np.array([[[1, 2, 2], [NAN, 1, 0]], [[INF, 1, INF], [3, 3, 3]]], dtype)
    tensor = torch.tensor(a, requires_grad=True)
    if axis == ():  # which PyTorch takes for all axes
        expected = np.where(np.isnan(a), NAN, 1).astype(dtype)
    else:
        dims = axis if axis is not None else (0, 1, 2)
        tensor.amax(dims).sum().backward()
        expected = tensor.grad.numpy()
    kept = a.max(axis=axis, keepdims=True)
    same(on(device, op.max_gradient)(np.ones_like(kept), a, kept, axis=axis), expected, rounding=1)


@every_device
@every_dtype
def test_max_pool(device: str, dtype: str) -> None:
    """NaN and -inf in windows, padding beside them."""
    x = np.array([[NAN, 1, 2, 3], [4, 5, 6, -INF], [1, 1, -INF, -INF]], dtype)[None, None]
    for how in ({"size": 2, "stride": 1}, {"size": 2, "padding": 1}, {"size": (3, 1), "stride": 1}):
        size, stride = how["size"], how.get("stride")
        expected = F.max_pool2d(torch.tensor(x), size, stride, how.get("padding", 0))
        same(on(device, op.max_pool)(x, **how), expected.numpy())


@every_device
@every_dtype
@pytest.mark.parametrize(
    ("window", "first"),
    [
        ([[1, 1], [1, 1]], (0, 0)),
        ([[0, 2], [2, 2]], (0, 1)),
        ([[-INF, -INF], [-INF, -INF]], (0, 0)),
        ([[INF, NAN], [NAN, 3]], (0, 1)),
        ([[-0.0, 0.0], [-1, -1]], (0, 0)),
    ],
)
def test_max_pool_gradient(window: Any, first: tuple[int, int], device: str, dtype: str) -> None:
    """The error goes to the first largest, or to the first NaN, and only there."""
    x = np.array(window, dtype)[None, None]
    expected = np.zeros_like(x)
    expected[0, 0][first] = 7
    same(on(device, op.max_pool_gradient)(np.full((1, 1, 1, 1), 7, dtype), x, 2), expected)


@every_device
@every_dtype
def test_products(device: str, dtype: str) -> None:
    """0 times infinity is NaN inside a sum, too: nothing may be skipped because it is 0."""
    a = np.array([[0, 1], [1, 0], [1, 1]], dtype)
    b = np.array([[INF, NAN, 1], [1, 1, -INF]], dtype)
    with np.errstate(all="ignore"):
        same(on(device, op.dot)(a, b), a @ b)


@every_device
@every_dtype
def test_conv_keeps_a_nan_in_its_windows(device: str, dtype: str) -> None:
    x = np.ones((1, 1, 5, 5), dtype)
    x[0, 0, 1, 1] = NAN
    expected = np.full((1, 1, 3, 3), 9, dtype)
    expected[0, 0, :2, :2] = NAN
    same(on(device, op.conv)(x, np.ones((1, 1, 3, 3), dtype)), expected)


# Images, filters and how: one case for each way in which `compiled` convolves, except Winograd's
# (see test_winograd.py).
CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "rows": ((2, 1, 6, 7), (4, 1, 3, 3), {"padding": 1}),
    "wide rows": ((1, 2, 6, 8), (2, 2, 2, 6), {}),
    "tiles": ((1, 1, 5, 10), (3, 1, 3, 3), {}),
    "direct, groups": ((2, 2, 5, 6), (2, 1, 3, 3), {"padding": 1, "groups": 2}),
    "direct, stride": ((2, 1, 5, 6), (2, 1, 3, 3), {"padding": (2, 0, 1, 2), "stride": 2}),
    "columns": ((1, 9, 4, 5), (33, 9, 3, 3), {"padding": 1}),
    "columns, stride": ((1, 9, 4, 5), (33, 9, 3, 3), {"padding": (0, 2), "stride": (1, 2)}),
}


@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("where", ["images", "filters", "errors"])
@pytest.mark.parametrize("layer", CONVOLUTIONS)
@pytest.mark.parametrize("device", DEVICES[1:])
@every_dtype
def test_what_is_not_finite_in_a_convolution(
    layer: str, where: str, bad: float, device: str, dtype: str
) -> None:
    """NaN and infinities exactly where the products have them, those with the padding's 0 too."""
    images, filters, how = CONVOLUTIONS[layer]
    random = np.random.default_rng(3)
    x, w = (random.standard_normal(shape).astype(dtype) for shape in (images, filters))
    g = random.standard_normal(on("vectorized", op.conv)(x, w, **how).shape).astype(dtype)
    spoiled = {"images": x, "filters": w, "errors": g}[where]
    spoiled[0, 0, 0, 0] = spoiled[-1, -1, -1, -1] = bad

    def all_three(device: str) -> list[Any]:
        return [
            on(device, op.conv)(x, w, **how),
            on(device, op.conv_input_gradient)(g, w, size=images[2:], **how),
            on(device, op.conv_weight_gradient)(x, g, size=filters[2:], **how),
        ]

    for found, expected in zip(all_three(device), all_three("sequential"), strict=True):
        np.testing.assert_array_equal(_kinds(found), _kinds(expected))


def _kinds(a: Any) -> Any:
    """NaN and infinities as they are, all else as 0."""
    return np.where(np.isfinite(a), 0, a)


@every_device
@every_dtype
def test_average_pool_keeps_a_nan_in_its_windows(device: str, dtype: str) -> None:
    x = np.ones((1, 1, 4, 4), dtype)
    x[0, 0, 0, 0], x[0, 0, 3, 3] = NAN, INF
    same(on(device, op.average_pool)(x, 2), np.array([[[[NAN, 1], [1, INF]]]], dtype))


# The first numbers of splitmix64 from the state 0, as its author's program prints them. Dropout
# hashes the position plus the seed in golden steps: at position 0, seed 1 gives the first of them.
SPLITMIX = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]


@every_device
@every_dtype
@pytest.mark.parametrize(("seed", "number"), list(enumerate(SPLITMIX, start=1)))
def test_dropout_draws_as_splitmix64(seed: int, number: int, device: str, dtype: str) -> None:
    drawn = number >> 40
    x = np.full((1,), 3, dtype)
    for rate, kept in ((drawn / 2**24, True), ((drawn + 1) / 2**24, False)):
        factor = np.dtype(dtype).type(1 / (1 - rate))
        same(on(device, op.dropout)(x, rate, seed), x * factor if kept else 0 * x)


@every_device
@every_dtype
def test_dropout_clears_whatever_was_there(device: str, dtype: str) -> None:
    """A dropped NaN is 0, a kept one NaN: 0 times NaN would let it through."""
    kept = on(device, op.dropout)(np.ones(64, dtype), 0.5, 5) > 0
    found = on(device, op.dropout)(np.full(64, NAN, dtype), 0.5, 5)
    same(found, np.where(kept, NAN, 0).astype(dtype))


@every_device
def test_dropout_drops_its_share(device: str) -> None:
    """Of 4,000 elements, 0.3 plus or minus four standard deviations, for some seeds."""
    for seed in (0, 1, -1, 2**40):
        dropped = np.mean(on(device, op.dropout)(np.ones((40, 100)), 0.3, seed) == 0)
        assert abs(dropped - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 4000)


@every_device
@every_dtype
def test_sgd(device: str, dtype: str) -> None:
    ones = np.ones(3, dtype)
    velocity = np.array([INF, NAN, 1], dtype)
    parameter, new = on(device, op.sgd)(ones, ones, velocity, rate=0.5, momentum=0.0)
    same(new, np.array([NAN, NAN, 1], dtype))
    same(parameter, np.array([NAN, NAN, 0.5], dtype))


EMPTY_LAYERS = [
    (images, channels, filters, side, window)
    for filters, side, window in ((3, 6, 3), (2, 2, 1), (32, 12, 3), (6, 12, 5))
    for images, channels in ((2, 0), (0, 2), (2, 16))
] + [(2, 3, 0, 6, 3), (2, 16, 0, 12, 3)]


@pytest.mark.slow
@every_device
@every_dtype
@pytest.mark.parametrize("layer", EMPTY_LAYERS)
def test_convolutions_without_images_channels_or_filters(
    device: str, dtype: str, layer: tuple[int, ...]
) -> None:
    """A sum of nothing is 0, and it is written: what lay in the result's memory is gone."""
    images, channels, filters, side, window = layer
    out = side - window + 1
    x = np.ones((images, channels, side, side), dtype)
    w = np.ones((filters, channels, window, window), dtype)
    g = np.ones((images, filters, out, out), dtype)
    for operator, operands, size, terms in (
        (op.conv, (x, w), {}, channels * window**2),
        (op.conv_weight_gradient, (x, g), {"size": (window, window)}, images * out**2),
        (op.conv_input_gradient, (g, w), {"size": (side, side)}, None),
    ):
        shape = {op.conv: g, op.conv_weight_gradient: w, op.conv_input_gradient: x}[operator].shape
        with Device(device):
            result = placed(device, np.full(shape, NAN, dtype))
            operator(*[placed(device, a) for a in operands], **size, out=result)
            found = home(device, result)
        if terms is None:  # how many depends on the pixel
            assert np.isfinite(found).all()
            assert filters or not found.any()
        else:
            np.testing.assert_allclose(found, terms, rtol=1e-5)  # Winograd's rounding


@every_device
@every_dtype
@pytest.mark.parametrize("shape", [(2, 0, 3), (0, 2, 3), (2, 3, 0), (40, 0, 50), (1, 0, 1)])
def test_products_without_rows_or_terms(
    device: str, dtype: str, shape: tuple[int, int, int]
) -> None:
    rows, terms, columns = shape
    with Device(device):
        result = placed(device, np.full((rows, columns), NAN, dtype))
        a, b = np.ones((rows, terms), dtype), np.ones((terms, columns), dtype)
        op.dot(placed(device, a), placed(device, b), out=result)
        assert (home(device, result) == terms).all()
