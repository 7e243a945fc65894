"""Convolutions of single pixels with the sums of batch normalisation, in one instruction."""

from collections import Counter

import numpy as np
import pytest
from devices import needs_gpu
from gpu_instructions import TOLERANCE, check, dtype, run

from pareo import Device, Spec, op, trace, value_and_grad
from pareo.backends.cuda.nhwc import lower
from pareo.backends.cuda.nhwc.conv import product_sums, summed_plans
from pareo.backends.cuda.nhwc.kernels.normalise import signs
from pareo.program import remove_common, remove_dead, tree

WIDE = list(product_sums.TILINGS["statistics"])
IMAGES = Spec((2, 128, 100, 100))  # normalised after their statistics
VECTOR, NARROW = Spec((128,)), Spec((32,))
FILTERS, BACK = Spec((32, 128, 1, 1)), Spec((128, 32, 1, 1))

BLOCK = FILTERS, BACK, NARROW, NARROW, VECTOR, VECTOR
ARGUMENTS = BLOCK, BLOCK, IMAGES


def bottleneck(images=IMAGES, stride=1, activation=op.relu):
    """Two residual blocks of a convolution of single pixels to 32 channels, and one back."""

    def block(x, w, v, a, b, c, d):
        y = activation(op.batch_norm(op.conv(x, w, stride=stride), a, b)[0])
        z = op.batch_norm(op.conv(y, v), c, d)[0]
        return op.relu(op.add(z, x)) if stride == 1 else op.relu(z)

    def loss(first, second, x):
        return op.sum(op.tanh(block(block(x, *first), *second)))

    program = trace(value_and_grad(loss, (0, 1)), *ARGUMENTS[:2], images)
    return remove_dead(remove_common(program))


def joined(program, choice, precision="bfloat16"):
    after = lower.lowered(program, precision, lambda _: True, choice=choice)
    known = {*after.inputs, *after.constants}
    for instruction in after.instructions:
        assert known.issuperset(instruction.inputs), instruction.name
        known.update(instruction.outputs)
    assert known.issuperset(after.outputs)
    assert [after.specs[n] for n in after.outputs] == [program.specs[n] for n in program.outputs]
    return after


def names(program):
    return Counter(instruction.name for instruction in program.instructions)


@pytest.mark.smoke
def test_sums_are_no_passes_of_their_own():
    asked = []
    after = joined(bottleneck(), lambda one: asked.append(one) or 64)
    found, apart = names(after), names(joined(bottleneck(), lambda _: None))
    assert apart["channel_statistics"] == 4
    assert found["product_statistics"] == 4
    assert not found["channel_statistics"]
    # The last normalisation's gradient comes from the loss, and the others from convolutions.
    assert apart["normalise_back_sums"] + apart["normalise_back_sums_by_signs"] == 4
    assert found["product_back_sums"] == 3
    assert found["flipped_filters"] == 3
    assert found["normalise_back_sums_by_signs"] == 1
    assert after.flops == joined(bottleneck(), lambda _: None).flops
    back = [one for one in asked if one.sums == "back"]
    assert {(one.activation, one.more, one.masks) for one in back} == {
        ("RELU", (), False),
        ("IDENTITY", ("signs", "other"), True),
    }


@pytest.mark.smoke
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_other_precisions_stay_apart(precision):
    found = names(joined(bottleneck(), lambda _: 64, precision))
    assert found["channel_statistics"] == 4
    assert not found["product_statistics"] + found["product_back_sums"]


@pytest.mark.smoke
def test_strides_stay_apart():
    found = names(joined(bottleneck(Spec((2, 128, 400, 400)), stride=2), lambda _: 64))
    assert found["product_statistics"] == found["channel_statistics"] == 2


def gradients(w, v, a, b, x, e, use):
    """Those of a normalisation between two convolutions, and what `use` makes of the error."""
    y, mean, variance = op.batch_norm(op.conv(x, w), a, b)
    g = op.conv_input_gradient(e, v, size=(100, 100))
    return op.batch_norm_gradient(*use(g, y), op.conv(x, w), a, mean, variance)


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("use", "together"),
    [(lambda g, y: (g,), 1), (lambda g, y: (op.exp(g),), 0), (lambda g, y: (op.add(g, y),), 0)],
    ids=["alone", "changed", "added"],
)
def test_only_sums_of_what_a_convolution_made_are_joined(use, together):
    specs = FILTERS, BACK, NARROW, NARROW, IMAGES, IMAGES
    program = trace(lambda *arrays: gradients(*arrays, use), *specs)
    found = names(joined(remove_dead(remove_common(program)), lambda _: 64))
    assert found["product_statistics"] == 1
    assert found["product_back_sums"] == together
    assert found["normalise_back_sums"] == 1 - together


