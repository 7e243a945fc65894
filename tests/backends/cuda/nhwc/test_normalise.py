"""Batch normalisation in lowered programs: what it becomes, and what its kernels compute."""

from collections import Counter

import numpy as np
import pytest
from devices import needs_gpu
from gpu_instructions import TOLERANCE, check, dtype, run

from pareo import Device, Spec, op, trace, value_and_grad
from pareo.backends.cuda.nhwc import lower
from pareo.backends.cuda.nhwc.kernels.normalise import signs
from pareo.backends.cuda.nhwc.kernels.normalise_at_once import holds
from pareo.program import remove_common, remove_dead, tree

CHANNELS = 16
FILTERS = Spec((64, CHANNELS, 3, 3))
IMAGES = Spec((2, CHANNELS, 6, 6))
LARGE_IMAGES = Spec((2, CHANNELS, 100, 100))  # normalised after their statistics
VECTOR = Spec((64,))


def block(activation, images=LARGE_IMAGES):
    """conv, batch_norm, activation, conv, batch_norm, residual, relu."""

    def loss(parameters, x):
        w, v, a, b, c, d = parameters
        y = op.conv(x, w, padding=1)
        first = activation(op.batch_norm(y, a, b)[0])
        second = op.batch_norm(op.conv(first, v, padding=1), c, d)[0]
        return op.sum(op.relu(op.add(second, y)))

    specs = (FILTERS, Spec((64, 64, 3, 3)), *(VECTOR,) * 4)
    program = trace(value_and_grad(loss), specs, images)
    return remove_dead(remove_common(program))


def names(program, precision="bfloat16"):
    after = lower.lowered(program, precision, lambda _: True)
    known = {*after.inputs, *after.constants}
    for instruction in after.instructions:
        assert known.issuperset(instruction.inputs), instruction.name
        known.update(instruction.outputs)
    assert known.issuperset(after.outputs)
    assert [after.specs[n] for n in after.outputs] == [program.specs[n] for n in program.outputs]
    return Counter(instruction.name for instruction in after.instructions)


ACTIVATIONS = {
    "relu": op.relu,
    "clip": lambda a: op.clip(a, 0, 6),
    "silu": op.silu,
    "hard_swish": op.hard_swish,
}


@pytest.mark.smoke
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_and_residuals_are_no_passes_of_their_own(activation, precision):
    found = names(block(ACTIVATIONS[activation]), precision)
    assert found["channel_statistics"] == 2
    assert found["normalise_forward"] == found["normalise_with_signs"] == 1
    assert found["normalise_back_sums"] == found["normalise_back_sums_by_signs"] == 1
    assert found["normalise_back"] == found["normalise_back_plus"] == 1
    passes = {"add", "add_images", "relu", "relu_gradient", "relu_back", "activation_forward"}
    passes |= {"activation_back", activation, f"{activation}_gradient", "batch_norm"}
    assert not passes & found.keys()


@pytest.mark.smoke
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_small_images_are_normalised_with_their_statistics(activation):
    found = names(block(ACTIVATIONS[activation], IMAGES))
    assert found["normalise_at_once"] == found["normalise_back_at_once"] == 2
    assert not {"channel_statistics", "normalise_back_sums", "normalise_back"} & found.keys()


@pytest.mark.smoke
def test_statistics_that_are_read_first_stay_apart():
    def loss(w, x, a, b):
        y, mean, _ = op.batch_norm(op.conv(x, w, padding=1), a, b)
        return op.sum(op.relu(op.add_bias(y, op.exp(mean))))

    program = remove_dead(remove_common(trace(loss, FILTERS, IMAGES, VECTOR, VECTOR)))
    found = names(program)
    assert found["channel_statistics"] == 1
    assert not found["normalise_at_once"]


@pytest.mark.smoke
def test_a_normalised_value_that_others_read_is_computed():
    def loss(w, x, a, b):
        y = op.batch_norm(op.conv(x, w, padding=1), a, b)[0]
        return op.sum(op.add(op.relu(y), op.exp(y)))

    specs = FILTERS, IMAGES, VECTOR, VECTOR
    program = remove_dead(remove_common(trace(value_and_grad(loss, (0, 2, 3)), *specs)))
    found = names(program)
    assert found["normalise_at_once"] == found["normalise_forward"] == 1
    assert found["exp"] == 1


