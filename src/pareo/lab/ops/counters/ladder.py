"""Which counters this machine allows, and why no better ones."""

from collections.abc import Callable
from dataclasses import dataclass

from pareo.lab.machine.places import CPU, GPU, Place
from pareo.lab.ops.counters import cupti, ncu, perf_event

NCU = "ncu"
TIMING = "timing"


@dataclass(frozen=True)
class Rung:
    """The best source of figures here, and in one line why the better ones are not used."""

    name: str
    why: str


# From the best down: a name, and a function that says in one line why it cannot be used here.
LADDERS: dict[Place, list[tuple[str, Callable[[], str]]]] = {
    GPU: [(NCU, ncu.why_not), ("CUPTI", cupti.why_not)],
    CPU: [("perf_event", perf_event.why_not)],
}


def rung_of(place: Place) -> Rung:
    """The best rung of a place, here.

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
