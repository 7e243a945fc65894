"""Lowering and merging of programs: rewriting one needs no GPU."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from odd_programs import ODD
from recipes import sgd

from pareo import Device, nn, op, trace, value_and_grad
from pareo.backends.cuda.nhwc import lower, merge
from pareo.backends.cuda.nhwc.instructions import INSTRUCTIONS
from pareo.backends.cuda.runtime.indexed_batch import reads_in_place
from pareo.nn import networks
from pareo.program import remove_common, remove_dead, tree
from pareo.spec import Spec
from pareo.training.step import step_program

pytestmark = pytest.mark.smoke

PRECISIONS = ["float32", "tf32", "bfloat16"]


def names(program):
    return Counter(instruction.name for instruction in program.instructions)


def lowered(network, precision, batch=2):
    program = step_program(network, batch, sgd(0.9, 0.0005))
    return program, lower.lowered(program, precision, lambda _: True)


def modules():
    """A small GoogLeNet: two modules with several 1 x 1 convolutions of the same images."""

    def module(scale):
        branch = [nn.Conv(4 * scale, 1), nn.ReLU(), nn.Conv(8, 3, 1, 1), nn.ReLU()]
        other = [nn.Conv(2 * scale, 1), nn.ReLU(), nn.Conv(6, 5, 1, 2), nn.ReLU()]
        pooled = [nn.MaxPool(3, 1, 1), nn.Conv(4, 1), nn.ReLU()]
        return nn.Branches([nn.Conv(8, 1), nn.ReLU()], branch, other, pooled)

    layers = [nn.Conv(8, 3, 2, 1), nn.ReLU(), module(1), module(2), nn.Flatten(), nn.Dense(3)]
    return nn.Sequential(layers, (3, 9, 9))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "name",
    [
        "alexnet", "alexnet-original", "googlenet", "googlenet-auxiliary", "resnet18",
        "mobilenet-v2", "efficientnet-b0", "convnext-tiny", "vit-tiny-16",
    ],
)  # fmt: skip
def test_every_value_is_made_before_it_is_read(name, precision):
    before, after = lowered(networks.by_name(name), precision)
    known = {*after.inputs, *after.constants}
    for instruction in after.instructions:
        assert known.issuperset(instruction.inputs), instruction.name
        known.update(instruction.outputs)
    assert known.issuperset(after.outputs)
    assert [after.specs[n] for n in after.outputs] == [before.specs[n] for n in before.outputs]
    assert not {"conv", "conv_input_gradient", "max_pool", "lrn", "relu_gradient"} & names(
        after
    ).keys() or (precision != "bfloat16")


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["densenet121", "vit-tiny-16", "googlenet"])
def test_instructions_on_strided_images_read_evenly_spaced_pixels(name, precision):
    """They take one distance between pixels: that of a part of the channels, and of no other."""
    _, after = lowered(networks.by_name(name), precision)
    views = {i.outputs[0]: i for i in after.instructions if i.name in ("part", "transpose")}
    for instruction in after.instructions:
        lowers = INSTRUCTIONS.get(instruction.name)
        if lowers is None or not lowers.kernel.strided:
            continue
        for view in (views[n] for n in instruction.inputs if n in views):
            assert view.name == "part", instruction.name
            assert view.attributes["axis"] == after.specs[view.inputs[0]].ndim - 1


def test_images_change_their_layout_only_at_the_flattening():
    _, after = lowered(networks.alexnet(), "tf32")
    transposed = [i for i in after.instructions if i.name in ("channels_last", "channels_first")]
    filters = [i for i in transposed if i.inputs[0] in after.inputs]
    assert len(filters) == 4  # of five layers: the first one's filters go to depth
    assert len(transposed) == 4 + 2  # forward and backward between images and dense layers


@pytest.mark.parametrize("name", ["alexnet", "googlenet"])
def test_images_can_be_read_from_the_dataset(name):
    network = networks.by_name(name)
    before, after = lowered(network, "tf32")
    images = after.inputs[len(after.inputs) - 3 - network.seeds()]
    assert after.specs[images].shape == (2, *network.inputs)
    assert reads_in_place(after, images)
    assert not reads_in_place(before, images), "a plain convolution reads a gathered batch"
    kept = replace(after, outputs=(*after.outputs, images))
    assert not reads_in_place(kept, images), "the batch is a result, and would not be filled"


def test_small_parameters_are_updated_in_one_launch():
    _, after = lowered(networks.alexnet(), "float32")
    assert names(after)["sgd"] == 3  # the weights of the dense layers
    (grouped,) = [i for i in after.instructions if i.name == "update_all"]
    assert len(grouped.outputs) == 2 * 13


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
@pytest.mark.parametrize("momentum", [0.9, 0])
def test_large_dense_weights_are_updated_with_their_gradient(precision, momentum):
    program = step_program(networks.alexnet(), 2, sgd(momentum))
    after = lower.lowered(program, precision, lambda _: True)
    found = names(after)
    assert found["dense_momentum" if momentum else "dense_descend"] == 3
    assert not {"sgd", "scale", "sub"} & found.keys()
    assert after.flops == program.flops
    (grouped,) = [i for i in after.instructions if i.name == "update_all"]
    assert len(grouped.outputs) == (2 if momentum else 1) * 13


def test_bfloat16_leaves_the_parameters_and_the_loss_in_float32():
    _, after = lowered(networks.alexnet(), "bfloat16")
    assert {str(after.specs[n].dtype) for n in after.outputs} == {"float32"}
    images = [spec for spec in after.specs.values() if spec.ndim == 4 and spec.dtype.itemsize == 2]
    assert images


def test_small_networks_are_left_alone():
    program = step_program(networks.papers_cnn(), 128)
    assert not lower.worth_lowering(program)


def test_float64_is_left_alone():
    program = step_program(networks.alexnet(), 2, dtype="float64")
    assert not lower.worth_lowering(program)


def test_without_a_plan_a_convolution_stays_as_it_was():
    program = step_program(networks.alexnet(), 2, sgd(0.9))
    after = lower.lowered(program, "tf32", lambda one: one.computes == "result")
    assert names(after)["conv_forward"] == 5
    assert names(after)["conv_weight_gradient"] == 5
    assert names(after)["conv_input_gradient"] == 4


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ODD)
def test_odd_programs_are_whole(name, precision):
    function, *shapes = ODD[name]
    program = remove_dead(remove_common(trace(function, *map(Spec, shapes))))
    assert lower.worth_lowering(program)
    after = lower.lowered(program, precision, lambda _: True)
    known = {*after.inputs, *after.constants}
    for instruction in after.instructions:
        assert known.issuperset(instruction.inputs), instruction.name
        if instruction.name == "add_images":
            assert len(instruction.inputs) <= 4
        known.update(instruction.outputs)
    assert known.issuperset(after.outputs)


def gradients(network, batch=3):
    shapes = {path: Spec(p.shape) for path, p in network.parameters(network.inputs).items()}
    image, label = Spec((batch, *network.inputs)), Spec((batch,), "int64")
    program = trace(value_and_grad(network.loss), shapes, image, label)
    return remove_dead(remove_common(program))


def test_merged_layers_compute_the_same():
    network = modules()
    before = gradients(network)
    after = merge.merged(before)
    assert names(before)["conv"] - names(after)["conv"] == 2 * 2  # three become one, twice
    assert names(before)["add"] - names(after)["add"] == 2 * 2
    random = np.random.default_rng(1)
    parameters = network.initialise(1)
    images = random.standard_normal((3, *network.inputs)).astype(np.float32)
    arguments = parameters, images, np.array([0, 1, 2])
    device = Device("vectorized")
    wanted = [a.copy() for a in tree.leaves(before.compile(device)(*arguments))]
    found = tree.leaves(after.compile(device)(*arguments))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(
            one, other, rtol=2e-4, atol=1e-5
        )  # the order of summation differs


def test_layers_that_do_not_share_their_images_are_not_merged():
    program = gradients(nn.Sequential([nn.Conv(4, 1), nn.ReLU(), nn.Conv(4, 1), nn.ReLU(),
                                       nn.Flatten(), nn.Dense(3)], (2, 3, 3)))  # fmt: skip
    assert names(merge.merged(program)) == names(program)


def test_the_loop_over_images_leaves_lowered_programs_alone():
    from pareo.backends.cuda.epoch.layers import UnsupportedNetwork, layers_of

    _, after = lowered(networks.alexnet(), "tf32")
    with pytest.raises(UnsupportedNetwork):
        layers_of(after)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_filters_are_flipped_where_that_is_faster(precision):
    program = step_program(networks.alexnet(), 2)
    plain = lower.lowered(program, precision, lambda _: True)
    after = lower.lowered(program, precision, lambda _: True, lambda one: one.filters[2] == 5)
    found = names(after)
    assert found["flipped_filters"] == 1
    assert found["conv_backward_data"] == names(plain)["conv_backward_data"] - 1
    assert found["conv_forward"] == names(plain)["conv_forward"] + 1
    assert after.flops == plain.flops


def test_updates_are_grouped_by_their_rates():
    """Both gradients are scaled before either is subtracted: the second must not be lost."""

    def steps(x, w, v, g, h, fast, slow):
        first, second = op.scale(fast, g), op.scale(slow, h)
        return op.conv(x, w), op.sub(v, first), op.sub(w, second)

    filters = Spec((64, 64, 1, 1))
    number = Spec(())
    program = trace(steps, Spec((2, 64, 4, 4)), filters, filters, filters, filters, number, number)
    after = lower.lowered(program, "float32", lambda _: True)
    grouped = [i for i in after.instructions if i.name == "update_all"]
    assert [i.inputs[0] for i in grouped] == list(program.inputs[-2:])
    assert not {"sub", "scale"} & names(after).keys()


def two_gradients(apart):
    """Two 1 x 1 convolutions of the same images; gradients in one sum or in two."""

    def layer(x, w, b):
        return op.relu(op.add_bias(op.conv(x, w), b))

    def one(x, w, b, v, c):
        return op.sum(op.add(layer(x, w, b), op.scale(2, layer(x, v, c))))

    def both(x, w, b, v, c):
        if not apart:
            return value_and_grad(one, wrt=(0, 1, 2, 3, 4))(x, w, b, v, c)
        first = value_and_grad(lambda *a: op.sum(layer(*a)), wrt=(0, 1, 2))(x, w, b)[1]
        second = value_and_grad(lambda *a: op.sum(op.exp(layer(*a))), wrt=(0, 1, 2))(x, v, c)[1]
        return op.add(first[0], x), op.add(second[0], x), *first[1:], *second[1:]

    shapes = (2, 64, 4, 4), (64, 64, 1, 1), (64,), (64, 64, 1, 1), (64,)
    return remove_dead(remove_common(trace(both, *map(Spec, shapes)))), shapes


@pytest.mark.parametrize("apart", [False, True])
def test_gradients_are_merged_only_within_one_sum(apart):
    program, shapes = two_gradients(apart)
    after = merge.merged(program)
    assert names(after)["conv"] == (2 if apart else 1)
    random = np.random.default_rng(3)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    device = Device("vectorized")
    for found, wanted in zip(
        tree.leaves(after.compile(device)(*arrays)),
        tree.leaves(program.compile(device)(*arrays)),
        strict=True,
    ):
        # Sums of 64 to 2048 float32 terms in another order.
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


def test_a_layer_whose_filters_come_from_another_is_not_merged_with_it():
    """Merged, each of the two would depend on the other."""

    def loss(x, w, b, c):
        y = op.relu(op.add_bias(op.conv(x, w), b))
        v = op.reshape(op.part(op.reshape(y, (2, 1024)), 0, (0, 1)), (64, 16, 1, 1))
        z = op.relu(op.add_bias(op.conv(x, v), c))
        return op.sum(op.add(y, z))

    specs = Spec((2, 16, 4, 4)), Spec((64, 16, 1, 1)), Spec((64,)), Spec((64,))
    program = trace(value_and_grad(loss, wrt=(0, 1, 2, 3)), *specs)
    after = merge.merged(remove_dead(remove_common(program)))
    assert names(after)["conv"] == 2


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_gradients_of_filters_are_read_where_they_are(momentum):
    """The update of a large filter, by itself, reads its gradient channels last."""
    program = step_program(networks.by_name("resnet18"), 2, sgd(momentum, 0.0))
    found = names(lower.lowered(program, "bfloat16", lambda _: True))
    assert found["update_all"] > 1
    assert not found["channels_first"]