@pytest.mark.smoke
def test_channels_that_do_not_fill_vectors_stay_plain():
    def loss(w, x, a, b):
        return op.sum(op.relu(op.batch_norm(op.conv(x, w), a, b)[0]))

    odd = Spec((69, CHANNELS, 3, 3)), IMAGES, Spec((69,)), Spec((69,))
    found = names(remove_dead(remove_common(trace(value_and_grad(loss, (0, 2, 3)), *odd))))
    assert found["batch_norm"] == found["batch_norm_gradient"] == 1


@pytest.mark.smoke
def test_running_averages_move_in_one_launch():
    def step(w, x, a, b, mean, variance):
        y, now, spread = op.batch_norm(op.conv(x, w), a, b)
        new = op.add(op.scale(0.9, mean), op.scale(0.1, now))
        other = op.add(op.scale(0.9, variance), op.scale(0.2, spread))
        return op.sum(y), new, other

    program = remove_dead(remove_common(trace(step, FILTERS, IMAGES, *(VECTOR,) * 4)))
    found = names(program)
    assert found["average_all"] == 1
    assert not {"scale", "add"} & found.keys()


def reference(x, scale, shift, epsilon):
    x = x.astype(np.float64)
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return mean, variance, (x - mean) / np.sqrt(variance + epsilon) * scale + shift


def drawn(shape, kind, seed, offset=0.0):
    numbers = np.random.default_rng([seed, *shape]).standard_normal(shape) + offset
    return numbers.astype(np.float32).astype(dtype(kind))


SHAPES = [(4, 9, 9, 64), (2, 3, 5, 24), (1, 1, 2, 8), (3, 40, 41, 136), (32, 33, 32, 64)]
KINDS = pytest.mark.parametrize("kind", ["float32", "bfloat16"])
IMAGE_SHAPES = pytest.mark.parametrize("shape", SHAPES, ids=str)


@pytest.mark.gpu
@needs_gpu
@KINDS
@IMAGE_SHAPES
def test_statistics(kind, shape):
    for offset in (0.0, 300.0 if kind == "float32" else 3.0):
        x = drawn(shape, kind, 1, offset)
        vector = Spec(shape[-1:])
        mean, variance = run("channel_statistics", [vector, vector], [x])
        wanted = reference(x, 1, 0, 1e-5)
        check(mean, wanted[0], 1e-5)
        check(variance, wanted[1], 3e-5)  # float32: a mean of 300 costs some bits


@pytest.mark.gpu
@needs_gpu
@KINDS
@IMAGE_SHAPES
@pytest.mark.parametrize("activation", ["IDENTITY", "RELU", "CLIP", "SILU", "HARD_SWISH"])
def test_normalisation_and_its_gradients(kind, shape, activation):
    torch = pytest.importorskip("torch")
    functions = {
        "IDENTITY": lambda z: z, "RELU": torch.relu, "SILU": torch.nn.functional.silu,
        "CLIP": lambda z: torch.clamp(z, -0.5, 1), "HARD_SWISH": torch.nn.functional.hardswish,
    }  # fmt: skip
    channels, spec, epsilon = shape[-1], Spec(shape, dtype(kind)), 1e-5
    x, g, h, r = (drawn(shape, kind, seed) for seed in range(4))
    scale, shift = drawn((channels,), "float32", 5, 1.0), drawn((channels,), "float32", 6)
    mean, variance, _ = reference(x, scale, shift, epsilon)
    vectors = [mean.astype(np.float32), variance.astype(np.float32), scale, shift]
    how = {"activation": activation, "limits": (-0.5, 1.0)}

    def wanted(residual, *gradients):
        leaves = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in (x, scale, shift)]
        centred = leaves[0] - leaves[0].mean((0, 1, 2))
        z = centred / torch.sqrt(centred.square().mean((0, 1, 2)) + epsilon)
        z = z * leaves[1] + leaves[2]
        if residual is not None:
            z = z + torch.tensor(residual.astype(np.float64))
        y = functions[activation](z)
        y.backward(torch.tensor(sum(a.astype(np.float64) for a in gradients)))
        return y.detach().numpy(), [leaf.grad.numpy() for leaf in leaves]

    tolerance = TOLERANCE[kind] if kind == "bfloat16" else 2e-5  # of differences of large sums
    epsilons = {"epsilons": (epsilon, epsilon)}
    y, gradients = wanted(None, g)
    (found,) = run("normalise_forward", [spec], [x, *vectors], **how, **epsilons)
    check(found, y, tolerance)
    vector, more = Spec((channels,)), {**how, "epsilon": epsilon}
    sums = run("normalise_back_sums", [vector, vector], [x, *vectors, g], **more)
    if np.prod(shape[:3]) > 2:  # of two elements, the gradient is a difference of equal numbers
        (found,) = run("normalise_back", [spec], [x, g, *sums, *vectors], **more)
        check(found, gradients[0], tolerance)
        (plus,) = run("normalise_back_plus", [spec], [x, g, *sums, *vectors, r], **more)
        check(plus, gradients[0] + r.astype(np.float64), tolerance)
        check(sums[0], gradients[1], tolerance)
    check(sums[1], gradients[2], tolerance)
    if activation not in ("IDENTITY", "RELU"):
        return
    y, gradients = wanted(r, g, h)
    (found,) = run("normalise_forward", [spec], [x, *vectors, r], **how, **epsilons)
    check(found, y, tolerance)
    if activation == "IDENTITY":
        return
    found, bits = run(
        "normalise_with_signs", [spec, signs(spec)], [x, *vectors, r], **how, **epsilons
    )
    check(found, y, tolerance)
    operands = [x, *vectors, bits, g, h]
    by_signs = {"epsilon": epsilon}
    scales, shifts, d = run(
        "normalise_back_sums_by_signs", [vector, vector, spec], operands, **by_signs
    )
    if np.prod(shape[:3]) > 2:
        check(scales, gradients[1], tolerance)
    check(shifts, gradients[2], tolerance)
    masked = np.where(y > 0, g.astype(np.float64) + h.astype(np.float64), 0)
    check(d, masked, tolerance)
    (found,) = run(
        "normalise_forward", [spec], [x, *vectors, r, *vectors[:2], shift, scale], **how, **epsilons
    )
    other = (r.astype(np.float64) - mean) / np.sqrt(variance + epsilon) * shift + scale
    plain = (x.astype(np.float64) - mean) / np.sqrt(variance + epsilon) * scale + shift
    check(found, np.maximum(plain + other, 0), tolerance)


