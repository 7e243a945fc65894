"""Every instruction of lowered programs on the GPU, compared with the operators it replaces."""

import numpy as np
import pytest
from devices import needs_gpu
from gpu_instructions import (
    TF32,
    TOLERANCE,
    check,
    draw,
    dtype,
    first,
    last,
    run,
    run_with_sums,
)

from pareo import Device, op
from pareo.backends.cuda.nhwc.instructions import INSTRUCTIONS
from pareo.backends.cuda.nhwc.kernels.bias import partial_sums
from pareo.backends.cuda.nhwc.kernels.update import update_all
from pareo.backends.cuda.runtime.indexed_batch import indexed_batch
from pareo.spec import Spec

pytestmark = [pytest.mark.gpu, needs_gpu]

KINDS = pytest.mark.parametrize("kind", ["float32", "bfloat16"])
CHANNELS = pytest.mark.parametrize("channels", [64, 192, 13])
PLACES = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1)}


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_convolutions(precision, groups):
    pytest.importorskip("cudnn")
    kind = "bfloat16" if precision == "bfloat16" else "float32"
    x, g = draw((4, 9, 9, 16), kind), draw((4, 9, 9, 24), kind)
    w, b = draw((24, 3, 3, 16 // groups), kind), draw((24,), kind)
    tolerance = TF32 if precision == "tf32" else TOLERANCE[kind]
    how = {**PLACES, "precision": precision}
    (y,) = run("conv_forward", [Spec(g.shape, dtype(kind))], [x, w], epilogue="", **how)
    plain = op.conv(first(x), first(w), groups=groups, **PLACES)
    check(y, last(plain), tolerance)
    if groups == 1:
        result, operands = [Spec(g.shape, dtype(kind))], [x, w, b]
        (y,) = run("conv_forward", result, operands, epilogue="bias_relu", **how)
        check(y, last(op.relu(op.add_bias(plain, b.astype(np.float32)))), tolerance)
    (d,) = run("conv_backward_data", [Spec(x.shape, dtype(kind))], [g, w], **how)
    wanted = op.conv_input_gradient(first(g), first(w), size=(9, 9), groups=groups, **PLACES)
    check(d, last(wanted), tolerance)
    (d,) = run("conv_backward_filter", [Spec(w.shape, dtype(kind))], [x, g], **how)
    wanted = op.conv_weight_gradient(first(x), first(g), size=(3, 3), groups=groups, **PLACES)
    check(d, last(wanted), tolerance)


@KINDS
@pytest.mark.parametrize(
    "shape", [(40, 64, 3, 3), (3, 5000, 3, 3), (7, 60, 5, 5), (130, 8, 1, 2), (2, 3, 4, 4)], ids=str
)
def test_layouts_of_filters(kind, shape):
    w = draw(shape, "float32")
    (there,) = run("channels_last", [Spec(last(w).shape, dtype(kind))], [w])
    assert np.array_equal(there, last(w.astype(dtype(kind))))


@KINDS
def test_layouts(kind):
    x = draw((4, 13, 9, 7), "float32")
    (y,) = run("channels_last", [Spec((4, 9, 7, 13), dtype(kind))], [x])
    check(y, last(x), TOLERANCE[kind])
    (y,) = run("channels_first", [Spec(x.shape)], [last(x).astype(dtype(kind))])
    check(y, x, TOLERANCE[kind])
    (y,) = run("cast", [Spec(x.shape, dtype(kind))], [x])
    check(y, x, TOLERANCE[kind])


@KINDS
@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("channels", [3, 2])
@pytest.mark.parametrize(("block", "window", "padding"), [(4, 11, 2), (2, 7, 3), (3, 5, 0)])
def test_space_to_depth_gives_the_same_convolution(kind, block, window, padding, channels, folded):
    pytest.importorskip("cudnn")
    x = draw((2, channels, 64, 64), "float32")
    w = draw((8, channels, window, window), "float32")
    plain = {"stride": (block, block), "padding": (padding,) * 4, "dilation": (1, 1)}
    wanted = op.conv(x, w, **plain)
    many, taps, out = 16 // dtype(kind).itemsize, -(-window // block), wanted.shape[2]
    fold, columns = (taps, 1) if folded else (1, taps)
    wide = -(-channels * block * block * fold // many) * many
    images = Spec((2, out + taps - 1, out + columns - 1, wide), dtype(kind))
    filters = Spec((8, taps, columns, wide), dtype(kind))
    how = {"block": block, "fold": fold}
    (xb,) = run("space_to_depth", [images], [x], padding=(padding,) * 4, **how)
    (wb,) = run("filters_to_depth", [filters], [w], **how)
    (back,) = run("filters_from_depth", [Spec(w.shape)], [wb], **how)
    check(back, w, TOLERANCE[kind])
    one = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1)}
    check(last(op.conv(first(xb), first(wb), **one)), last(wanted), max(TOLERANCE[kind], 1e-5))


@KINDS
def test_space_to_depth_of_an_indexed_batch(kind):
    import cupy

    data, order = draw((5, 3, 16, 16), "float32"), np.array([[0, 1, 2], [4, 0, 4]])
    there = indexed_batch(cupy.asarray(data), 3, cupy.asarray(order), cupy.asarray(1))
    how = {"block": 4, "padding": (2, 2, 2, 2)}
    out = cupy.full((3, 5, 5, 48), 99, dtype(kind))
    INSTRUCTIONS["space_to_depth"].kernel.function(out, there, **how)
    (wanted,) = run("space_to_depth", [Spec(out.shape, dtype(kind))], [data[order[1]]], **how)
    np.testing.assert_array_equal(cupy.asnumpy(out), wanted)


@KINDS
def test_concatenated_images_and_their_sum(kind):
    parts = [draw((2, 5, 5, c), kind, seed) for seed, c in enumerate((8, 7, 16, 5, 9))]
    (y,) = run("concat_channels", [Spec((2, 5, 5, 45), dtype(kind))], parts)
    check(y, np.concatenate(parts, -1), 0)
    parts = [draw((2, 5, 5, 32), kind, seed) for seed in range(4)]
    for count in (2, 3, 4):
        (y,) = run("add_images", [Spec((2, 5, 5, 32), dtype(kind))], parts[:count])
        check(y, sum(a.astype(np.float32) for a in parts[:count]), TOLERANCE[kind])


@KINDS
@CHANNELS
def test_backward_pass_of_relu_and_bias(kind, channels):
    y = draw((4, 9, 9, channels), kind)
    gradients = [draw((4, 9, 9, c), kind, 1) for c in (channels // 2, channels - channels // 2)]
    results = [Spec(y.shape, dtype(kind))]
    d, sums = run_with_sums("relu_bias_back", results[0], [y, *gradients])
    wanted = np.where(y > 0, np.concatenate(gradients, -1), 0).astype(np.float32)
    check(d, wanted, 0)
    check(sums, wanted.sum((0, 1, 2), dtype=np.float64), 2e-6)
    (partial,) = run("bias_back", [partial_sums(results[0])], [y])
    (sums,) = run("add_sums", [Spec((channels,))], [partial])
    check(sums, y.astype(np.float64).sum((0, 1, 2)), 2e-6)
    (d,) = run("relu_back", results[:1], [np.concatenate(gradients, -1), y])
    check(d, wanted, 0)


@KINDS
@CHANNELS
@pytest.mark.parametrize(("size", "beta"), [(5, 0.75), (4, 0.5), (5, 0.6)])
def test_local_response_normalisation(kind, channels, size, beta):
    x, g = draw((4, 5, 5, channels), kind), draw((4, 5, 5, channels), kind, 1)
    how = {"size": size, "alpha": 0.1, "beta": beta, "k": 2.0}
    (y,) = run("lrn_forward", [Spec(x.shape, dtype(kind))], [x], **how)
    check(y, last(op.lrn(first(x), **how)), TOLERANCE[kind])
    (d,) = run("lrn_back", [Spec(x.shape, dtype(kind))], [g, x], **how)
    wanted = last(op.lrn_gradient(first(g), first(x), **how))
    check(d, wanted, TOLERANCE[kind])
    if size == 5 and channels % 8 == 0:
        d, sums = run_with_sums("lrn_relu_bias_back", Spec(x.shape, dtype(kind)), [g, x], **how)
        check(d, np.where(x > 0, wanted, 0), TOLERANCE[kind])
        check(sums, np.where(x > 0, wanted, 0).sum((0, 1, 2), dtype=np.float64), 2e-5)


WINDOWS = [
    {"size": (3, 3), "stride": (2, 2), "padding": (0, 0, 0, 0), "ceil": False},
    {"size": (3, 3), "stride": (2, 2), "padding": (0, 0, 0, 0), "ceil": True},
    {"size": (3, 3), "stride": (2, 2), "padding": (1, 1, 1, 1), "ceil": False},
    {"size": (3, 3), "stride": (1, 1), "padding": (1, 1, 1, 1), "ceil": False},
    {"size": (3, 3), "stride": (1, 1), "padding": (0, 0, 0, 0), "ceil": False},
    {"size": (2, 4), "stride": (2, 3), "padding": (1, 0, 0, 2), "ceil": False},
]


@KINDS
@pytest.mark.parametrize("channels", [16, 5])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("how", WINDOWS, ids=str)
@pytest.mark.parametrize("enough", [0, 1 << 17], ids=["a column each", "columns shared"])
def test_pooling(kind, channels, relu, how, enough, monkeypatch):
    monkeypatch.setattr("pareo.backends.cuda.nhwc.kernels.pool.ENOUGH", enough)
    x = np.round(draw((3, 12, 11, channels), kind).astype(np.float32)).astype(dtype(kind))  # equals
    wanted = last(op.max_pool(first(x), **how))
    result = Spec(wanted.shape, dtype(kind))
    y, indices = run(
        "max_pool_with_indices", [result, Spec(result.shape, "uint8")], [x], relu=relu, **how
    )
    check(y, wanted, 0)
    check(run("max_pool_forward", [result], [x], **how)[0], wanted, 0)
    g = draw(wanted.shape, kind, 1)
    back = last(op.max_pool_gradient(first(g), first(x), **how))
    back = np.where(x > 0, back, 0) if relu else back
    result = Spec(x.shape, dtype(kind))
    d, sums = run_with_sums("max_pool_bias_back", result, [g, indices], **how)
    check(d, back, TOLERANCE[kind])
    check(sums, back.sum((0, 1, 2), dtype=np.float64), 1e-5)
    check(run("max_pool_back", [result], [g, indices], **how)[0], back, TOLERANCE[kind])


@KINDS
@pytest.mark.parametrize("how", WINDOWS, ids=str)
def test_average_pooling(kind, how):
    x = draw((3, 12, 11, 16), kind)
    wanted = last(op.average_pool(first(x), **how))
    (y,) = run("average_pool_forward", [Spec(wanted.shape, dtype(kind))], [x], **how)
    check(y, wanted, TOLERANCE[kind])
    g = draw(wanted.shape, kind, 1)
    back = last(op.average_pool_gradient(first(g), (12, 11), **how))
    (d,) = run("average_pool_back", [Spec(x.shape, dtype(kind))], [g], image=(12, 11), **how)
    check(d, back, TOLERANCE[kind])


def test_dense_layers_in_bfloat16():
    a, b = draw((32, 48), "bfloat16"), draw((48, 64), "bfloat16", 1)
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    for transposed in ((False, False), (True, False), (False, True)):
        operands = [
            np.ascontiguousarray(x.T) if t else x for x, t in zip((a, b), transposed, strict=True)
        ]
        for kind in ("bfloat16", "float32"):
            spec = Spec((32, 64), dtype(kind))
            check(
                run("dot_working", [spec], operands, transposed=transposed)[0],
                wanted,
                TOLERANCE[kind],
            )
    bias = draw((64,), "float32")
    (y,) = run("bias_forward", [Spec((48, 64), dtype("bfloat16"))], [b, bias], relu=True)
    check(y, np.maximum(b.astype(np.float32) + bias, 0), TOLERANCE["bfloat16"])
    (y,) = run("dropout_working", [Spec(b.shape, b.dtype)], [b, np.asarray(7)], rate=0.4)
    check(y, op.dropout(b.astype(np.float32), 0.4, 7), TOLERANCE["bfloat16"])


NUMBERS = [np.float32(0.1), np.float32(0.9), np.float32(0.01)]


def test_grouped_updates():
    shapes = [(6, 5, 3, 3), (7,), (4, 9, 1, 1), (12, 8, 5, 5)] + [(3, 4)] * 50
    operands, taps, wanted = [np.asarray(n) for n in NUMBERS], [], []
    for seed, shape in enumerate(shapes):
        w, g, v = (draw(shape, "float32", 3 * seed + i) for i in range(3))
        kind = "bfloat16" if seed % 2 else "float32"
        gradient = last(g) if len(shape) == 4 else g
        operands += [w, gradient.astype(dtype(kind)), v]
        taps.append(shape[2] * shape[3] if len(shape) == 4 else 1)
        wanted += op.sgd(w, g.astype(dtype(kind)).astype(np.float32), v, *NUMBERS)
    results = [Spec(shape) for shape in shapes for _ in range(2)]
    found = run("", results, operands, fusion=update_all("MOMENTUM", len(shapes)), taps=tuple(taps))
    for one, other in zip(found, wanted, strict=True):
        check(one, other, 1e-6)


def test_grouped_updates_without_momentum():
    shapes = [(6, 5, 3, 3), (7,)] + [(3, 4)] * 50
    operands, taps, wanted = [np.asarray(NUMBERS[0])], [], []
    for seed, shape in enumerate(shapes):
        w, g = (draw(shape, "float32", 2 * seed + i) for i in range(2))
        operands += [w, last(g) if len(shape) == 4 else g]
        taps.append(shape[2] * shape[3] if len(shape) == 4 else 1)
        wanted.append(w - NUMBERS[0] * g)
    results = [Spec(shape) for shape in shapes]
    fusion = update_all("DESCEND", len(shapes))
    found = run("", results, operands, fusion=fusion, taps=tuple(taps))
    for one, other in zip(found, wanted, strict=True):
        check(one, other, 1e-6)


RULES = {
    "NESTEROV": (op.sgd, 1, (0.1, 0.9, 0.01), {"nesterov": True}),
    "LION": (op.lion, 1, (0.1, 0.9, 0.98, 0.01), {}),
    "ADAM": (op.adam, 2, (0.1, 0.3, 0.2, 0.9, 0.99, 1e-6, 0.01), {}),
    "ADAMW": (op.adam, 2, (0.1, 0.3, 0.2, 0.9, 0.99, 1e-6, 0.01), {"decoupled": True}),
}


@pytest.mark.parametrize("name", RULES)
def test_grouped_updates_of_other_optimizers(name):
    operator, slots, numbers, how = RULES[name]
    shapes = [(6, 5, 3, 3), (7,)] + [(3, 4)] * 50
    operands, taps, wanted = [np.asarray(n, np.float32) for n in numbers], [], []
    for seed, shape in enumerate(shapes):
        w, g, *kept = (draw(shape, "float32", 5 * seed + i) for i in range(2 + slots))
        kept = [np.abs(a) for a in kept]
        operands += [w, last(g) if len(shape) == 4 else g, *kept]
        taps.append(shape[2] * shape[3] if len(shape) == 4 else 1)
        exact = [a.astype(np.float64) for a in (w, g, *kept)]
        wanted += operator(*exact, *map(float, numbers), **how)
    results = [Spec(shape) for shape in shapes for _ in range(1 + slots)]
    fusion = update_all(name, len(shapes))
    found = run("", results, operands, fusion=fusion, taps=tuple(taps))
    for one, other in zip(found, wanted, strict=True):
        check(one, other, 2e-6)


def test_running_averages():
    from pareo.backends.cuda.nhwc.kernels.update import average_all

    vectors = [draw((1 + seed * 37,), "float32", seed) for seed in range(100)]
    operands = [a for v in vectors for a in (v, v[::-1].copy())]
    shares = tuple((0.9, 0.1 + seed / 100) for seed in range(100))
    results = [Spec(v.shape) for v in vectors]
    found = run("", results, operands, fusion=average_all(100), shares=shares)
    for one, v, (kept, share) in zip(found, vectors, shares, strict=True):
        check(one, kept * v.astype(np.float64) + share * v[::-1], 1e-6)


@KINDS
@pytest.mark.parametrize("batch", [1, 31, 128, 130])
@pytest.mark.parametrize(("rows", "columns"), [(128, 256), (136, 1000), (8, 24)])
def test_a_dense_layers_gradient_and_update(kind, batch, rows, columns):
    x, g = draw((batch, rows), kind, 1), draw((batch, columns), kind, 2)
    w, v = draw((rows, columns), "float32", 3), draw((rows, columns), "float32", 4)
    gradient = x.astype(np.float64).T @ g.astype(np.float64)
    spec = Spec(w.shape)
    numbers = [np.asarray(n) for n in NUMBERS]
    new, speed = run("dense_momentum", [spec, spec], [x, g, w, v, *numbers])
    rate, momentum, decay = map(float, NUMBERS)
    wanted = momentum * v + gradient + decay * w
    # The factors in bfloat16 are exact; those in float32 are rounded to 11 bits.
    tolerance = TF32 if kind == "float32" else 1e-6
    check(speed, wanted, tolerance)
    check(new, w - rate * wanted, tolerance)
    (new,) = run("dense_descend", [spec], [x, g, w, numbers[0]])
    check(new, w - rate * gradient, tolerance)


@KINDS
def test_flipped_filters(kind):
    w = draw((24, 3, 5, 16), kind)
    (flipped,) = run("flipped_filters", [Spec((16, 3, 5, 24), dtype(kind))], [w])
    check(flipped, w[:, ::-1, ::-1].transpose(3, 1, 2, 0), 0)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize(
    ("window", "padding"), [(1, (0, 0, 0, 0)), (3, (1, 1, 1, 1)), (5, (2, 1, 0, 2))]
)
def test_gradients_of_images_as_forward_convolutions(precision, window, padding):
    pytest.importorskip("cudnn")
    import cupy

    from pareo.backends.cuda.nhwc.conv import input_gradient_as_forward, plans
    from pareo.backends.cuda.nhwc.conv.problem import FILTERS, IMAGES, RESULT, Convolution

    kind = "bfloat16" if precision == "bfloat16" else "float32"
    high, wide = (9 + padding[i] + padding[i + 2] - window + 1 for i in range(2))
    g, w = draw((4, high, wide, 24), kind), draw((24, window, window, 16), kind)
    shapes = (4, 16, 9, 9), (24, 16, window, window), (4, 24, high, wide)
    one = Convolution("images", *shapes, (1, 1), padding, (1, 1), precision)
    with Device("cuda", precision=precision):
        plan = input_gradient_as_forward.plan(one, plans.best)
        found = cupy.full((4, 9, 9, 16), 99, dtype(kind))
        arrays = {IMAGES: found, FILTERS: cupy.asarray(w), RESULT: cupy.asarray(g)}
        plan.run(arrays, cupy.full(plan.workspace, 77, np.uint8))
    wanted = op.conv_input_gradient(
        first(g), first(w), size=(9, 9), stride=(1, 1), padding=padding, dilation=(1, 1)
    )
    check(cupy.asnumpy(found), last(wanted), TF32 if precision == "tf32" else TOLERANCE[kind])


@pytest.mark.parametrize("blocks", [1, 13, 132])
@pytest.mark.parametrize(
    ("images", "channels", "side", "count", "window", "padding", "stride"),
    [(3, 8, 9, 8, 3, 1, 1), (2, 48, 13, 64, 3, 0, 1), (5, 20, 11, 200, 5, 2, 1),
     (4, 112, 14, 96, 3, 1, 2), (7, 64, 7, 256, 1, 0, 1), (3, 132, 6, 130, 2, 1, 1)],
)  # fmt: skip
def test_filters_by_warpgroup_products(
    images, channels, side, count, window, padding, stride, blocks
):
    from pareo.backends.cuda.nhwc.conv import filter_gradient

    by_warpgroups(
        filter_gradient.plan, images, channels, side, count, window, padding, stride, blocks
    )


@pytest.mark.parametrize("blocks", [1, 13, 132])
@pytest.mark.parametrize(
    ("images", "channels", "side", "count", "window", "padding"),
    [(3, 8, 9, 8, 3, 1), (2, 48, 13, 64, 3, 0), (5, 20, 11, 200, 5, 2), (3, 132, 6, 130, 2, 1),
     (4, 64, 14, 96, 3, 1), (2, 128, 7, 70, 5, 2), (3, 12, 35, 64, 4, 0), (2, 112, 9, 64, 3, 1)],
)  # fmt: skip
def test_filters_by_strips(images, channels, side, count, window, padding, blocks):
    from pareo.backends.cuda.nhwc.conv import filter_gradient_strips

    by_warpgroups(
        filter_gradient_strips.plan, images, channels, side, count, window, padding, 1, blocks
    )


@pytest.mark.parametrize("blocks", [1, 13, 132])
@pytest.mark.parametrize("epilogue", ["bias", "bias_relu"])
@pytest.mark.parametrize(
    ("images", "channels", "side", "count", "window", "padding"),
    [(3, 12, 35, 64, 4, 0), (2, 48, 13, 64, 3, 0), (5, 20, 11, 48, 5, 2), (3, 4, 30, 8, 7, 3)],
)  # fmt: skip
def test_convolutions_from_few_channels(
    images, channels, side, count, window, padding, epilogue, blocks
):
    import cupy

    from pareo.backends.cuda.nhwc.conv import few_channels
    from pareo.backends.cuda.nhwc.conv.problem import BIAS, FILTERS, IMAGES, RESULT, Convolution

    out = side + 2 * padding - window + 1
    x = draw((images, side, side, channels), "float32")
    w, b = draw((count, window, window, channels), "float32", 1), draw((count,), "float32", 2)
    padded = {"stride": (1, 1), "padding": (padding,) * 4, "dilation": (1, 1)}
    shapes = (images, channels, side, side), (count, channels, window, window)
    result = (images, count, out, out)
    one = Convolution("result", *shapes, result, *padded.values(), "tf32", epilogue)
    plan = few_channels.plan(one, cupy.cuda.Device().compute_capability, blocks)
    if plan is None:
        pytest.skip("this GPU has no warpgroup products")
    found = cupy.full((images, out, out, count), 99, np.float32)
    arrays = {IMAGES: x, FILTERS: w, BIAS: b}
    arrays = {name: cupy.asarray(array) for name, array in arrays.items()} | {RESULT: found}
    plan.run(arrays, cupy.full(plan.workspace, 77, np.uint8))
    wanted = last(op.conv(first(x), first(w), **padded)) + b
    wanted = np.maximum(wanted, 0) if epilogue == "bias_relu" else wanted
    check(cupy.asnumpy(found), wanted, TF32)


def by_warpgroups(make, images, channels, side, count, window, padding, stride, blocks):
    import cupy

    from pareo.backends.cuda.nhwc.conv.problem import FILTERS, IMAGES, RESULT, Convolution

    out = (side + 2 * padding - window) // stride + 1
    x = draw((images, side, side, channels), "float32")
    g = draw((images, out, out, count), "float32")
    shapes = (images, channels, side, side), (count, channels, window, window)
    result = (images, count, out, out)
    padded = {"stride": (stride, stride), "padding": (padding,) * 4, "dilation": (1, 1)}
    one = Convolution("filters", *shapes, result, *padded.values(), "tf32")
    cut = make(one, cupy.cuda.Device().compute_capability, blocks)
    if cut is None:
        pytest.skip("this GPU has no warpgroup products")
    found = cupy.full((count, window, window, channels), 99, np.float32)
    arrays = {IMAGES: cupy.asarray(x), FILTERS: found, RESULT: cupy.asarray(g)}
    cut.run(arrays, cupy.full(cut.workspace, 77, np.uint8))
    wanted = op.conv_weight_gradient(first(x), first(g), size=(window, window), **padded)
    check(cupy.asnumpy(found), last(wanted), TF32)
