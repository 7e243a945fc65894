"""What changed between two races: settings, versions, machine, and times."""

from collections.abc import Set
from dataclasses import dataclass

from pareo.lab.experiment.results import Json, plain
from pareo.lab.experiment.statistics import Verdict, compare
from pareo.lab.race.result import RaceResult, Row

# Two times can be compared only where these are the same.
WORK = ("kind", "network", "data", "batch", "loss", "precision", "images")
OF_THE_MOMENT = ("free", "clock")  # facts of a GPU that are no settings


@dataclass(frozen=True)
class Change:
    """A field that is not the same; None where it is absent."""

    field: str
    before: Json
    after: Json


def changes(before: RaceResult, after: RaceResult) -> list[Change]:
    """Every setting, version, fact of the machine and line of a ledger that differs."""
    both = _by_name(before).keys() & _by_name(after).keys()
    old, new = _facts(before, both), _facts(after, both)
    fields = sorted(old.keys() | new.keys(), key=lambda field: (field not in WORK, field))
    return [
        Change(field, old.get(field), new.get(field))
        for field in fields
        if old.get(field) != new.get(field)
    ]


def verdicts(before: RaceResult, after: RaceResult) -> dict[str, Verdict | str]:
    """Whether each contestant became faster or slower; or in words why that cannot be said."""
    other = [name for name in WORK if getattr(before, name) != getattr(after, name)]
    old, new = _by_name(before), _by_name(after)
    found: dict[str, Verdict | str] = {}
    for name in old | new:
        if name not in old or name not in new:
            found[name] = f"only in {'the first' if name in old else 'the second'}"
        elif not old[name].samples or not new[name].samples:
            found[name] = f"not timed in {'the second' if old[name].samples else 'the first'}"
        elif other:
            found[name] = f"not the same work: {', '.join(other)}"
        else:
            found[name] = compare(new[name].samples, old[name].samples, interleaved=False)
    return found


def _by_name(result: RaceResult) -> dict[str, Row]:
    return {row.contestant: row for row in result.rows}


def _facts(result: RaceResult, contestants: Set[str]) -> dict[str, Json]:
    """Everything that may explain a difference, by the path of its field."""
    facts = {name: getattr(result, name) for name in (*WORK, "threads")}
    facts |= _flat("versions", result.versions) | _flat("machine", plain(result.machine))
    for row in result.rows:
        if row.contestant in contestants:
            ledger = {k: v for k, v in row.ledger.items() if k != "peak_memory_bytes"}
            facts |= _flat(row.contestant, {"status": row.status, **ledger})
    return {
        field: value for field, value in facts.items() if field.split(".")[-1] not in OF_THE_MOMENT
    }


def _flat(name: str, value: Json) -> dict[str, Json]:
    """Nested values by their paths.

    >>> _flat("machine", {"cores": 2, "cards": ["H200"]})
    {'machine.cores': 2, 'machine.cards[0]': 'H200'}
    """
    if isinstance(value, dict):
        parts = {f"{name}.{key}": item for key, item in value.items()}
    elif isinstance(value, list):
        parts = {f"{name}[{place}]": item for place, item in enumerate(value)}
    else:
        return {name: value}
    return {field: part for key, item in parts.items() for field, part in _flat(key, item).items()}
