"""Tokens in lowered programs: what transformers become, and what the kernels compute."""

from collections import Counter

import numpy as np
import pytest
from devices import needs_gpu
from gpu_instructions import TOLERANCE, check, draw, dtype, run

from pareo import Device, Spec, op, trace, value_and_grad
from pareo.backends.cuda.nhwc import lower
from pareo.backends.cuda.nhwc.kernels.bias import partial_sums
from pareo.program import remove_common, remove_dead, tree

BATCH, HEADS, SIZE, SIDE = 2, 2, 16, 3
FEATURES = HEADS * SIZE


def transformer(parameters, images):
    """A small vision transformer of one block; returns a number."""
    patch, wide, wide_bias, out, out_bias, up, up_bias, down, down_bias, scale, shift = parameters
    x = op.conv(images, patch, stride=4)
    count = SIDE * SIDE
    x = op.transpose(op.reshape(x, (BATCH, FEATURES, count)), (0, 2, 1))

    def dense(x, w, b):
        rows = op.reshape(x, (BATCH * count, x.shape[2]))
        return op.reshape(op.add_bias(op.dot(rows, w), b), (BATCH, count, w.shape[1]))

    y = dense(op.layer_norm(x, scale, shift), wide, wide_bias)
    parted = op.transpose(op.reshape(y, (BATCH, count, 3, HEADS, SIZE)), (2, 0, 3, 1, 4))
    three = op.split(parted, (1, 1, 1), axis=0)
    q, k, v = (op.reshape(one, (BATCH, HEADS, count, SIZE)) for one in three)
    y = op.transpose(op.attention(q, k, v), (0, 2, 1, 3))
    x = op.add(x, dense(op.reshape(y, (BATCH, count, FEATURES)), out, out_bias))
    y = dense(op.gelu(dense(op.layer_norm(x, scale, shift), up, up_bias)), down, down_bias)
    x = op.add(x, y)
    return op.mean(op.hadamard(x, x))


SHAPES = (
    (FEATURES, 16, 4, 4), (FEATURES, 3 * FEATURES), (3 * FEATURES,), (FEATURES, FEATURES),
    (FEATURES,), (FEATURES, 64), (64,), (64, FEATURES), (FEATURES,), (FEATURES,), (FEATURES,),
)  # fmt: skip
IMAGES = (BATCH, 16, 4 * SIDE, 4 * SIDE)


def program():
    specs = tuple(map(Spec, SHAPES))
    return remove_dead(remove_common(trace(value_and_grad(transformer), specs, Spec(IMAGES))))


@pytest.mark.smoke
def test_transformers_are_computed_in_the_working_precision():
    before = program()
    after = lower.lowered(before, "bfloat16", lambda _: True)
    known = {*after.inputs, *after.constants}
    for instruction in after.instructions:
        assert known.issuperset(instruction.inputs), instruction.name
        known.update(instruction.outputs)
    found = Counter(instruction.name for instruction in after.instructions)
    assert found["attention_forward"] == found["attention_back"] == 1
    assert found["layer_norm_forward"] == found["layer_norm_back"] == 2
    assert found["bias_activation_forward"] == 4  # one alone, one with gelu, two with residuals
    assert found["bias_activation_back"] == 1
    gone = {"split", "gelu", "gelu_gradient", "transpose", "add_bias", "layer_norm", "dot"}
    assert not gone & found.keys()
    assert [after.specs[n] for n in after.outputs] == [before.specs[n] for n in before.outputs]


@pytest.mark.smoke
def test_attention_without_a_plan_stays_as_it_was():
    after = lower.lowered(
        program(), "bfloat16", lambda _: True, lambda _: False, attends=lambda _: False
    )
    found = Counter(instruction.name for instruction in after.instructions)
    assert found["attention_with_sums"] == found["attention_gradient"] == 1


