"""Training steps by all blocks together: their kernel on the host, and steps on the GPU."""

import re
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from devices import ARCHITECTURES, needs_gpu
from host_kernels import run_loop, run_together
from recipes import sgd
from step_values import trained, use, values_of

from pareo import Device, nn, op
from pareo.backends.cuda.grid import direct, lower, norms, parts, products, tiles
from pareo.backends.cuda.grid import source as source_module
from pareo.backends.cuda.grid.emit import WORKS, emit
from pareo.backends.cuda.grid.joined import copied, joined, paired
from pareo.backends.cuda.grid.kernel import UNALIGNED
from pareo.backends.cuda.grid.loop import LoopSource
from pareo.backends.cuda.grid.lower import computed_together, expected
from pareo.backends.cuda.grid.plan import (
    LOSSES,
    Unsupported,
    awaited,
    levels,
    planned,
    reads,
    set_levels,
)
from pareo.backends.cuda.grid.tiles import Machine
from pareo.backends.cuda.grid.updates import with_updates
from pareo.backends.cuda.runtime import source as files
from pareo.backends.cuda.ways import chosen
from pareo.lab.arena.draw import drawn
from pareo.nn import Conv, Dense, Dropout, Flatten, Sequential, Tanh, networks
from pareo.nn.layers import Layer, Parameter
from pareo.training.optimizers import Adam, AdamW, Lion
from pareo.training.recipe import Recipe
from pareo.training.step import Step, new_slots, step_program

CASES = [("mlp", n) for n in (0, 1, 6, 7, 9, 11)] + [("cnn", n) for n in (1, 2, 3, 4, 5, 8, 9, 11)]
QUICK = [("mlp", 1), ("mlp", 9), ("cnn", 4), ("cnn", 5)]


def check(found, wanted, name):
    wanted = np.asarray(wanted)
    error = np.linalg.norm(found - wanted)
    # The gradient of a shift before a batch normalisation is 0: a sum whose terms cancel.
    assert error <= 3e-5 * np.linalg.norm(wanted) + 3e-6, (name, error, np.linalg.norm(wanted))


@pytest.mark.parametrize(
    ("kind", "index"),
    [pytest.param(*one, marks=() if one in QUICK else pytest.mark.slow) for one in CASES],
)
def test_the_kernel_computes_loss_and_gradients(kind, index, tmp_path):
    batch = 7 if index == 1 else 3  # more rows than blocks can have one each
    program = step_program(drawn(505, index, (kind,)).network, batch)
    source = emit(planned(program), Machine(2, threads=4, lanes=1))
    values, exact = values_of(program)
    for value, array in run_together(source, values, tmp_path).items():
        check(array, exact[value], f"%{value}")


def only_copies(*arguments, **options):
    """The ways that copy operands to shared memory, or all where there are none."""
    found = tiles.tiles_of(*arguments, **options)
    return [tile for tile in found if tile.deep] or found


@pytest.mark.parametrize(
    ("kind", "index"),
    [pytest.param(*one, marks=() if one in QUICK[:3] else pytest.mark.slow) for one in CASES],
)
def test_operands_in_shared_memory(kind, index, tmp_path, monkeypatch):
    monkeypatch.setattr(products, "tiles_of", only_copies)
    program = step_program(drawn(505, index, (kind,)).network, 3)
    source = emit(planned(program), Machine(2, threads=8, lanes=1))
    assert "product_of_copies<" in source.text
    values, exact = values_of(program)
    for value, array in run_together(source, values, tmp_path).items():
        check(array, exact[value], f"%{value}")


def only(name, works, source, task):
    """The ways whose code has this name, or all where there are none."""
    found = works(source, task)
    return [way for way in found if name in way.write()] or found


@pytest.mark.parametrize(
    "index",
    [
        pytest.param(n, marks=() if n in (3, 4, 8) else pytest.mark.slow)
        for n in (*range(7), *range(8, 12))
    ],
)
def test_direct_convolutions(index, tmp_path, monkeypatch):
    for name in ("conv", "conv_input_gradient", "conv_weight_gradient"):
        monkeypatch.setitem(WORKS, name, partial(only, "convolution", WORKS[name]))
    monkeypatch.setattr(direct, "MOST_COPIES", 10**4)  # there are few threads
    for name in ("ways_of", "ways_of_errors"):  # what is cached was found with another limit
        monkeypatch.setattr(direct, name, getattr(direct, name).__wrapped__)
    program = step_program(drawn(505, index, ("cnn",)).network, 3)
    source = emit(planned(program), Machine(2, threads=8, lanes=1))
    assert "convolution<" in source.text
    assert "convolution_of_errors<" in source.text
    values, exact = values_of(program)
    for value, array in run_together(source, values, tmp_path).items():
        check(array, exact[value], f"%{value}")


