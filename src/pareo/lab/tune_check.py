"""A result of `pareo tune` from outside: checked before anything uses it."""

import math
from typing import Any

from pareo.lab.experiment.results import Check
from pareo.parallel.tuning.outcome import SCHEMA
from pareo.parallel.tuning.space import Space, understood

STATES = ("complete", "pruned", "failed")


def checked(result: Any, source: str) -> dict[str, Any]:
    """The result, if it is a search's; otherwise a DataError says which field is wrong."""
    check = Check(source)
    check.field(result, "", dict, "an object")
    if result.get("kind") != "tune" or result.get("schema") != SCHEMA:
        expected = f"a result of `pareo tune` with schema {SCHEMA}"
        check.wrong("schema", expected, result.get("schema"))
    for name in ("when", "network", "data", "device"):
        check.field(result.get(name), name, str, "text")
    for name in ("epochs", "wanted"):
        check.number(result.get(name), name, least=1)
    check.machine(result.get("machine"))
    for name in ("space", "importances", "versions"):
        check.field(result.get(name), name, dict, "an object")
    for name, share in result["importances"].items():
        check.number(share, f"importances.{name}")
    check.number_or_none(result.get("test_accuracy"), "test_accuracy")
    space = understood(result["space"], f"{source}: space")
    check.field(result.get("trials"), "trials", list, "a list")
    for number, trial in enumerate(result["trials"]):
        _trial(check, trial, f"trials[{number}]", space)
    if len({trial["number"] for trial in result["trials"]}) < len(result["trials"]):
        check.wrong("trials", "trials with numbers that differ", "two of one number")
    judged = [trial["number"] for trial in result["trials"] if trial["accuracy"] is not None]
    if result.get("best") not in (None, *judged):
        check.wrong("best", "the number of a trial that has an accuracy", result["best"])
    return dict(result)


def _trial(check: Check, trial: Any, place: str, space: Space) -> None:
    check.field(trial, place, dict, "an object")
    check.number(trial.get("number"), f"{place}.number", least=0)
    if trial.get("state") not in STATES:
        check.wrong(f"{place}.state", f"one of {', '.join(STATES)}", trial.get("state"))
    for name in ("accuracy", "seconds"):
        check.number_or_none(trial.get(name, ""), f"{place}.{name}")
    check.field(trial.get("error") or "", f"{place}.error", str, "text")
    check.field(trial.get("curve"), f"{place}.curve", list, "a list")
    for number, accuracy in enumerate(trial["curve"]):
        check.number(accuracy, f"{place}.curve[{number}]")
    check.field(trial.get("parameters"), f"{place}.parameters", dict, "an object")
    if trial["accuracy"] is None:
        return  # it may have failed before it had any
    for name, bounds in space.ranges.items():
        above = 0 if bounds.get("log") else -math.inf
        check.number(trial["parameters"].get(name), f"{place}.parameters.{name}", above=above)
    for name, choices in space.choices.items():
        value = trial["parameters"].get(name)
        if value not in choices:
            shown = ", ".join(map(str, choices))
            check.wrong(f"{place}.parameters.{name}", f"one of {shown}", value)