HELD_SHAPES = [(4, 9, 9, 64), (2, 3, 5, 24), (1, 1, 2, 8), (3, 40, 41, 136), (1, 128, 128, 16)]
HELD_SHAPES += [(3, 7, 7, 4096)]


@pytest.mark.gpu
@needs_gpu
@KINDS
@pytest.mark.parametrize("shape", HELD_SHAPES, ids=str)
@pytest.mark.parametrize("activation", ["IDENTITY", "RELU", "CLIP", "SILU", "HARD_SWISH"])
def test_normalisation_at_once(kind, shape, activation):
    """It computes what the instructions do that it replaces."""
    channels, spec, epsilon = shape[-1], Spec(shape, dtype(kind)), 1e-5
    assert holds(spec)
    x, g, h, r = (drawn(shape, kind, seed, 3.0 * (seed == 0)) for seed in range(4))
    scale, shift = drawn((channels,), "float32", 5, 1.0), drawn((channels,), "float32", 6)
    vector, how = Spec((channels,)), {"activation": activation, "limits": (-0.5, 1.0)}
    epsilons, tolerance = {"epsilons": (epsilon, 2 * epsilon)}, TOLERANCE[kind]
    exact = {"float32": 2e-5, "bfloat16": TOLERANCE["bfloat16"]}[kind]  # of differences of sums

    means = run("channel_statistics", [vector, vector], [x])
    vectors = [*means, scale, shift]
    other = [*means, shift, scale]
    activated = activation in ("IDENTITY", "RELU")  # residuals come with these alone
    for residual in ([], [r], [r, *other]) if activated else ([],):
        wanted = run("normalise_forward", [spec], [x, *vectors, *residual], **how, **epsilons)
        results = [spec, vector, vector]
        found = run("normalise_at_once", results, [x, scale, shift, *residual], **how, **epsilons)
        check(found[0], wanted[0], exact)
        check(found[1], means[0], 1e-6)
        check(found[2], means[1], 3e-6)
        assert np.array_equal(
            run("normalise_at_once", results, [x, scale, shift, *residual], **how, **epsilons)[0],
            found[0],
        )
    pair = [spec, signs(spec)]
    how_signs = {**how, "activation": "RELU"}
    _, bits = run("normalise_with_signs", pair, [x, *vectors, r], **how_signs, **epsilons)
    results = [spec, vector, vector, signs(spec)]
    found = run("normalise_at_once", results, [x, scale, shift, r], **how_signs, **epsilons)
    assert np.mean(found[3] != bits) < 1e-3  # of values that are 0 but for rounding

    more = {**how, "epsilon": epsilon}
    plain = {"activation": "IDENTITY", "limits": (0.0, 0.0), "epsilon": epsilon}
    parts = drawn((*shape[:3], channels + 8), kind, 9)[..., 8:]
    outputs = [spec, vector, vector]

    def compare(found, sums, error, how, addend=None):
        (wanted,) = run("normalise_back", [spec], [x, error, *sums, *vectors], **how)
        wanted = wanted.astype(np.float64) + (0 if addend is None else addend.astype(np.float64))
        if np.prod(shape[:3]) > 2:  # of two elements it is a difference of equal numbers
            check(found[0], wanted, 2 * exact)
            check(found[1], sums[0], exact)
        check(found[2], sums[1], exact)

    sums = run("normalise_back_sums", [vector, vector], [x, *vectors, g], **more)
    found = run("normalise_back_at_once", outputs, [x, g, *vectors], **more, more=())
    compare(found, sums, g, more)
    found = run(
        "normalise_back_at_once", outputs, [x, g, *vectors, parts], **more, more=("addend",)
    )
    compare(found, sums, g, more, parts)
    *sums, d = run("normalise_back_sums", [vector, vector, spec], [x, *vectors, g, h], **more)
    four = [*outputs, spec]
    found = run("normalise_back_at_once", four, [x, g, *vectors, h], **more, more=("other",))
    check(found[3], d, tolerance)
    compare(found, sums, d, plain)
    *sums, d = run(
        "normalise_back_sums_by_signs", [vector, vector, spec], [x, *vectors, bits, g, h],
        epsilon=epsilon,
    )  # fmt: skip
    operands = [x, g, *vectors, bits, h, parts]
    found = run(
        "normalise_back_at_once", four, operands, **plain, more=("signs", "other", "addend")
    )
    check(found[3], d, tolerance)
    compare(found, sums, d, plain, parts)


