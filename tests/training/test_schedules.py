"""Schedules: equal to PyTorch's, step by step, however the steps are asked for."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pareo.training import SettingError, schedules
from pareo.training.schedules import (
    Constant,
    Cosine,
    CosineEpochs,
    OneCycle,
    Schedule,
    Step,
    Warmup,
)

torch = pytest.importorskip("torch")
lr_scheduler = torch.optim.lr_scheduler

# PyTorch computes each rate from the one before, so roundings of all steps add up.
ROUNDING = 1e-10


def torch_rates(make: Any, rate: float, count: int) -> Any:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], rate)
    scheduler = make(optimizer)
    found = []
    for _ in range(count):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return np.array(found)


def warm(optimizer: Any, steps: int, then: Any, start: float = 0.01) -> Any:
    rise = lr_scheduler.LinearLR(optimizer, start, 1.0, steps)
    return lr_scheduler.SequentialLR(optimizer, [rise, then(optimizer)], [steps])


@given(st.integers(1, 9), st.integers(1, 9), st.floats(0.05, 1.5), st.integers(1, 4))
def test_step(every: int, epochs: int, factor: float, per_epoch: int) -> None:
    found = Step(every, factor).rates(0.3, 0, epochs * per_epoch, per_epoch, epochs)
    each = torch_rates(lambda o: lr_scheduler.StepLR(o, every, factor), 0.3, epochs)
    np.testing.assert_allclose(found, np.repeat(each, per_epoch), rtol=ROUNDING)


@given(st.integers(1, 20), st.integers(1, 9), st.floats(0, 1))
def test_cosine(epochs: int, per_epoch: int, final: float) -> None:
    total = epochs * per_epoch
    found = Cosine(final).rates(0.3, 0, total, per_epoch, epochs)
    theirs = torch_rates(
        lambda o: lr_scheduler.CosineAnnealingLR(o, total, eta_min=0.3 * final), 0.3, total
    )
    np.testing.assert_allclose(found, theirs, rtol=1e-8, atol=1e-12)


@given(st.integers(4, 60), st.integers(1, 9), st.floats(0.1, 0.9))
def test_onecycle(epochs: int, per_epoch: int, rise: float) -> None:
    total = epochs * per_epoch
    if rise * total <= 1:  # PyTorch divides by zero
        return
    found = OneCycle(rise).rates(0.3, 0, total, per_epoch, epochs)
    theirs = torch_rates(
        lambda o: lr_scheduler.OneCycleLR(o, 0.3, total, pct_start=rise, cycle_momentum=False),
        0.3,
        total - 1,
    )
    np.testing.assert_allclose(found[:-1], theirs, rtol=ROUNDING, atol=1e-12)
    assert found[-1] == pytest.approx(0.3 * 4e-6)


def test_warmup_with_each() -> None:
    per_epoch, epochs, rate = 7, 12, 0.3
    total, rise = per_epoch * epochs, 2 * per_epoch
    cases = [
        (Constant(), lambda o: lr_scheduler.ConstantLR(o, 1.0)),
        (Cosine(), lambda o: lr_scheduler.CosineAnnealingLR(o, total - rise)),
        (Step(3, 0.5), lambda o: lr_scheduler.StepLR(o, 3 * per_epoch, 0.5)),
    ]
    for then, peer in cases:
        found = Warmup(2, then).rates(rate, 0, total, per_epoch, epochs)
        theirs = torch_rates(lambda o, peer=peer: warm(o, rise, peer), rate, total)
        np.testing.assert_allclose(found, theirs, rtol=1e-8, atol=1e-12)
        in_steps = Warmup(steps=rise, then=then).rates(rate, 0, total, per_epoch, epochs)
        np.testing.assert_array_equal(found, in_steps)


def test_cosine_epochs_has_the_bits_of_earlier_versions() -> None:
    rate, epochs = 0.4, 10
    known = [rate / 8] + [
        rate * (1 + math.cos(math.pi * epoch / epochs)) / 2 for epoch in range(1, epochs)
    ]
    found = CosineEpochs().rates(rate, 0, 3 * epochs, 3, epochs)
    np.testing.assert_array_equal(found, np.repeat(known, 3))


ANY = st.recursive(
    st.one_of(
        st.just(Constant()),
        st.just(CosineEpochs()),
        st.builds(Cosine, st.floats(0, 1)),
        st.builds(Step, st.integers(1, 5), st.floats(0.1, 1)),
        st.builds(OneCycle, st.floats(0, 1)),
        st.builds(OneCycle, st.floats(0, 1), st.floats(0.01, 1), st.floats(0, 1)),
    ),
    lambda then: st.one_of(
        st.builds(Warmup, st.floats(0.25, 3), then, st.floats(0, 1)),
        st.builds(lambda steps, then: Warmup(steps=steps, then=then), st.integers(1, 9), then),
    ),
    max_leaves=1,
)


@given(ANY, st.integers(1, 30), st.integers(1, 5), st.integers(1, 6))
def test_any_part_of_a_run_has_the_same_rates(
    schedule: Schedule, first: int, per_epoch: int, epochs: int
) -> None:
    if isinstance(schedule, Warmup) and isinstance(schedule.then, Warmup):
        return
    total = per_epoch * epochs
    whole = schedule.rates(0.3, 0, total, per_epoch, epochs)
    assert whole.shape == (total,)
    assert whole.dtype == np.float64
    assert np.isfinite(whole).all()
    assert (whole >= 0).all()
    first = min(first, total)
    parts = [
        schedule.rates(0.3, 0, first, per_epoch, epochs),
        schedule.rates(0.3, first, total - first, per_epoch, epochs),
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    if not schedule.needs_epochs:
        longer = schedule.rates(0.3, 0, total, per_epoch, epochs + 7)
        np.testing.assert_array_equal(longer, whole)


@given(ANY)
def test_every_schedule_has_a_text(schedule: Schedule) -> None:
    assert schedules.parse(str(schedule)) == schedule


@pytest.mark.parametrize(
    "text",
    ["constant", "step:30:0.1", "cosine", "cosine:0.05", "cosine-epochs", "onecycle",
     "onecycle:0.2", "warmup:5+cosine", "warmup:0.5+step:2:0.5",
     "warmup:200steps+onecycle:0.3:0.1:0", "warmup:3:0.5"],
)  # fmt: skip
def test_text_and_back(text: str) -> None:
    assert str(schedules.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "stairs", "step", "step:x", "cosine:1:2", "warmup", "warmup:+cosine", "cosine+warmup:5",
     "warmup:5+", "warmup:5+stairs", "onecycle:", 7, None],
)  # fmt: skip
def test_wrong_text(text: Any) -> None:
    with pytest.raises(SettingError, match="fit expects a schedule such as constant, step"):
        schedules.parse(text)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Step(0), "epochs between steps to be a whole number from 1; got 0"),
        (lambda: Step(3, 0.0), "a factor above 0 of the rate; got 0.0"),
        (lambda: Cosine(2.0), "a final share of the rate from 0 to 1; got 2.0"),
        (lambda: OneCycle(-0.1), "a share of steps that rise, from 0 to 1; got -0.1"),
        (lambda: Warmup(0), "over some epochs or over some steps, not both"),
        (lambda: Warmup(1, steps=3), "over some epochs or over some steps, not both"),
        (lambda: Warmup(1, Warmup(1)), r"such as Cosine\(\); got Warmup"),
        (lambda: schedules.parse("warmup:inf"), "0 or more epochs of warm-up; got inf"),
    ],
)
def test_wrong_values(make: Any, reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        make()
