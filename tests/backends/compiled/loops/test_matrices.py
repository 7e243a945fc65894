"""Steps of matrices from a table in machine code: the same as float64, whatever the network."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some
from recipes import sgd

from pareo import Device, nn
from pareo.backends.compiled.loops.matrices import interpreter as machine
from pareo.backends.compiled.loops.matrices import packed_products, small_batch, tile_products
from pareo.backends.compiled.loops.matrices.table import table
from pareo.backends.compiled.runtime import registers
from pareo.training.losses import BinaryCrossEntropy
from pareo.training.optimizers import SGD
from pareo.training.recipe import Recipe
from pareo.training.step import Step

ACTIVATIONS = {
    "relu": nn.ReLU(), "sigmoid": nn.Sigmoid(), "tanh": nn.Tanh(), "gelu": nn.GELU(),
    "gelu_tanh": nn.GELU(approximate=True), "silu": nn.SiLU(), "hard_swish": nn.HardSwish(),
    "hard_sigmoid": nn.HardSigmoid(), "leaky_relu": nn.LeakyReLU(0.2), "clip": nn.Clip(),
}  # fmt: skip
STEPS = 3


def network(
    widths: list[int], activation: str, norm: str, residual: bool, bias: bool
) -> nn.Sequential:
    """Flattened images of the first width, dense layers, three classes."""
    first, *hidden = widths
    chosen = ACTIVATIONS[activation]
    layers: list[nn.Layer] = [nn.Flatten()]
    for width in hidden:
        after = [nn.BatchNorm()] if norm == "batch" else [nn.LayerNorm()] if norm else []
        layers += [nn.Dense(width, bias=bias), *after, chosen]
        if residual:
            layers.append(nn.Residual([*after, nn.Dense(width), chosen, nn.Dense(width)]))
    return nn.Sequential([*layers, nn.Dense(3)], (1, 1, first))


def trained(
    given_network: nn.Sequential, batch: int, device: Device, dtype: str, momentum: float = 0.0
) -> tuple[Any, dict[str, Any], Step]:
    """Losses and parameters after a few steps, and the step."""
    random = np.random.default_rng(5)
    images = random.standard_normal((batch + 9, *given_network.inputs)).astype(np.float32)
    labels = random.integers(0, 3, len(images))
    order = random.integers(0, len(images), (STEPS, batch))
    parameters = given_network.initialise(3, dtype)
    for p in parameters.values():
        if p.ndim == 1:  # all zeros and ones would hide errors
            p += 0.1 * random.random(p.shape)
    slots = {f"velocity.{path}": np.zeros_like(p) for path, p in parameters.items()}
    step = Step(given_network, batch, device, sgd(momentum), dtype)
    losses = step.run(
        parameters, slots if momentum else {}, images.astype(dtype), labels, order, rate=0.05
    )
    return losses, parameters, step


def check(given_network: nn.Sequential, batch: int, threads: int, workers: int | None) -> None:
    """Compare with float64; every worker is used if so many are asked for."""
    import pareo.backends.compiled.loops.matrices.runner as module

    least = module.MIN_FLOPS
    module.MIN_FLOPS = 1 if workers else least
    try:
        found, parameters, step = trained(
            given_network, batch, Device("compiled", threads=threads), "float32"
        )
    finally:
        module.MIN_FLOPS = least
    assert step.explain() == "from a table in machine code: all values are matrices"
    losses, expected, _ = trained(given_network, batch, Device("vectorized"), "float64")
    np.testing.assert_allclose(found, losses, rtol=2e-4, atol=2e-5)
    for path, value in expected.items():
        np.testing.assert_allclose(
            parameters[path], value, rtol=1e-3, atol=2e-4 * max(1, abs(value).max()), err_msg=path
        )


@settings(max_examples=25)
@given(
    widths=some.lists(some.integers(1, 150), min_size=1, max_size=3),
    activation=some.sampled_from(sorted(ACTIVATIONS)),
    norm=some.sampled_from(["", "", "layer", "batch"]),
    residual=some.booleans(),
    bias=some.booleans(),
    batch=some.integers(1, 80),
    threads=some.integers(1, 3),
)
@example([70, 130], "relu", "", False, True, 1, 2)
@example([70, 130, 140], "tanh", "", False, True, 2, 3)
@example([70, 130, 140], "gelu", "layer", True, True, 3, 2)
def test_steps_equal_float64(
    widths: list[int],
    activation: str,
    norm: str,
    residual: bool,
    bias: bool,
    batch: int,
    threads: int,
) -> None:
    if norm == "batch":
        batch += 16  # of few examples, a batch's variance may be almost nothing
    if norm:
        widths = [width + 12 for width in widths]
    made = network(widths, activation, norm, residual, bias)
    check(made, batch, threads, workers=threads)


@given(
    batch=some.integers(1, 20),
    rows=some.integers(1, 90),
    columns=some.integers(1, 90),
    cached=some.booleans(),
    seed=some.integers(0, 2**32 - 1),
)
@example(7, 40, 83, False, 0)
def test_tiles_of_any_size(batch: int, rows: int, columns: int, cached: bool, seed: int) -> None:
    """The products of a batch with weights, forward and backward, and nothing besides."""
    random = np.random.default_rng(seed)
    x, w, d = (
        random.standard_normal(shape).astype(np.float32)
        for shape in ((batch, rows), (rows, columns), (batch, columns))
    )
    lo, hi = sorted(random.integers(0, columns, 2))
    low, high = sorted(random.integers(0, rows, 2))
    y, dx = np.full((batch, columns), 7, np.float32), np.full((batch, rows), 7, np.float32)
    expected_y, expected_dx, expected_w = y.astype(float), dx.astype(float), w.astype(float)
    expected_y[:, lo:hi] = (x.astype(float) @ w)[:, lo:hi]
    expected_dx[:, low:high] = (d.astype(float) @ w.T)[:, low:high]
    expected_w[low:high] -= 0.5 * (x.T.astype(float) @ d)[low:high]
    at = {name: a.ctypes.data for name, a in {"x": x, "w": w, "d": d, "y": y, "dx": dx}.items()}
    forward = small_batch.forward if cached else small_batch.forward_uncached
    forward(at["y"], at["x"], at["w"], (batch, columns, rows), lo, hi)
    factor = np.float32(-0.5)
    small_batch.backward(
        at["dx"], at["w"], at["x"], at["d"], (batch, rows, columns), factor, low, high
    )
    near = 1e-4
    np.testing.assert_allclose(y, expected_y, atol=near)
    np.testing.assert_allclose(dx, expected_dx, atol=near)
    np.testing.assert_allclose(w, expected_w, atol=near)


@settings(deadline=None)
@given(
    batch=some.integers(1, 300),
    rows=some.integers(1, 150),
    columns=some.integers(1, 90),
    bias=some.booleans(),
    seed=some.integers(0, 2**32 - 1),
)
@example(300, 129, 33, True, 0)
@example(3, 15, 17, False, 0)
def test_register_tiles_of_any_size(
    batch: int, rows: int, columns: int, bias: bool, seed: int
) -> None:
    """A part of each product, and of the sums of columns; nothing else is written."""
    random = np.random.default_rng(seed)
    x, w, d, b = (
        random.standard_normal(shape).astype(np.float32)
        for shape in ((batch, rows), (rows, columns), (batch, columns), (columns,))
    )

    def part(size: int) -> tuple[int, int]:
        low, high = sorted(random.integers(0, size + 1, 2))
        return int(low), int(high)

    examples, inside, across = part(batch), part(rows), part(columns)
    y, dx = np.full((batch, columns), 7, np.float32), np.full((batch, rows), 7, np.float32)
    sums, new = np.full(columns, 7, np.float32), w.copy()
    expected = [array.astype(float) for array in (y, dx, new, sums)]
    these, those, columns_of_x = slice(*examples), slice(*across), slice(*inside)
    expected[0][these, those] = (x.astype(float) @ w + bias * b)[these, those]
    expected[1][these, columns_of_x] = (d.astype(float) @ w.T)[these, columns_of_x]
    expected[2][columns_of_x, those] -= 0.5 * (x.T.astype(float) @ d)[columns_of_x, those]
    expected[3][those] = d.astype(float).sum(axis=0)[those]
    at = [array.ctypes.data for array in (x, w, d, y, dx, new, sums)]
    added = b.ctypes.data if bias else 0
    tile_products.forward(at[3], at[0], at[1], added, (batch, columns, rows), examples, across)
    tile_products.transposed(at[4], at[2], at[1], (batch, rows, columns), examples, inside)
    sizes = rows, columns, batch
    tile_products.update(at[5], at[0], at[2], sizes, np.float32(-0.5), inside, across)
    tile_products.column_sums(at[6], at[2], batch, columns, *across)
    for found, exact in zip((y, dx, new, sums), expected, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=2e-4)


@pytest.mark.skipif(registers.LANES < 8, reason="on Arm, layers never lie in panels")
@settings(deadline=None)
@given(
    batch=some.integers(1, 600),
    rows=some.integers(1, 150),
    columns=some.integers(1, 150),
    bias=some.booleans(),
    seed=some.integers(0, 2**32 - 1),
)
@example(300, 129, 33, True, 0)
@example(20, 15, 300, False, 0)
@example(40, 512, 512, False, 0)
@example(3, 40, 17, False, 0)
def test_weights_in_panels_of_any_size(
    batch: int, rows: int, columns: int, bias: bool, seed: int
) -> None:
    """A part of each product; nothing else is written, and all weights come back."""
    random = np.random.default_rng(seed)
    x, w, d, b = (
        random.standard_normal(shape).astype(np.float32)
        for shape in ((batch, rows), (rows, columns), (batch, columns), (columns,))
    )
    examples = sorted(random.integers(0, batch + 1, 2).tolist())
    inside = sorted(random.integers(0, rows + 1, 2).tolist())
    first = int(random.integers(0, columns)) // packed_products.WIDE * packed_products.WIDE
    y, dx = np.full((batch, columns), 7, np.float32), np.full((batch, rows), 7, np.float32)
    again, exact = dx.copy(), [array.astype(float) for array in (y, dx, w)]
    these, those, own = slice(*examples), slice(first, columns), slice(*inside)
    exact[0][these, those] = (x.astype(float) @ w + bias * b)[these, those]
    exact[1][:, own] = (d.astype(float) @ w.T)[:, own]
    exact[2][own] -= 0.5 * (x.T.astype(float) @ d)[own]
    panels, shape = packed_products.empty(rows, columns), np.array([rows, columns])
    work = np.empty(packed_products.work_floats(rows, columns, batch), np.float32)
    at = [array.ctypes.data for array in (x, w, d, y, dx, panels, work)]
    middle = int(random.integers(0, rows + 1))
    for part in ((0, middle), (middle, rows)):
        packed_products.pack(at[5], at[1], shape, *part)
    added, half = b.ctypes.data if bias else 0, np.float32(0.5)
    sizes = rows, columns, batch
    packed_products.forward(
        at[3], at[0], at[5], added, (batch, columns, rows), tuple(examples), (first, columns), at[6]
    )
    packed_products.backward(again.ctypes.data, at[2], 0, at[5], sizes, half, tuple(inside), at[6])
    before = panels.copy()
    packed_products.backward(at[4], at[2], at[0], at[5], sizes, half, tuple(inside), at[6])
    updated = panels.copy()
    panels[:] = before
    packed_products.backward(0, at[2], at[0], at[5], sizes, half, tuple(inside), at[6])
    assert np.array_equal(updated, panels)
    assert np.array_equal(again, dx)
    w[:] = 7
    packed_products.unpack(at[1], at[5], shape, 0, rows)
    for found, expected in zip((y, dx, w), exact, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-4)


def test_workers_read_parts_of_large_weights() -> None:
    """Each would copy all of them otherwise."""
    step = Step(network([500, 600, 40], "relu", "", False, True), 64, Device("compiled"))
    split = {row.sizes: row.split for row in table(step.executable, 2).rows if row.sizes[2]}
    assert split[64, 600, 500] == machine.BY_COLUMNS
    assert split[64, 40, 600] == machine.BY_ROWS
    check(network([500, 600, 40], "relu", "", False, True), 64, 2, workers=2)


@pytest.mark.skipif(not registers.HAS_AVX512, reason="panels pay with AVX-512 only")
@pytest.mark.parametrize(("batch", "workers"), [(40, 1), (64, 2), (301, 3)])
def test_weights_in_panels(batch: int, workers: int) -> None:
    """Of layers that are large enough; a layer's gradient and update are one instruction."""
    made = network([300, 200, 40, 512, 100], "relu", "", True, True)
    step = Step(made, batch, Device("compiled", threads=workers))
    found = table(step.executable, workers)
    assert len(found.in_panels) >= 4
    fused = [row for row in found.rows if row.opcode == machine.PACKED_BACKWARD]
    assert len(fused) == len(found.in_panels)
    assert sum(row.values[0] < 0 for row in fused) == 1  # the first layer
    check(made, batch, workers, workers)


