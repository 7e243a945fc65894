"""What a laboratory's result says: figures of its cells, and who is furthest from the roofline."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pareo.lab.experiment import statistics
from pareo.lab.machine.ceilings import Ceilings, store
from pareo.lab.machine.ceilings.model import Probe, stream_of
from pareo.lab.ops.shares import Figures, Limits, figures, limits

DRIFT = 0.1  # of a ceiling: by so much a shared machine may be faster than when it was measured


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
    """The ceilings that a result is held against, by place.

    They were measured before, and a machine is a little faster at times: a cell of anyone that has
    passed one since by no more than DRIFT raises it. What is further above is no drift, and stays
    above for everyone to see.
    """
    found = {}
    for place, before, rows in _places(result):
        seen = dict(pair for row in rows for pair in _beyond(row, before))
        found[place] = replace(before, samples={**before.samples, **seen})
    return found


def raised(result: dict[str, Any]) -> list[str]:
    """Who raised the ceilings, by how much at most: a sentence for each place."""
    said = []
    for _, before, rows in _places(result):
        faster = [(_share(row, before), row) for row in rows if any(_beyond(row, before))]
        if faster:
            share, row = max(faster, key=lambda pair: pair[0])
            who = sorted({row["contestant"] for _, row in faster})
            said.append(
                f"{', '.join(who)} passed a ceiling measured before, by {share - 1:.0%} at most "
                f"({row['operator']}, {row['contestant']}): their own speed is the limit instead."
            )
    return said


def _places(result: dict[str, Any]) -> Iterator[tuple[str, Ceilings, list[dict[str, Any]]]]:
    """Each place with its ceilings as they were measured, and its rows that have a time."""
    for place, plain in result["ceilings"].items():
        rows = [row for row in result["rows"] if row["place"] == place and row["hot"]]
        yield place, store.from_plain(plain, "this result"), rows


def _beyond(row: dict[str, Any], before: Ceilings) -> Iterator[tuple[Probe, tuple[float, ...]]]:
    """What a row adds to ceilings that it has passed by a little."""
    if _share(row, before) > 1 + DRIFT:
        return
    limit = limits_of(row, before)
    read, moved = row["read"], row["read"] + row["written"]
    mix = read / row["written"] if row["written"] else math.inf
    by, threads = f"{row['contestant']}, {row['operator']}", before.threads
    for cold in (False, True):
        samples = row["cold" if cold else "hot"]
        seconds = statistics.interval(samples)[1] if samples else math.inf
        if limit.arithmetic > seconds:
            rate = row["least_flops"] / seconds
            yield Probe("product", "float32", by, threads, row["nbytes"]), (rate,)
        if limit.hot > seconds:
            yield Probe("stream", stream_of(mix), by, threads, moved), (moved / seconds,)
        if cold and limit.cold > max(seconds, limit.hot):
            largest = max(p.size for p in before.samples if p.name == "read")
            yield Probe("stream", "read", by, threads, max(moved, largest)), (read / seconds,)


def _share(row: dict[str, Any], before: Ceilings) -> float:
    """Of the roofline, at most."""
    limit = limits_of(row, before)
    kinds = ((False, row["hot"]), (True, row["cold"]))
    return max(limit.floor(cold) / statistics.interval(s)[1] for cold, s in kinds if s)


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