def only_on_tensors(shape, machine, end, parts=1, rows=False):
    """The ways on tensor cores, or all where there are none."""
    every = tiles.tiles_of(shape, machine, end, parts, rows)
    return every if rows else [*tiles._on_tensors(shape, machine, end, parts)] or every


@pytest.mark.parametrize(("batch", "recipe"), [(1, "descent"), (3, "adam"), (8, "momentum")])
def test_gradients_of_few_inputs_with_updates(batch, recipe, tmp_path):
    network = Sequential([Dense(37), Tanh(), Dense(70), Tanh(), Dense(5)], (11,))
    program = step_program(network, batch, RECIPES[recipe])
    plan = paired(with_updates(planned(program)))
    source = emit(plan, Machine(2, threads=4, lanes=1), LoopSource)
    assert source.text.count("dense_back<") == 2  # all but the first layer's
    check_loop(source, network, batch, 3, RECIPES[recipe], tmp_path)


@pytest.mark.parametrize(("batch", "recipe"), [(1, "adam"), (3, "descent"), (8, "momentum")])
def test_gradients_of_weights_of_few_images(batch, recipe, tmp_path, monkeypatch):
    monkeypatch.setitem(WORKS, "dot", partial(only, "weights_back<", WORKS["dot"]))
    network = Sequential([Dense(37), Tanh(), Dense(5)], (11,))
    plan = with_updates(planned(step_program(network, batch, RECIPES[recipe])))
    source = emit(plan, Machine(2, threads=4, lanes=1), LoopSource)
    assert "weights_back<" in source.text
    check_loop(source, network, batch, 3, RECIPES[recipe], tmp_path)


@pytest.mark.parametrize(("size", "beta"), [(5, 0.75), (2, 0.6), (9, 0.75)])
def test_local_response_normalisation(size, beta, tmp_path):
    lrn = nn.Lrn(size, alpha=0.3, beta=beta)
    program = step_program(Sequential([Conv(7, 2), lrn, Flatten(), Dense(3)], (2, 6, 5)), 3)
    source = emit(planned(program), Machine(2, threads=4, lanes=1))
    assert "lrn_back_at<" in source.text
    values, exact = values_of(program)
    for value, array in run_together(source, values, tmp_path).items():
        check(array, exact[value], f"%{value}")


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize(
    ("widths", "batch"), [((8, 24, 18), 17), ((27, 70, 9), 75), ((130, 16), 8)]
)
def test_products_on_tensor_cores(widths, batch, aligned, tmp_path, monkeypatch):
    monkeypatch.setattr(products, "tiles_of", only_on_tensors)
    layers = [one for width in widths[1:] for one in (Dense(width), Tanh())]
    program = step_program(Sequential([*layers, Dense(11)], widths[:1]), batch)
    source = emit(planned(program), Machine(2, threads=4, lanes=1))
    assert "product_on_tensors<" in source.text
    others = re.findall(r"\bproduct(?:_of_\w+)?<", source.text)
    assert len(others) <= 1  # of logits, whose losses follow
    if not aligned:
        monkeypatch.setattr(source_module, "TEMPLATE", UNALIGNED + source_module.TEMPLATE)
    values, exact = values_of(program)
    for value, array in run_together(source, values, tmp_path).items():
        check(array, exact[value], f"%{value}")


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [("MaxPool", one) for one in ((2, 2), (3, 4), ((2, 3), (4, 3)), (3, 3, 1), (2, 3, 1, True))]
    + [("AveragePool", one) for one in ((2, 2), ((3, 2), (3, 4)))],
)
def test_poolings_line_by_line(kind, pooling, tmp_path, monkeypatch):
    for name in ("max_pool", "average_pool"):
        monkeypatch.setitem(WORKS, name, partial(only, "pooled<", WORKS[name]))
    back = partial(only, "max_pool_back<", WORKS["max_pool_gradient"])
    monkeypatch.setitem(WORKS, "max_pool_gradient", back)
    layers = [Conv(3, 2), getattr(nn, kind)(*pooling), Flatten(), Dense(3)]
    program = step_program(Sequential(layers, (2, 12, 15)), 3)
    source = emit(planned(program), Machine(2, threads=4, lanes=1))
    assert ("max_pool_back<" in source.text) == (kind == "MaxPool")
    assert "pooled<" in source.text
    values, exact = values_of(program)
    for value, array in run_together(source, values, tmp_path).items():
        check(array, exact[value], f"%{value}")


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [("MaxPool", one) for one in ((3, 1, 1), (3, 2), (3, 2, 1, True), ((2, 5), (1, 2)), (2, 2))]
    + [("AveragePool", one) for one in ((3, 1, 1), ((3, 5), (2, 4)), (2, 1, 0, True), (6, 5))],
)
@pytest.mark.parametrize("pixels", [(9, 8), (7, 11)])
def test_poolings_of_whole_planes(kind, pooling, pixels, tmp_path, monkeypatch):
    for name in ("max_pool", "max_pool_gradient", "average_pool", "average_pool_gradient"):
        monkeypatch.setitem(WORKS, name, partial(only, "_planes<", WORKS[name]))
    layers = [Conv(3, 1), Tanh(), getattr(nn, kind)(*pooling), Flatten(), Dense(3)]
    program = step_program(Sequential(layers, (2, *pixels)), 3)
    source = emit(planned(program), Machine(2, threads=4, lanes=1))
    assert "_planes<" in source.text
    assert ("max_pool_back_planes<" in source.text) == (kind == "MaxPool")
    values, exact = values_of(program)
    for value, array in run_together(source, values, tmp_path).items():
        check(array, exact[value], f"%{value}")