@pytest.mark.skipif(not registers.HAS_AVX512, reason="panels pay with AVX-512 only")
def test_weights_that_others_read_lie_in_no_panels() -> None:
    made = network([300, 200], "relu", "", False, True)
    averaged = Step(made, 64, Device("compiled"), Recipe(SGD(), average=0.9))
    assert not table(averaged.executable, 1).in_panels
    assert table(Step(made, 64, Device("compiled")).executable, 1).in_panels


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("norm", ["", "batch"])
def test_every_activation(activation: str, norm: str) -> None:
    check(network([20, 30, 25], activation, norm, True, True), 40, 2, workers=2)


def test_many_rows_are_summed_in_blocks() -> None:
    check(network([17, 70], "relu", "batch", False, True), 600, 2, workers=2)
    check(network([17, 1100], "relu", "layer", False, True), 300, 1, workers=None)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_threads_give_the_same_bits(threads: int) -> None:
    made = network([50, 120, 90], "silu", "layer", True, True)
    first = trained(made, 64, Device("compiled", threads=threads), "float32")
    for _ in range(3):
        again = trained(made, 64, Device("compiled", threads=threads), "float32")
        assert np.array_equal(first[0], again[0])
        assert all(np.array_equal(first[1][path], again[1][path]) for path in first[1])


