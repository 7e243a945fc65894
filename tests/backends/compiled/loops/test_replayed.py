"""Recorded steps: the same bits as instruction by instruction, whatever the arrays hold then."""

import gc
import time
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from operators.cases import CASES
from operators.drawing import Call

from pareo import Device, op, trace
from pareo.backends.compiled.loops.replayed import RecordedCalls, ReplayedSteps
from pareo.errors import ShapeError
from pareo.lab.arena.draw import drawn
from pareo.nn import BatchNorm, Conv, Dense, Dropout, Flatten, MaxPool, ReLU, Sequential
from pareo.program import tree
from pareo.training.optimizers import Adam
from pareo.training.recipe import Recipe
from pareo.training.step import Step, dropout_seeds, new_slots

NOT_REPLAYED = {
    "argmax", "attention", "attention_gradient", "attention_with_sums", "augment", "log", "max",
    "max_gradient", "norm", "squared_error", "take", "take_gradient",
}  # fmt: skip


def other_values(array: Any) -> Any:
    """Other numbers of the same kind, in another order; those of integers stay."""
    if array.dtype.kind != "f" or not array.size:
        return array.copy()
    return np.roll(array.reshape(-1), 1).reshape(array.shape) * array.dtype.type(0.75)


def replayed(program: Any, first: Any, second: Any, threads: int = 2) -> tuple[Any, RecordedCalls]:
    """What the third run on the same arrays computes, after their values have changed."""
    arrays = [np.array(a, order="C") for a in first]
    executable = program.compile(Device("compiled", threads=threads))
    calls = RecordedCalls(threads, arrays)
    with executable.claimed():
        run = executable.bind(*arrays, execute=calls)
        run()
        run()
        for array, new in zip(arrays, second, strict=True):
            array[...] = new
        return [np.copy(result) for result in run()], calls