@pytest.mark.parametrize(("channels", "split"), [(5, 1), (5, 2), (13, 4)])
def test_rows_side_by_side(channels, split, tmp_path, monkeypatch):
    for name, made in (("layer_norm", "norm"), ("layer_rows", "norm_back")):
        chosen_way = partial(ending, f"{made}_beside<", f", {split}>(", WORKS[name])
        monkeypatch.setitem(WORKS, name, chosen_way)
    layers = [Conv(channels, 2), nn.LayerNorm(1), Tanh(), Flatten(), Dense(3)]
    program = step_program(Sequential(layers, (2, 4, 5)), 3)
    source = emit(planned(program), Machine(2, threads=4, lanes=1))
    assert "layer_norm_beside<" in source.text
    assert "layer_norm_back_beside<" in source.text
    values, exact = values_of(program)
    for value, array in run_together(source, values, tmp_path).items():
        check(array, exact[value], f"%{value}")


def ending(first, last, works, source, task):
    """The ways whose code has both."""
    return [way for way in works(source, task) if first in way.write() and last in way.write()]


# Channels are in parts where there are many images. Backwards, there may be no room for two arrays.
@pytest.mark.parametrize(("images", "most"), [(4, 40000), (4, 300), (140, 40000), (140, 3000)])
def test_channels_in_shared_memory(images, most, tmp_path, monkeypatch):
    monkeypatch.setattr(norms, "MOST_KEPT", most)
    layers = [Conv(3, 2), nn.BatchNorm(), Tanh(), Flatten(), Dense(3)]
    program = step_program(Sequential(layers, (2, 5, 16)), images)
    source = emit(planned(program), Machine(2, threads=4, lanes=1))
    works = [work for level in source.levels for work in level.works if "batch_" in work.write()]
    assert [bool(work.room) for work in works].count(True) == len(works) // (
        1 if most > 3000 else 2
    )
    values, exact = values_of(program)
    for value, array in run_together(source, values, tmp_path).items():
        check(array, exact[value], f"%{value}")


@pytest.mark.parametrize(("kind", "index"), [("mlp", 1), ("cnn", 8)])
def test_nothing_runs_before_what_it_waits_for(kind, index):
    program = step_program(drawn(505, index, (kind,)).network, 16)
    source = emit(with_updates(planned(program)), Machine(132), LoopSource)
    waiting, first = awaited(source.plan), copied(source.plan)
    for task in source.plan.tasks:
        own = task.host or task
        assert task.level == own.level
        others = [other.host or other for other in waiting[id(task)]]
        assert all(other is own or other.level < own.level for other in others)
    set_levels(first)
    assert any(
        now.level > then.level for now, then in zip(source.plan.tasks, first.tasks, strict=True)
    )


