"""Trials and hyper-parameters in words."""

from typing import Any

from pareo.lab.formatting import digits
from pareo.lab.tune.result import Trial, TuneResult


def shown(value: Any) -> str:
    """The value of a hyper-parameter.

    >>> shown(0.123456), shown(64), shown("relu")
    ('0.1235', '64', 'relu')
    """
    return digits(value) if isinstance(value, float) else str(value)


def described(trial: Trial) -> str:
    """A trial that has an accuracy, in a few words."""
    values = ", ".join(f"{name} {shown(value)}" for name, value in trial.parameters.items())
    return f"trial {trial.number} ({values}) with {trial.accuracy:.2%}"


def headline(result: TuneResult) -> str:
    """The best trial in one sentence."""
    best = result.best_trial
    if best is None:
        return "No trial finished; the errors below say why."
    test = result.test_accuracy
    unseen = "" if test is None else f", {test:.2%} on the test images, which no trial used"
    return f"The best is {described(best)} on the validation images{unseen}."