@pytest.mark.skipif(not registers.HAS_AVX512, reason="tiles pay with AVX-512 only")
@pytest.mark.parametrize(
    ("batch", "workers", "activation", "norm"),
    [(1, 2, "relu", ""), (5, 2, "gelu", "layer"), (16, 3, "sigmoid", ""), (20, 2, "clip", "batch")],
)
def test_workers_multiply_the_rows_of_weights_that_they_update(
    batch: int, workers: int, activation: str, norm: str
) -> None:
    """Each layer's product is the sum of their parts."""
    made = network([300, 200, 151, 230], activation, norm, True, True)
    step = Step(made, batch, Device("compiled"))
    found = table(step.executable, workers)
    opcodes = [row.opcode for row in found.rows]
    assert opcodes.count(machine.PARTIAL_FORWARD) == opcodes.count(machine.ADD_PARTS) >= 3
    parts = [row for row in found.rows if row.opcode == machine.PARTIAL_FORWARD]
    assert all(one.values[0] != other.values[0] for one, other in pairwise(parts))
    assert all(row.barrier for row in found.rows if row.opcode == machine.ADD_PARTS)
    check(made, batch, workers, workers)
    first = trained(made, batch, Device("compiled", threads=workers), "float32")
    for _ in range(20):
        again = trained(made, batch, Device("compiled", threads=workers), "float32")
        assert np.array_equal(first[0], again[0])