@pytest.mark.parametrize(
    ("kind", "index", "made"),
    [
        ("mlp", 1, "layer_sums<"),
        ("cnn", 5, "batch_norm_back_of_part<"),
        pytest.param("cnn", 8, "sums_of_parts<", marks=pytest.mark.slow),
    ],
)
def test_sums_in_parts(kind, index, made, tmp_path, monkeypatch):
    for name in ("parts_of", "parts_of_sum", "parts_of_rows", "parts_of_channels"):
        monkeypatch.setattr(parts, name, lambda *_: 2)
    program = step_program(drawn(505, index, (kind,)).network, 3)
    source = emit(planned(program), Machine(2, threads=4, lanes=1))
    assert made in source.text
    values, exact = values_of(program)
    for value, array in run_together(source, values, tmp_path).items():
        check(array, exact[value], f"%{value}")


RECIPES = {
    "descent": Recipe(),
    "momentum": sgd(0.9, 0.01),
    "adam": Recipe(optimizer=Adam()),
    "adamw": Recipe(optimizer=AdamW()),
    "lion": Recipe(optimizer=Lion()),
    "average": Recipe(average=0.9),
}


@pytest.mark.parametrize(
    ("kind", "index", "recipe"),
    [("mlp", 1, "momentum"), ("mlp", 9, "adam"), ("cnn", 4, "descent"), ("cnn", 5, "lion")]
    + [("mlp", 9, "average"), ("mlp", 9, "adamw")]
    + [pytest.param(*one, "momentum", marks=pytest.mark.slow) for one in CASES],
)
def test_a_loop_trains(kind, index, recipe, tmp_path):
    network = drawn(505, index, (kind,)).network
    batch, steps, how = 8 if network.state else 3, 3, RECIPES[recipe]
    program = step_program(network, batch, how)
    source = emit(with_updates(planned(program)), Machine(2, threads=4, lanes=1), LoopSource)
    check_loop(source, network, batch, steps, how, tmp_path)


def check_loop(source, network, batch, steps, how, folder):
    """The losses and parameters of a loop are those of steps in float64."""
    program = source.plan.program
    random = np.random.default_rng(2)
    images = random.standard_normal((20, *network.inputs)).astype(np.float32)
    labels = random.integers(0, network.classes, 20)
    order = random.integers(0, 20, (steps, batch))
    step = Step(network, batch, Device("vectorized"), how, dtype=np.float64)
    parameters = {k: a.astype(np.float64) for k, a in network.initialise(3).items()}
    slots = new_slots(network, how, parameters)
    start = [*parameters.values(), *slots.values()]
    arrays = dict(zip(program.inputs, [a.astype(np.float32) for a in start], strict=False))
    wanted = step.run(parameters, slots, images.astype(np.float64), labels, order, rate=0.02)
    numbers = step.numbers(0.02, 0, steps).astype(np.float32)
    losses = run_loop(source, arrays, (images, labels, order), numbers, folder)
    np.testing.assert_allclose(losses, wanted, rtol=3e-5, atol=1e-7)  # of a sum near 1
    for name, found in zip((*parameters, *slots), arrays.values(), strict=True):
        check(found, {**parameters, **slots}[name], name)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("machine", [Machine(8, cluster=True), Machine(132)])
@pytest.mark.parametrize(("kind", "index"), [("mlp", 1), ("cnn", 5)])
def test_kernels_compile(kind, index, machine, arch):
    if machine.cluster and int(arch.removeprefix("sm_").rstrip("a")) < 90:
        pytest.skip("clusters need sm_90, and are not used before")
    program = step_program(drawn(505, index, (kind,)).network, 5)
    text = emit(planned(program), machine).text
    assert files.compile_to_binary(text, arch).startswith(b"\x7fELF")


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("batch", "made"), [(4, "dense_back<"), (64, "product_on_tensors<")])
def test_kernels_of_dense_layers_compile(batch, made, arch):
    network = Sequential([Dense(513), Tanh(), Dense(386), Tanh(), Dense(5)], (70,))
    plan = paired(with_updates(planned(step_program(network, batch))))
    text = emit(plan, Machine(132), LoopSource).text
    assert made in text
    assert files.compile_to_binary(text, arch).startswith(b"\x7fELF")


@pytest.mark.smoke
def test_a_step_is_two_launches():
    program = step_program(drawn(505, 1, ("mlp",)).network, 3, sgd(0.9))
    names = [one.name for one in computed_together(program).instructions if not one.is_view]
    assert names == ["together", "update_all"]


