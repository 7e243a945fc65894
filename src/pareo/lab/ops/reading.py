"""What a laboratory's result says: figures of its cells, and who is furthest from the roofline."""

from dataclasses import dataclass
from typing import Any

from pareo.lab.ceilings import Ceilings, store
from pareo.lab.ops.shares import Figures, Limits, figures, limits


@dataclass(frozen=True)
class Read:
    """A cell that was timed, worked out."""

    row: dict[str, Any]
    limit: Limits
    hot: Figures
    cold: Figures

    @property
    def moved(self) -> int:
        """Bytes read and written."""
        return int(self.row["read"] + self.row["written"])

    @property
    def gap(self) -> float:
        """Seconds that the roofline would save, of a call on hot operands."""
        return self.hot.seconds - self.limit.floor(cold=False)


def ceilings(result: dict[str, Any]) -> dict[str, Ceilings]:
    """The ceilings that a result was held against, by place."""
    return {place: store.from_plain(c, "this result") for place, c in result["ceilings"].items()}


def timed(result: dict[str, Any]) -> list[Read]:
    """The cells that have a time, in the order taken."""
    known = ceilings(result)
    found = []
    for row in result["rows"]:
        if row["hot"]:
            place, flops, moved = known[row["place"]], row["flops"], row["read"] + row["written"]
            limit, peak = limits_of(row, place), place.peak("float32").value
            hot = figures(row["hot"], flops, moved, limit, peak)
            cold = figures(row["cold"] or row["hot"], flops, moved, limit, peak, cold=True)
            found.append(Read(row, limit, hot, cold))
    return found


def limits_of(row: dict[str, Any], ceilings: Ceilings) -> Limits:
    """What a row is held against."""
    return limits(row["least_flops"], row["read"], row["written"], ceilings)


def offenders(cells: list[Read], most: int = 10) -> list[Read]:
    """Pareo's own cells that are furthest from their roofline, one for each operator and device.

    The largest size of each is told: there no overhead hides behind it.
    """
    largest: dict[tuple[str, ...], Read] = {}
    for cell in cells:
        row = cell.row
        key = (row["operator"], row["direction"], row["contestant"])
        if row["contestant"].startswith("pareo-") and (
            key not in largest or row["nbytes"] >= largest[key].row["nbytes"]
        ):
            largest[key] = cell
    return sorted(largest.values(), key=lambda cell: cell.hot.of_roofline)[:most]