def test_many_weights_are_worth_a_worker_whatever_the_batch() -> None:
    made = network([400, 700], "relu", "", False, True)
    assert Step(made, 1, Device("compiled", threads=2))._runner._workers == 2
    assert (
        Step(network([40, 70], "relu", "", False, True), 1, Device("compiled"))._runner._workers
        == 1
    )


def test_small_batches_update_weights_as_they_are_read() -> None:
    step = Step(network([70, 130, 140], "relu", "", False, True), 2, Device("compiled", threads=1))
    opcodes = [row.opcode for row in table(step.executable, 1).rows]
    assert opcodes.count(machine.SMALL_BACKWARD) == 2  # not in the first layer: x has no gradient
    assert opcodes.count(machine.SMALL_UPDATE) == 1


def test_rows_of_a_large_batch_need_few_barriers() -> None:
    """One before updates read the whole batch, and none between the layers."""
    step = Step(network([70, 130], "gelu", "layer", False, True), 256, Device("compiled"))
    rows = table(step.executable, 2).rows
    first = next(n for n, row in enumerate(rows) if row.barrier)
    assert rows[first].opcode in (machine.COLUMN_SUMS, machine.PRODUCT, machine.TILE_UPDATE)
    assert machine.LOSS in [row.opcode for row in rows[:first]]


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Flatten(), nn.Dense(5), nn.ReLU(), nn.Dropout(0.5), nn.Dense(3)],
        [nn.Flatten(), nn.Dense(5), nn.Softmax(), nn.Dense(3)],
        [nn.Conv(2, 1), nn.Flatten(), nn.Dense(3)],
    ],
)
def test_anything_else_is_left_to_others(layers: list[Any]) -> None:
    step = Step(nn.Sequential(layers, (1, 2, 3)), 4, Device("compiled"))
    assert "table" not in step.explain()


