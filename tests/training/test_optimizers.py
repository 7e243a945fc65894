"""Optimizers: equal to PyTorch's for a hundred steps, Lion to the formula of its paper."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pareo import Device, trace
from pareo.spec import Spec
from pareo.training import SettingError, optimizers
from pareo.training.optimizers import SGD, Adam, AdamW, Lion, Optimizer

torch = pytest.importorskip("torch")

STEPS = 100
# A hundred steps, each with a handful of roundings: their errors add up to some 100 units in the
# last place at most. Adam divides by the root of a moment, which can double a relative error.
ROUNDING = {"float64": 1e-12, "float32": 2e-4}


def gradients(dtype: str, seed: int = 0) -> Any:
    """A gradient for each step: of a bowl with noise, so that neither sign nor size is constant."""
    noise = np.random.default_rng(seed).normal(size=(STEPS, 3, 4))
    return noise.astype(dtype)


def trained(optimizer: Optimizer, dtype: str, rates: Any, decay: float) -> Any:
    """A parameter after the steps, on the device in scope."""
    kind = np.dtype(dtype).type
    parameter = np.linspace(-1, 1, 12).reshape(3, 4).astype(dtype)
    slots = {name: np.zeros_like(parameter) for name in optimizer.slots}
    with Device("vectorized"):
        for step, noise in enumerate(gradients(dtype)):
            numbers = [kind(number) for number in optimizer.numbers(step, rates[step])]
            assert len(numbers) == optimizer.count
            gradient = parameter + noise
            parameter, slots = optimizer.update(parameter, gradient, slots, numbers, decay)
            assert set(slots) == set(optimizer.slots)
    return parameter


def torch_trained(make: Any, dtype: str, rates: Any) -> Any:
    start = np.linspace(-1, 1, 12).reshape(3, 4).astype(dtype)
    parameter = torch.nn.Parameter(torch.tensor(start))
    optimizer = make([parameter])
    for step, noise in enumerate(gradients(dtype)):
        optimizer.param_groups[0]["lr"] = rates[step]
        parameter.grad = parameter.detach() + torch.tensor(noise)
        optimizer.step()
    return parameter.detach().numpy()


CASES = {
    "sgd": (SGD(), lambda p, d: torch.optim.SGD(p, 0.1, weight_decay=d)),
    "momentum": (SGD(0.9), lambda p, d: torch.optim.SGD(p, 0.1, 0.9, weight_decay=d)),
    "nesterov": (
        SGD(0.9, nesterov=True),
        lambda p, d: torch.optim.SGD(p, 0.1, 0.9, weight_decay=d, nesterov=True),
    ),
    "adam": (Adam(), lambda p, d: torch.optim.Adam(p, 0.1, weight_decay=d)),
    "adam-betas": (
        Adam(0.8, 0.95, 1e-4),
        lambda p, d: torch.optim.Adam(p, 0.1, (0.8, 0.95), 1e-4, weight_decay=d),
    ),
    "adamw": (AdamW(), lambda p, d: torch.optim.AdamW(p, 0.1, weight_decay=d)),
}


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize("name", CASES)
def test_equal_to_torch(name: str, decay: float, dtype: str) -> None:
    optimizer, peer = CASES[name]
    rates = 0.01 + 0.04 * np.cos(np.linspace(0, 1.5, STEPS))
    ours = trained(optimizer, dtype, rates, decay)
    theirs = torch_trained(lambda p: peer(p, decay), dtype, rates)
    np.testing.assert_allclose(ours, theirs, rtol=ROUNDING[dtype], atol=ROUNDING[dtype] / 10)


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_lion_follows_its_paper(decay: float) -> None:
    rates = np.full(STEPS, 0.03)
    parameter = np.linspace(-1, 1, 12).reshape(3, 4)
    momentum = np.zeros_like(parameter)
    for noise in gradients("float64"):  # algorithm 2 of arXiv:2302.06675
        gradient = parameter + noise
        update = np.sign(0.9 * momentum + (1 - 0.9) * gradient)
        parameter = parameter - 0.03 * (update + decay * parameter)
        momentum = 0.99 * momentum + (1 - 0.99) * gradient
    np.testing.assert_allclose(trained(Lion(), "float64", rates, decay), parameter, rtol=1e-12)


def test_plain_sgd_stays_two_operators() -> None:
    """GPU fusions recognise the update by these operators."""

    def moved(parameter: Any, gradient: Any, rate: Any) -> Any:
        return SGD().update(parameter, gradient, {}, [rate], 0.0)[0]

    program = trace(moved, Spec((2,)), Spec((2,)), Spec(()))
    assert [line.operator.name for line in program.instructions] == ["scale", "sub"]


@pytest.mark.parametrize("optimizer", [SGD(0.9), Adam(), AdamW(), Lion()])
def test_the_numbers_of_many_steps_are_those_of_each(optimizer: Optimizer) -> None:
    rates = np.linspace(0.1, 0.3, 5)
    wanted = [optimizer.numbers(7 + row, float(rate)) for row, rate in enumerate(rates)]
    np.testing.assert_array_equal(optimizer.numbers_of(7, rates), wanted)
    assert optimizer.numbers_of(7, rates[:0]).shape == (0, optimizer.count)


def test_slots_and_numbers() -> None:
    assert [optimizers.parse(name).slots for name in optimizers.NAMES] == [
        (), ("velocity",), ("first", "second"), ("first", "second"), ("velocity",),
    ]  # fmt: skip
    assert SGD().numbers(7, 0.25) == (0.25,)
    assert Adam(0.5, 0.75).numbers(1, 0.25) == (0.25, 1 - 0.5**2, 1 - 0.75**2)


@given(
    st.one_of(
        st.builds(SGD, st.floats(0, 0.99)),
        st.builds(SGD, st.floats(0.1, 0.99), st.just(True)),
        st.builds(Adam, st.floats(0, 0.99), st.floats(0, 0.99), st.floats(1e-12, 1)),
        st.builds(AdamW, st.floats(0, 0.99), st.floats(0, 0.99), st.floats(1e-12, 1)),
        st.builds(Lion, st.floats(0, 0.99), st.floats(0, 0.99)),
    )
)
def test_text_and_back(optimizer: Optimizer) -> None:
    assert optimizers.parse(str(optimizer)) == optimizer


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: SGD(1.0), "a momentum from 0 to below 1; got 1.0"),
        (lambda: SGD(float("nan")), "a momentum from 0 to below 1; got nan"),
        (lambda: SGD(nesterov=True), "a momentum above 0 with nesterov; got 0"),
        (lambda: SGD(0.9, "yes"), "nesterov to be True or False; got 'yes'"),  # type: ignore[arg-type]
        (lambda: Adam(beta2=1), "a beta2 from 0 to below 1; got 1"),
        (lambda: Adam(epsilon=0.0), "an epsilon above 0; got 0.0"),
        (lambda: Lion(-0.1), "a beta1 from 0 to below 1; got -0.1"),
        (lambda: optimizers.parse("sgdm"), "sgd, nesterov, adam, adamw or lion; got 'sgdm'"),
        (lambda: optimizers.parse(3), "sgd, nesterov, adam, adamw or lion; got 3"),  # type: ignore[arg-type]
        (lambda: optimizers.parse("adam:1:2:3:4"), "adamw or lion; got 'adam:1:2:3:4'"),
        (lambda: optimizers.parse("adam:x"), "adamw or lion; got 'adam:x'"),
        (lambda: optimizers.parse("sgd:1.5"), "a momentum from 0 to below 1; got 1.5"),
    ],
)
def test_wrong_values(make: Any, reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        make()
