"""What changed between two results, and whether the times did."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from pareo.lab.experiment.statistics import Verdict, compare

# What is not the same work cannot be faster or slower.
WORK = ("kind", "network", "data", "batch", "precision", "images")


@dataclass(frozen=True)
class Change:
    """A field that is not the same; None where it is not there."""

    field: str
    before: Any
    after: Any


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Every setting, version, fact of the machine and line of a ledger that differs.

    >>> changes({"versions": {"jax": "1"}}, {"versions": {"jax": "2"}})
    [Change(field='versions.jax', before='1', after='2')]
    """
    both = _by_name(before).keys() & _by_name(after).keys()
    old, new = _facts(before, both), _facts(after, both)
    fields = sorted(old.keys() | new.keys(), key=lambda field: (field not in WORK, field))
    return [
        Change(field, old.get(field), new.get(field))
        for field in fields
        if old.get(field) != new.get(field)
    ]


def verdicts(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Verdict | str]:
    """For each contestant how it is after, beside before; or in words why that cannot be said."""
    other = [name for name in WORK if before.get(name) != after.get(name)]
    old, new = _by_name(before), _by_name(after)
    found: dict[str, Verdict | str] = {}
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in old or name not in new:
            found[name] = f"only in {'the first' if name in old else 'the second'}"
        elif not old[name]["samples"] or not new[name]["samples"]:
            found[name] = f"not timed in {'the second' if old[name]['samples'] else 'the first'}"
        elif other:
            found[name] = f"not the same work: {', '.join(other)}"
        else:
            found[name] = compare(new[name]["samples"], old[name]["samples"], interleaved=False)
    return found


def _by_name(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["contestant"]: row for row in result.get("rows", ())}


def _facts(result: dict[str, Any], contestants: Set[str]) -> dict[str, Any]:
    """Everything that may explain a difference, in one level; clocks and free memory of the moment
    are no settings, and what was measured is not what was asked."""
    facts: dict[str, Any] = {name: result.get(name) for name in (*WORK, "threads")}
    for part in ("versions", "machine"):
        facts |= _flat(part, result.get(part, {}))
    for row in (_by_name(result)[name] for name in contestants):
        ledger = {k: v for k, v in row["ledger"].items() if k != "peak_memory_bytes"}
        facts |= _flat(row["contestant"], {"status": row["status"], **ledger})
    return {
        field: value
        for field, value in facts.items()
        if field.split(".")[-1] not in ("free", "clock")
    }


def _flat(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        parts = {f"{name}.{key}": item for key, item in value.items()}
    elif isinstance(value, list):
        parts = {f"{name}[{place}]": item for place, item in enumerate(value)}
    else:
        return {name: value}
    return {field: part for key, item in parts.items() for field, part in _flat(key, item).items()}
