"""Which counters this machine allows, and why not better ones."""

from collections.abc import Callable
from dataclasses import dataclass

from pareo.lab.machine.counters import cupti, ncu, perf_event

TIMING = "timing"


@dataclass(frozen=True)
class Rung:
    """The best source of figures here, and in one line what is above it and why it is not used."""

    name: str
    why: str


# From the best down: a name, and what tells in one line why it cannot be used here.
LADDERS: dict[str, list[tuple[str, Callable[[], str]]]] = {
    "cuda": [("ncu", ncu.why_not), ("CUPTI", cupti.why_not)],
    "cpu": [("perf_event", perf_event.why_not)],
}


def rung_of(place: str) -> Rung:
    """The highest rung that "cpu" or "cuda" offers here.

    >>> rung_of("cpu").name in ("perf_event", "timing")
    True
    """
    reasons: list[str] = []
    for name, why_not in LADDERS[place]:
        reason = why_not()
        if not reason:
            return Rung(name, "; ".join(reasons))
        reasons.append(f"no {name}: {reason}")
    return Rung(TIMING, "; ".join(reasons))