@pytest.mark.parametrize(("kind", "index"), CASES)
def test_flops_are_counted_once(kind, index):
    program = step_program(drawn(505, index, (kind,)).network, 32, sgd(0.9))
    assert computed_together(program).flops == program.flops


@pytest.mark.parametrize(("kind", "index", "batch"), [("mlp", 7, 2), ("cnn", 4, 1)])
def test_small_batches_of_small_networks_are_computed_this_way(kind, index, batch):
    assert chosen(step_program(drawn(505, index, (kind,)).network, batch)) == "grid"


def test_a_parameter_moves_when_nobody_reads_it_any_more():
    program = step_program(drawn(505, 6, ("mlp",)).network, 3, sgd(0.9))
    plan = with_updates(planned(program))
    makers = {n: task for task in plan.tasks for n in task.results}
    assert len(plan.over) == len(program.outputs) - 1
    for argument, result in plan.over.items():
        for task in plan.tasks:
            if argument in reads(plan, task) and task is not makers[result]:
                assert task.level < makers[result].level


@dataclass(frozen=True)
class Twice(Layer):
    """A matrix times its normalised rows: its gradient is made from the matrix."""

    def parameters(self, shape):
        return {"w": Parameter((*shape, *shape), (*shape, *shape), "glorot")}

    def apply(self, parameters, x, context):
        w, one = parameters["w"], np.ones(x.shape[1], x.dtype)
        return op.dot(x, op.dot(op.layer_norm(w, one, 0 * one), w))


def test_a_parameter_moves_after_blocks_that_make_its_gradient_from_it():
    program = step_program(Sequential([Twice(), Dense(3)], (8,)), 3)
    plan = with_updates(planned(program))
    makers = {n: task for task in plan.tasks for n in task.results}
    parameter = program.inputs[0]
    last = max(task.level for task in plan.tasks if task.one.name == "layer_rows")
    assert any(task.level == last and parameter in reads(plan, task) for task in plan.tasks)
    assert makers[plan.over[parameter]].level > last


def test_losses_take_no_level_of_their_own():
    program = step_program(drawn(505, 9, ("mlp",)).network, 3)
    plan = with_updates(planned(program))
    found = joined(plan, Machine(132))
    assert len(levels(found)) == len(levels(plan)) - 1
    assert {task.one.name for task in found.tasks if task.host} == LOSSES


def test_a_loss_of_many_classes_takes_a_level():
    network = Sequential([Dense(1000)], (8,))
    plan = planned(step_program(network, 3))
    assert not any(task.host for task in joined(plan, Machine(132)).tasks)


def test_a_step_with_random_numbers_is_no_loop():
    network = Sequential([Dense(8), Dropout(0.5), Dense(3)], (8,))
    program = step_program(network, 3)
    with pytest.raises(Unsupported):
        emit(with_updates(planned(program)), Machine(132), LoopSource)


def test_other_programs_are_left_alone():
    program = step_program(networks.by_name("resnet18"), 32)
    assert expected(program) is None


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(
    ("kind", "index", "machine"),
    [(*one, (False, 512)) for one in CASES]
    + [(*one, how) for one in QUICK for how in ((False, 256), (True, 256), (True, 512))],
)
@pytest.mark.parametrize(("batch", "momentum"), [(13, 0.9), (1, 0.0)])
def test_steps_on_the_gpu(kind, index, batch, momentum, machine, monkeypatch):
    network = drawn(505, index, (kind,)).network
    if batch == 1 and network.state:
        pytest.skip("statistics of one image are those of few pixels, and training is chaotic")
    use(monkeypatch, "grid")
    wanted = [one for one in lower.machines() if (one.cluster, one.threads) == machine]
    monkeypatch.setattr(lower, "machines", lambda: tuple(wanted))
    losses, found, step = trained(network, batch, "cuda", np.float32, momentum)
    assert "together" in {one.name for one in step.executable.program.instructions}
    exact = trained(network, batch, "vectorized", np.float64, momentum)
    np.testing.assert_allclose(losses, exact[0], rtol=3e-5, atol=1e-7)  # of a sum near 1
    for path, array in exact[1].items():
        check(found[path], array, path)
    again = trained(network, batch, "cuda", np.float32, momentum)
    assert all(np.array_equal(again[1][path], found[path]) for path in found)