@pytest.mark.smoke
def test_a_gradient_that_is_needed_before_its_sums_stays_apart():
    """Another normalisation reads it: only one of the two can be summed where it is made."""

    def both(w, v, a, b, x, e):
        y, mean, variance = op.batch_norm(op.conv(x, w), a, b)
        g = op.conv_input_gradient(e, v, size=(100, 100))
        first = op.batch_norm_gradient(g, op.conv(x, w), a, mean, variance)
        return first, op.batch_norm_gradient(g, y, b, mean, variance)

    specs = FILTERS, BACK, NARROW, NARROW, IMAGES, IMAGES
    after = joined(remove_dead(remove_common(trace(both, *specs))), lambda _: 64)
    found = names(after)
    assert found["product_back_sums"] == found["normalise_back_sums"] == 1


@pytest.mark.smoke
def test_work_arrays_have_room_for_every_block():
    for shape in ((1, 1, 1, 8), (128, 56, 56, 256), (128, 7, 7, 2048), (3, 40, 41, 136)):
        for wide in WIDE:
            images = Spec(shape, "uint16")
            rows, across = product_sums.grid(images, wide)
            assert 1 <= rows <= -(-int(np.prod(shape[:3])) // product_sums.ROWS)
            assert across * wide >= shape[-1] > (across - 1) * wide
            assert product_sums.partial_sums(images, wide).size >= (2 * shape[-1] + 1) * rows
    most = max(product_sums.shared(s, w) for s, all in product_sums.TILINGS.items() for w in all)
    assert most <= 227 << 10  # of a multiprocessor


# Pixels, channels of both factors: fewer than a tile, several tiles for each block, and remainders.
SHAPES = [((1, 1, 3), 8, 8), ((2, 13, 13), 64, 64), ((5, 28, 28), 72, 200), ((9, 56, 56), 512, 136)]
SHAPES += [((33, 28, 28), 200, 72), ((8, 14, 14), 1024, 256)]
SHAPE = pytest.mark.parametrize(("pixels", "depth", "channels"), SHAPES, ids=str)


def drawn(shape, seed, offset=0.0):
    numbers = np.random.default_rng([seed, *shape]).standard_normal(shape) + offset
    return numbers.astype(np.float32).astype(dtype("bfloat16"))


def factors(pixels, depth, channels):
    """Images, filters around a mean that is not zero, and their exact convolution."""
    x = drawn((*pixels, depth), 1)
    w = (drawn((channels, 1, 1, depth), 2, 0.3).astype(np.float32) / depth**0.5).astype(x.dtype)
    exact = x.astype(np.float64).reshape(-1, depth) @ w.astype(np.float64).reshape(-1, depth).T
    return x, w, exact.reshape(*pixels, channels)


@pytest.mark.gpu
@needs_gpu
@SHAPE
@pytest.mark.parametrize("wide", WIDE)
def test_convolution_and_statistics(wide, pixels, depth, channels):
    x, w, exact = factors(pixels, depth, channels)
    vector, spec = Spec((channels,)), Spec(exact.shape, x.dtype)
    y, mean, variance = run("product_statistics", [spec, vector, vector], [x, w], wide=wide)
    check(y, exact, TOLERANCE["bfloat16"])
    # The statistics are those of the result as it is stored; float32 sums deviations from a value.
    wide_y = y.astype(np.float64)
    np.testing.assert_allclose(mean, wide_y.mean((0, 1, 2)), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(variance, wide_y.var((0, 1, 2)), rtol=1e-5, atol=1e-6)
    again = run("product_statistics", [spec, vector, vector], [x, w], wide=wide)
    assert all(map(np.array_equal, again, (y, mean, variance)))


FUNCTIONS = {  # the gradient of an activation at z
    "IDENTITY": lambda z: np.ones_like(z),
    "RELU": lambda z: z > 0,
    "CLIP": lambda z: (z > -0.5) & (z < 1),
    "SILU": lambda z: (s := 1 / (1 + np.exp(-z))) * (1 + z * (1 - s)),
    "HARD_SWISH": lambda z: np.where(z <= -3, 0, np.where(z >= 3, 1, z / 3 + 0.5)),
}
BACKWARD = [(kind, more, False) for kind in FUNCTIONS for more in ((), ("other",))]
BACKWARD += [("IDENTITY", ("signs",), True), ("IDENTITY", ("signs", "other"), True)]
BACKWARD += [("RELU", ("other",), True)]


@pytest.mark.gpu
@needs_gpu
@SHAPE
@pytest.mark.parametrize(("activation", "more", "masks"), BACKWARD, ids=str)
def test_convolution_and_sums_of_the_backward_pass(
    activation, more, masks, pixels, depth, channels
):
    g, w, exact = factors(pixels, depth, channels)
    x, other = drawn(exact.shape, 3, 0.5), drawn(exact.shape, 4)
    random = np.random.default_rng(5)
    mean, variance = random.standard_normal(channels) / 10 + 0.5, random.random(channels) + 0.5
    scale, shift = random.standard_normal(channels), random.standard_normal(channels)
    vectors = [a.astype(np.float32) for a in (mean, variance, scale, shift)]
    vector, spec, epsilon = Spec((channels,)), Spec(exact.shape, x.dtype), 1e-5
    bits = random.integers(0, 256, signs(spec).shape, np.uint8)
    named = {"signs": bits, "other": other}
    results, operands = [vector, vector, spec], [g, w, x, *vectors, *(named[n] for n in more)]
    how = {"activation": activation, "limits": (-0.5, 1.0), "epsilon": epsilon}
    how |= {"more": more, "masks": masks, "wide": 64}
    to_scale, to_shift, out = run("product_back_sums", results, operands, **how)
    mean, variance, scale, shift = (a.astype(np.float64) for a in vectors)
    inverse = 1 / np.sqrt(variance + epsilon)
    apart = x.astype(np.float64) - mean
    d = exact + (other.astype(np.float64) if "other" in more else 0)
    if "signs" in more:
        d = np.where(np.unpackbits(bits, axis=-1, bitorder="little"), d, 0)
    else:
        d = d * FUNCTIONS[activation](apart * inverse * scale + shift)
    check(out, d if masks else exact, TOLERANCE["bfloat16"])
    # The convolution is rounded to bfloat16 before it is summed, as where it is summed apart.
    check(to_shift, d.sum((0, 1, 2)), TOLERANCE["bfloat16"])
    check(to_scale, (d * apart).sum((0, 1, 2)) * inverse, TOLERANCE["bfloat16"])
    again = run("product_back_sums", results, operands, **how)
    assert all(map(np.array_equal, again, (to_scale, to_shift, out)))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("activation", [op.relu, lambda a: op.clip(a, 0, 6)], ids=["relu", "clip"])
def test_a_program_computes_the_same_joined_or_apart(monkeypatch, activation):
    """As far as two orders of summation in bfloat16 agree, and as close to float64."""
    import cupy

    pytest.importorskip("cudnn")
    program = bottleneck(activation=activation)
    random = np.random.default_rng(7)

    def numbers(spec):
        size = spec.shape[1] ** -0.5 if spec.ndim == 4 and spec.shape[2] == 1 else 1
        return (random.standard_normal(spec.shape) * size).astype(np.float32)

    arguments = tree.transform(numbers, ARGUMENTS)
    there, device = tree.transform(cupy.asarray, arguments), Device("cuda", precision="bfloat16")
    found, used = {}, []
    ways = {"joined": lambda one: used.append(one) or 64, "apart": lambda _: None}
    for way, choice in ways.items():
        monkeypatch.setattr(summed_plans, "best", choice)
        found[way] = list(map(cupy.asnumpy, tree.leaves(program.compile(device)(*there))))
    assert len(used) == 7
    exact = tree.leaves(program.compile(Device("vectorized"))(*arguments))
    for mine, theirs, right in zip(found["joined"], found["apart"], exact, strict=True):
        size = np.linalg.norm(right)
        assert np.linalg.norm(mine - theirs) <= 0.05 * size
        assert np.linalg.norm(mine - right) <= 1.5 * np.linalg.norm(theirs - right) + 1e-3 * size
