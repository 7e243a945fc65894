"""Races that were repeated: how much sessions differ, told apart from noise within one.

A median is known to some error within a session. Sessions differ by more than that where a
machine's neighbours, its memory or its temperature are others on another day. The variance of the
medians of sessions is the sum of both.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, median, variance

from pareo.lab.experiment.statistics import has_ends
from pareo.lab.race.relative import relative
from pareo.lab.race.result import RaceResult

USUAL = 1.96  # half of a 95 % interval, in standard deviations


@dataclass(frozen=True)
class Spread:
    """The times of a contestant in several sessions.

    seconds: the median of the sessions' medians. within: the standard error of a session's median,
    as a share; None where no session has an interval. between: the standard deviation of sessions
    beyond that, as a share. ratio: the median of ratios to the peer in each session, round by
    round; None without. ratio_between: the same spread for the ratios.
    """

    contestant: str
    sessions: int
    seconds: float
    within: float | None
    between: float
    ratio: float | None = None
    ratio_between: float | None = None


def spreads(races: Sequence[RaceResult], peer: str | None = None) -> list[Spread]:
    """The spread of every contestant that was timed in two sessions or more, the fastest first.

    peer: whom others are compared with in each session.
    """
    beside = {}
    if peer is not None:
        shared = [race for race in races if _is_timed(race, peer)]
        beside = {
            one.contestant: one for one in _spreads([relative(race, peer) for race in shared])
        }
    found = []
    for one in _spreads(races):
        ratio = beside.get(one.contestant)
        if ratio is not None and one.contestant != peer:
            one = replace(one, ratio=ratio.seconds, ratio_between=ratio.between)
        found.append(one)
    return sorted(found, key=lambda one: one.seconds)


def _spreads(races: Sequence[RaceResult]) -> list[Spread]:
    names = dict.fromkeys(row.contestant for race in races for row in race.rows if row.samples)
    found = []
    for name in names:
        rows = [row for race in races for row in race.rows if row.contestant == name]
        rows = [row for row in rows if row.samples]
        if len(rows) < 2:
            continue
        errors = [error for row in rows if (error := _error(row.interval)) is not None]
        within = math.sqrt(mean(error**2 for error in errors)) if errors else None
        medians = [row.median for row in rows]
        between = beyond(medians, within or 0.0)
        found.append(Spread(name, len(rows), median(medians), within, between))
    return found


def beyond(values: Sequence[float], within: float) -> float:
    """The standard deviation of values, as a share, beyond an error that each of them has.

    >>> round(beyond([1.0, 1.1, 0.9], 0.0), 2), beyond([1.0, 1.1, 0.9], 0.2)
    (0.1, 0.0)
    """
    whole = variance([math.log(value) for value in values])
    return math.sqrt(max(0.0, whole - within**2))


def _error(interval: tuple[float, float, float]) -> float | None:
    """The standard error of a median, as a share, from its 95 % interval."""
    low, _, high = interval
    return math.log(high / low) / (2 * USUAL) if has_ends(low, high) and low > 0 else None


def _is_timed(race: RaceResult, name: str) -> bool:
    return any(row.samples for row in race.rows if row.contestant == name)
