"""What follows from a result of `pareo ops`: figures of its cells, and the worst of them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pareo.lab.experiment import statistics
from pareo.lab.machine.ceilings import Ceilings, Measured
from pareo.lab.machine.ceilings.model import stream_of
from pareo.lab.machine.places import Place
from pareo.lab.ops.result import Cell, OpsResult
from pareo.lab.ops.roofline import Figures, Limits, figures, limits

DRIFT = 0.1  # share of a ceiling by which a shared machine may be faster than when it was measured


@dataclass(frozen=True)
class Timed:
    """A cell that was timed, with its limits and figures."""

    cell: Cell
    limit: Limits
    hot: Figures
    cold: Figures

    @property
    def shown(self) -> list[tuple[bool, Figures]]:
        """Whether cold, and the figures: hot ones, then cold ones if there are any."""
        return [(False, self.hot), (True, self.cold)][: 2 if self.cell.cold else 1]


def ceilings(result: OpsResult) -> dict[Place, Ceilings]:
    """The ceilings that cells are compared with, by place.

    They were measured before the cells were, and at times a machine is a little faster. A cell of
    any contestant that exceeds a ceiling by no more than DRIFT raises it. A cell that exceeds one
    by more is an error, and is shown as it is.
    """
    return {
        place: replace(before, samples=before.samples + [m for c in cells for m in _new(c, before)])
        for place, before, cells in _places(result)
    }


def raised(result: OpsResult) -> list[str]:
    """Which contestants raised ceilings, and by how much at most: a sentence for each place."""
    said = []
    for _, before, cells in _places(result):
        faster = [(_share(cell, before), cell) for cell in cells if any(_new(cell, before))]
        if faster:
            share, cell = max(faster, key=lambda pair: pair[0])
            names = ", ".join(sorted({cell.contestant for _, cell in faster}))
            said.append(
                f"{names} exceeded a ceiling measured before, by {share - 1:.0%} at most "
                f"({cell.operator}, {cell.contestant}): their own speed is the limit instead."
            )
    return said


def timed(result: OpsResult) -> list[Timed]:
    """The cells that have times, in the order taken."""
    known = ceilings(result)
    found = []
    for cell in result.rows:
        if cell.hot:
            place = known[cell.place]
            limit, peak = limits_of(cell, place), place.peak("float32").value
            hot = figures(cell.hot, cell.flops, cell.moved, limit, peak)
            samples = cell.cold or cell.hot
            cold = figures(samples, cell.flops, cell.moved, limit, peak, cold=True)
            found.append(Timed(cell, limit, hot, cold))
    return found


def kinds(cells: list[Cell]) -> list[tuple[str, str]]:
    """The operators and directions of cells, in the order taken."""
    return list(dict.fromkeys(cell.kind for cell in cells))


def not_timed(result: OpsResult) -> list[str]:
    """Which contestants have no times, why, and for which operators: a line for each reason."""
    reasons: dict[str, dict[str, None]] = {}
    for cell in result.rows:
        if cell.status != "ok":
            reason = f"{cell.contestant}: {cell.status}: {cell.note}"
            reasons.setdefault(reason, {})[" ".join(cell.kind)] = None
    return [f"{reason} ({', '.join(where)})" for reason, where in reasons.items()]


def limits_of(cell: Cell, ceilings: Ceilings) -> Limits:
    """The limits that a cell is compared with."""
    return limits(cell.least_flops, cell.read, cell.written, ceilings)


def offenders(found: list[Timed], most: int = 10) -> list[Timed]:
    """Pareo's own cells that are furthest from their roofline, one for each operator and device.

    Only the largest size of each counts, where overhead matters least.
    """
    largest: dict[tuple[str, ...], Timed] = {}
    for one in found:
        cell = one.cell
        key = (*cell.kind, cell.contestant)
        if cell.contestant.startswith("pareo-") and (
            key not in largest or cell.nbytes >= largest[key].cell.nbytes
        ):
            largest[key] = one
    return sorted(largest.values(), key=lambda one: one.hot.of_roofline)[:most]


def _places(result: OpsResult) -> Iterator[tuple[Place, Ceilings, list[Cell]]]:
    """Each place with its ceilings as they were measured, and its cells that have times."""
    for place, before in result.ceilings.items():
        yield place, before, [cell for cell in result.rows if cell.place == place and cell.hot]


def _new(cell: Cell, before: Ceilings) -> Iterator[Measured]:
    """What a cell adds to ceilings that it exceeds a little."""
    if _share(cell, before) > 1 + DRIFT:
        return
    limit = limits_of(cell, before)
    mix = cell.read / cell.written if cell.written else math.inf
    by, threads = f"{cell.contestant}, {cell.operator}", before.threads
    for cold in (False, True):
        samples = cell.samples(cold)
        seconds = statistics.interval(samples)[1] if samples else math.inf
        if limit.arithmetic > seconds:
            rate = cell.least_flops / seconds
            yield Measured("product", "float32", by, threads, cell.nbytes, samples=[rate])
        if limit.hot > seconds:
            name, rate = stream_of(mix), cell.moved / seconds
            yield Measured("stream", name, by, threads, cell.moved, samples=[rate])
        if cold and limit.cold > max(seconds, limit.hot):
            largest = max(p.size for p in before.samples if p.name == "read")
            size, rate = max(cell.moved, largest), cell.read / seconds
            yield Measured("stream", "read", by, threads, size, samples=[rate])


def _share(cell: Cell, before: Ceilings) -> float:
    """The largest share of the roofline that a cell has reached."""
    limit = limits_of(cell, before)
    kinds = ((cold, cell.samples(cold)) for cold in (False, True))
    return max(limit.floor(cold) / statistics.interval(s)[1] for cold, s in kinds if s)