@pytest.mark.smoke
def test_gradients_of_concatenated_images_are_added_by_the_normalisation():
    """As in DenseNet: some channels of a gradient are read where they are."""

    def loss(parameters, x):
        w, v, a, b = parameters
        y = op.conv(x, w, padding=1)
        z = op.conv(op.relu(op.batch_norm(y, a, b)[0]), v, padding=1)
        joined = op.concat([y, z], axis=1)
        return op.sum(op.relu(joined))

    specs = FILTERS, Spec((32, 64, 3, 3)), VECTOR, VECTOR
    program = remove_dead(remove_common(trace(value_and_grad(loss), specs, LARGE_IMAGES)))
    found = names(program)
    assert found["normalise_back_plus"] == 1
    assert not {"add_images", "add"} & found.keys()


def pooled(parameters, x, how):
    w, a, b = parameters
    y = op.relu(op.batch_norm(op.conv(x, w, padding=1), a, b)[0])
    return op.sum(op.exp(op.max_pool(y, **how)))


POOL = {"size": 3, "stride": 2, "padding": 1}


def gradients_of_pooled(how):
    specs = FILTERS, VECTOR, VECTOR
    function = value_and_grad(lambda parameters, x: pooled(parameters, x, how))
    return remove_dead(remove_common(trace(function, specs, Spec((2, CHANNELS, 7, 9)))))


@pytest.mark.smoke
def test_what_is_pooled_is_never_stored():
    found = names(gradients_of_pooled(POOL))
    assert found["normalise_pool"] == found["normalise_pool_back"] == 1
    assert not {"normalise_forward", "max_pool_back", "max_pool_with_indices"} & found.keys()
    other = names(gradients_of_pooled({"size": 2, "stride": 2}))
    assert not other["normalise_pool"]
    assert other["max_pool_with_indices"] == 1


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("padding", [0, 1])
def test_pooled_normalisation_has_the_same_gradients(precision, padding):
    import cupy

    pytest.importorskip("cudnn")
    random = np.random.default_rng(1)
    shapes = FILTERS.shape, VECTOR.shape, VECTOR.shape
    parameters = tuple(random.standard_normal(shape).astype(np.float32) for shape in shapes)
    x = random.standard_normal((2, CHANNELS, 7, 9)).astype(np.float32)
    program = gradients_of_pooled({**POOL, "padding": padding})
    wanted = tree.leaves(program.compile(Device("vectorized"))(parameters, x))
    there = tuple(map(cupy.asarray, parameters)), cupy.asarray(x)
    device = Device("cuda", precision=precision)
    # In bfloat16 the rounding of x may change which element of a window is the largest.
    tolerance = 2e-5 if precision == "float32" else 5e-2
    for found, right in zip(tree.leaves(program.compile(device)(*there)), wanted, strict=True):
        assert np.linalg.norm(cupy.asnumpy(found) - right) <= tolerance * np.linalg.norm(right)