@pytest.mark.parametrize("name", op.registry)
@settings(
    max_examples=8, derandomize=True, deadline=None, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(data=st.data())
def test_every_operator(name: str, data: Any) -> None:
    call: Call = data.draw(CASES[name].calls(data.draw(st.sampled_from(["float32", "float64"]))))
    kinds = {a.dtype for a in call.operands if isinstance(a, np.ndarray) and a.dtype.kind == "f"}
    kind = next(iter(kinds), np.dtype("float64"))
    first = [
        np.array(a, a.dtype if isinstance(a, np.ndarray) else kind, order="C")
        for a in call.operands
    ]
    program = trace(lambda *given: call.of(op.registry[name], *given), *first)
    second = [other_values(a) for a in first]
    found, calls = replayed(program, first, second)
    expected = tree.leaves(program.compile(Device("compiled"))(*second))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    if name in NOT_REPLAYED:
        assert all(stretch.replay is None for stretch in calls._stretches)


@pytest.mark.parametrize("small", [(0, 3), (0, 1), (1, 3), ()])
@pytest.mark.parametrize("name", ["add", "sub", "hadamard", "div"])
def test_nothing_meets_numbers_of_rows(name: str, small: tuple[int, ...]) -> None:
    """Without rows there is no size that NumPy could infer."""
    given = [np.ones((0, 3), "float32"), np.ones(small, "float32")]
    program = trace(getattr(op, name), *given)
    assert replayed(program, given, given)[0][0].shape == (0, 3)


def trained(step: Step, parameters: Any, slots: Any, data: Any, order: Any) -> Any:
    with step.device, step.without_loop():
        return step.run(parameters, slots, *data, order, 0.01, seed=5)


def one_by_one(step: Step, parameters: Any, slots: Any, data: Any, order: Any) -> Any:
    """The same by calls of the program."""
    images, labels = data
    seeds = step._seeds
    return [
        step(
            parameters, slots, images[row], labels[row], 0.01, dropout_seeds(5, number, seeds),
            number,
        )
        for number, row in enumerate(order)
    ]  # fmt: skip


def compare(network: Sequential, batch: int, threads: int, recipe: Recipe, steps: int = 5) -> Any:
    """Train both ways from the same weights; return the recorded steps."""
    random = np.random.default_rng(1)
    images = random.standard_normal((3 * batch, *network.inputs)).astype("float32")
    labels = random.integers(0, network.classes, 3 * batch)
    order = random.integers(0, 3 * batch, (steps, batch))
    step = Step(network, batch, Device("compiled", threads=threads), recipe)
    start = network.initialise(0, "float32")
    ours, theirs = ({path: a.copy() for path, a in start.items()} for _ in range(2))
    our_slots, their_slots = (new_slots(network, recipe, start) for _ in range(2))
    losses = trained(step, ours, our_slots, (images, labels), order)
    np.testing.assert_array_equal(
        losses, one_by_one(step, theirs, their_slots, (images, labels), order)
    )
    for path in ours:
        np.testing.assert_array_equal(ours[path], theirs[path], path)
    for name in our_slots:
        np.testing.assert_array_equal(our_slots[name], their_slots[name], name)
    return step._runner


def stretches(runner: Any) -> list[Any]:
    assert isinstance(runner, ReplayedSteps)
    assert runner._calls is not None
    return runner._calls._stretches


@pytest.mark.parametrize("index", range(6))
@pytest.mark.parametrize("kind", ["cnn", "mid"])
def test_drawn_networks(kind: str, index: int) -> None:
    one = drawn(7272, index, (kind,))
    runner = compare(one.network, min(one.batch, 6), 1 + index % 3, Recipe())
    assert any(stretch.replay is not None for stretch in stretches(runner))


def small(*more: Any) -> Sequential:
    layers = [Conv(8, 3, padding=1), BatchNorm(), ReLU(), MaxPool(2), *more, Flatten(), Dense(5)]
    return Sequential(layers, (3, 8, 8))


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_dropout_and_adam(threads: int) -> None:
    """Seeds and rates change from step to step."""
    runner = compare(small(Dropout(0.4)), 6, threads, Recipe(Adam()))
    assert [stretch.replay is not None for stretch in stretches(runner)] == [True]


class Steps:
    """A small network with data, trained by one `Step`."""

    def __init__(self) -> None:
        self.network = Sequential(
            [Conv(16, 3, padding=1), ReLU(), Conv(16, 5, stride=2, padding=2), Flatten(), Dense(4)],
            (8, 12, 12),
        )
        random = np.random.default_rng(3)
        self.images = random.standard_normal((12, 8, 12, 12)).astype("float32")
        self.labels = random.integers(0, 4, 12)
        self.order = np.arange(12).reshape(3, 4)
        self.step = Step(self.network, 4, Device("compiled", threads=2))

    def parameters(self) -> dict[str, Any]:
        return self.network.initialise(0, "float32")

    def run(self, parameters: dict[str, Any]) -> Any:
        return trained(self.step, parameters, {}, (self.images, self.labels), self.order)

    def one_by_one(self, parameters: dict[str, Any]) -> Any:
        data = self.images, self.labels
        return one_by_one(self.step, parameters, {}, data, self.order)


def test_other_parameters_take_the_place_of_those_that_were_recorded() -> None:
    steps = Steps()
    first, second, third = (steps.parameters() for _ in range(3))
    steps.run(first)
    np.testing.assert_array_equal(steps.run(second), steps.one_by_one(third))
    for path in first:
        np.testing.assert_array_equal(first[path], second[path])
        np.testing.assert_array_equal(second[path], third[path])


def test_the_parameters_of_the_caller_are_not_kept_alive() -> None:
    steps = Steps()
    parameters = steps.parameters()
    steps.run(parameters)
    seen = [weakref.ref(array) for array in parameters.values()]
    del parameters
    gc.collect()
    assert [one() for one in seen] == [None] * len(seen)


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("groups", [1, 16])
def test_filters_that_become_infinite_are_multiplied_in_another_way(
    number: float, groups: int
) -> None:
    """Zeros around errors would make NaN of them, so plain loops take the place of products."""
    random = np.random.default_rng(4)
    g = random.standard_normal((2, 16, 6, 6)).astype("float32")
    w = random.standard_normal((16, 16 // groups, 5, 5)).astype("float32")
    how = {"size": (12, 12), "stride": 2, "padding": 2, "groups": groups}
    program = trace(lambda g, w: op.conv_input_gradient(g, w, **how), g, w)
    infinite = w.copy()
    infinite[3, 0, 0, 0] = number
    found, calls = replayed(program, [g, w], [g, infinite])
    assert [stretch.replay is not None for stretch in calls._stretches] == [True]
    expected = program.compile(Device("vectorized"))(g, infinite)
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-4)  # sums of some 400 terms
    assert 0 < np.isfinite(found[0]).sum() < found[0].size


def test_a_wrong_label_is_an_error_in_a_repeated_step() -> None:
    steps = Steps()
    parameters = steps.parameters()
    steps.run(parameters)
    executable, runner = steps.step.executable, steps.step._runner
    assert isinstance(runner, ReplayedSteps)
    with steps.step.device, executable.claimed():
        batch, wanted, *scalars = runner._batch
        run = executable.bind(
            parameters, {}, batch, wanted, tuple(scalars), (), execute=runner._calls
        )
        run()
        wanted[1] = 4
        with pytest.raises(ShapeError, match="4"):
            run()
        wanted[1] = 0
        run()


def test_a_clock_sees_every_call_in_its_order() -> None:
    steps = Steps()
    seen: list[tuple[int, float, float]] = []
    with steps.step.without_loop():
        inside = steps.step.clocked(lambda *call: seen.append(call))
        assert inside is not None
        before = time.perf_counter()
        with inside:
            steps.run(steps.parameters())
        after = time.perf_counter()
    assert [place for place, _, _ in seen] == list(range(len(steps.step.executable.calls)))
    times = [moment for _, *both in seen for moment in both]
    assert times == sorted(times)
    assert before < times[0] < times[-1] < after
