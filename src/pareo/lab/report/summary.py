"""What a report says of each contestant, worked out from its samples."""

import math
from dataclasses import dataclass
from typing import Any

from pareo.lab.experiment.statistics import Verdict, compare, interval
from pareo.lab.formatting import digits


@dataclass(frozen=True)
class Timed:
    """A contestant that was timed: seconds per epoch with its 95 % interval, and its row."""

    name: str
    low: float
    seconds: float
    high: float
    row: dict[str, Any]


def timed(result: dict[str, Any]) -> list[Timed]:
    """Those that have a time, the fastest first."""
    found = [
        Timed(r["contestant"], *interval(r["samples"]), r) for r in result["rows"] if r["samples"]
    ]
    return sorted(found, key=lambda one: one.seconds)


@dataclass(frozen=True)
class Floor:
    """The least seconds of an epoch in one place, and what binds them; the rates are measured."""

    place: str
    seconds: float
    why: str
    peak: float | None
    bandwidth: float | None

    @property
    def name(self) -> str:
        """The place as a reader knows it."""
        return {"cpu": "the CPU", "cuda": "the GPU"}.get(self.place, self.place)


def floors(result: dict[str, Any]) -> list[Floor]:
    """The floor of each place that has contestants, if it is known."""
    found = {}
    for row in result["rows"]:
        known = row["floor"]
        least = known.get("seconds_per_epoch")
        if least and math.isfinite(least):
            place = str(known.get("place"))
            rates = known.get("peak_flops"), known.get("bandwidth")
            found[place] = Floor(place, least, str(known.get("why")), *rates)
    return list(found.values())


def base_of(everyone: list[Timed]) -> Timed | None:
    """Whom the others are compared with: the fastest that is not pareo, else the slowest."""
    peers = [one for one in everyone if not one.name.startswith("pareo")]
    return peers[0] if peers else everyone[-1] if everyone else None


def beside(one: Timed, other: Timed) -> Verdict:
    """One's times beside the other's, round by round where both ran in the same rounds."""
    together = one.row["rounds"] == other.row["rounds"]
    return compare(one.row["samples"], other.row["samples"], interleaved=together)


def headline(result: dict[str, Any]) -> str:
    """Who is fastest, and how sure that is, in one sentence."""
    everyone = timed(result)
    if not everyone:
        return "Nobody was timed; the notes below say why."
    first = everyone[0]
    said = f"{first.name} has the shortest time: {digits(first.seconds)} s per epoch"
    if len(everyone) == 1:
        return f"{said}. Nobody else was timed."
    second = everyone[1]
    verdict = beside(first, second)
    if verdict.word == "faster":
        return f"{said}, {1 / verdict.ratio:.2f} times as fast as {second.name}."
    return f"{said}, but whether it is faster than {second.name} cannot be told."