@pytest.mark.smoke
def test_attention_whose_queries_are_read_elsewhere_is_left_alone():
    def loss(w, images, x):
        y = op.sum(op.conv(images, w))
        parted = op.transpose(op.reshape(x, (2, 5, 3, 2, 8)), (2, 0, 3, 1, 4))
        q, k, v = (op.reshape(o, (2, 2, 5, 8)) for o in op.split(parted, (1, 1, 1), axis=0))
        z = op.reshape(op.transpose(op.attention(q, k, v), (0, 2, 1, 3)), (2, 5, 16))
        return op.add(y, op.add(op.sum(z), op.sum(q)))

    specs = Spec((64, 16, 3, 3)), Spec((2, 16, 5, 5)), Spec((2, 5, 48))
    after = lower.lowered(
        remove_dead(remove_common(trace(loss, *specs))), "bfloat16", lambda _: True
    )
    assert Counter(i.name for i in after.instructions)["attention_with_sums"] == 1


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 3e-3), ("bfloat16", 3e-2)])
def test_a_transformer_has_the_same_gradients_on_the_gpu(precision, tolerance):
    import cupy

    pytest.importorskip("cudnn")
    random = np.random.default_rng(1)
    parameters = tuple(0.2 * random.standard_normal(s).astype(np.float32) for s in SHAPES)
    images = random.standard_normal(IMAGES).astype(np.float32)
    wanted = tree.leaves(program().compile(Device("vectorized"))(parameters, images))
    device = Device("cuda", precision=precision)
    moved = tuple(map(cupy.asarray, parameters)), cupy.asarray(images)
    for found, right in zip(tree.leaves(program().compile(device)(*moved)), wanted, strict=True):
        # Sums of rounded numbers: 8 bits in bfloat16, 11 in tf32.
        assert np.linalg.norm(cupy.asnumpy(found) - right) <= tolerance * np.linalg.norm(right)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("features", [8, 192, 768])
def test_layer_normalisation_of_rows(kind, features):
    shape = 2, 131, features
    x, g, other = (draw(shape, kind, seed) for seed in range(3))
    scale, shift = draw((features,), "float32", 4), draw((features,), "float32", 5)
    how = {"axis": 2, "epsilon": 1e-6}
    tolerance = max(TOLERANCE[kind], 2e-5)
    plain = [a.astype(np.float64) for a in (x, g, scale, shift)]
    (y,) = run("layer_norm_forward", [Spec(shape, dtype(kind))], [x, scale, shift], epsilon=1e-6)
    check(y, op.layer_norm(plain[0], plain[2], plain[3], **how), tolerance)
    wanted = op.layer_norm_gradient(plain[1], plain[0], plain[2], **how)
    results = [Spec(shape, dtype(kind)), Spec((2 * features,))]
    d, both = run("layer_norm_back", results, [g, x, scale], epsilon=1e-6)
    check(d, wanted[0], tolerance)
    check(both, np.concatenate(wanted[1:]), tolerance)
    d, _ = run("layer_norm_back", results, [g, x, scale, other], epsilon=1e-6)
    check(d, wanted[0] + other.astype(np.float64), tolerance)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("activation", ["IDENTITY", "GELU", "GELU_TANH"])
def test_biases_with_activations(kind, activation):
    x, g = draw((77, 48), kind), draw((77, 48), kind, 1)
    b, more = draw((48,), "float32"), draw((77, 48), kind, 2)
    z = x.astype(np.float64) + b
    approximate = activation == "GELU_TANH"
    plain = activation == "IDENTITY"
    wanted = z if plain else op.gelu(z, approximate)
    spec, tolerance = Spec(x.shape, dtype(kind)), max(TOLERANCE[kind], 1e-5)
    (y,) = run("bias_activation_forward", [spec], [x, b], activation=activation)
    check(y, wanted, tolerance)
    (y,) = run("bias_activation_forward", [spec], [x, b, more], activation=activation)
    check(y, wanted + more.astype(np.float64), tolerance)
    d, partial = run(
        "bias_activation_back", [spec, partial_sums(spec)], [g, x, b], activation=activation
    )
    error = g.astype(np.float64)
    wanted = error if plain else op.gelu_gradient(error, z, approximate)
    check(d, wanted, tolerance)
    (sums,) = run("add_sums", [Spec((48,))], [partial])
    check(sums, wanted.sum(0), tolerance)