def test_a_seed_is_not_taken_for_labels() -> None:
    """With a loss whose targets are no whole numbers, the seed of dropout is the only one."""
    layers = [nn.Flatten(), nn.Dropout(0.3), nn.Dense(1)]
    recipe = Recipe(loss=BinaryCrossEntropy(), train_only=("2.b",))
    made = nn.Sequential(layers, (3, 2, 2))
    step, parameters = Step(made, 4, Device("compiled"), recipe), made.initialise(0)
    random = np.random.default_rng(0)
    images = random.random((8, 3, 2, 2)).astype("float32")
    targets = random.integers(0, 2, (8, 1)).astype("float32")
    losses = step.run(parameters, {}, images, targets, np.arange(8).reshape(2, 4), 0.1)
    assert np.isfinite(losses).all()
    assert parameters["2.b"].any()


def test_without_a_table_steps_run_as_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    made = network([20, 30], "silu", "batch", False, True)
    losses, _, step = trained(made, 24, Device("compiled", threads=1), "float32")
    monkeypatch.setattr(step, "_runner", None)  # what is not there cannot be used
    with step.without_loop():
        assert step.explain().startswith("instruction by instruction")
        random = np.random.default_rng(5)
        images = random.standard_normal((33, *made.inputs)).astype(np.float32)
        labels = random.integers(0, 3, 33)
        found = step.run(made.initialise(3), {}, images, labels, np.arange(24)[None], 0.05)
    assert np.isfinite(found).all()
    assert found.shape == (1,) != losses.shape


def test_a_step_that_does_not_run_takes_no_memory() -> None:
    """A sweep predicts the memory of batches that may not fit."""
    step = Step(network([20, 30], "relu", "", False, True), 10**9, Device("compiled", threads=1))
    assert step.memory() > 100 * 10**9
    assert "executable" not in vars(step)
