"""The lines of a history: series of points, their steps, and whose each step is.

A machine that became slower makes every contestant slower. So a step is judged by the ratio to a
peer that was raced in the same session: what both have in common is the machine's or the driver's.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from statistics import median

from pareo.lab.history.points import Line, Point
from pareo.lab.history.steps import FEWEST, Step, steps

BOTH = 0.5  # of a step: if the peer made so much of it in the same direction, it is the machine's
NEAR = 2  # points by which two steps may be apart and be the same


@dataclass(frozen=True)
class Labelled:
    """A step of a line: its size, before which point, and whose it is, with what changed then."""

    step: Step
    point: Point
    whose: str
    because: str


@dataclass
class Series:
    """A line with its points in order of time, and its ratio to a peer where both were raced.

    peer: the contestant that it is compared with. ratios: seconds over the peer's, by index of
        points; only those of sessions in which both were timed.
    """

    line: Line
    points: list[Point]
    peer: str = ""
    ratios: dict[int, float] = field(default_factory=dict)
    steps: list[Labelled] = field(default_factory=list)

    @cached_property
    def times(self) -> list[float]:
        """Seconds of all points."""
        return [point.seconds for point in self.points]

    @cached_property
    def by_number(self) -> dict[int, float]:
        """Seconds by the number of the result."""
        return {point.number: point.seconds for point in self.points}


def series(by_line: Mapping[Line, list[Point]]) -> list[Series]:
    """All lines, with ratios and labelled steps."""
    by_work: dict[object, list[Series]] = defaultdict(list)
    for line, points in by_line.items():
        ordered = sorted(points, key=attrgetter("moment", "number"))
        by_work[line.work].append(Series(line, ordered))
    for together in by_work.values():
        for one in together:
            _compare(one, together)
        for one in together:
            peer = next((other for other in together if other.line.contestant == one.peer), None)
            one.steps = _labelled(one, peer)
    every = [one for together in by_work.values() for one in together]
    return sorted(every, key=lambda one: (one.line.work, one.line.contestant))


def _compare(one: Series, together: list[Series]) -> None:
    """Choose a peer, the one that shares most sessions, and note the ratios to it."""
    shared = Counter(
        {
            other.line.contestant: len(one.by_number.keys() & other.by_number.keys())
            for other in together
            if other is not one and other.line.ours != one.line.ours
        }
    )
    if not shared or not shared.most_common(1)[0][1]:
        return
    one.peer = shared.most_common(1)[0][0]
    peer = next(other for other in together if other.line.contestant == one.peer)
    seconds = peer.by_number
    one.ratios = {
        index: point.seconds / seconds[point.number]
        for index, point in enumerate(one.points)
        if point.number in seconds
    }


def _labelled(one: Series, peer: Series | None) -> list[Labelled]:
    found = []
    for step in steps(one.times):
        before, after = one.points[step.index - 1], one.points[step.index]
        whose, because = _whose(one, peer, step, before, after)
        found.append(Labelled(step, after, whose, because))
    return found


def _whose(
    one: Series, peer: Series | None, step: Step, before: Point, after: Point
) -> tuple[str, str]:
    """Whose a step is: "ours", "peer's version", "driver", "machine", or "unknown"; and why."""
    own = f"version {before.version} to {after.version}" if before.version != after.version else ""
    changed = _changed(before, after)
    shared = None if peer is None else shift(one, peer, step.index)
    if shared is not None and abs(shared) >= BOTH * abs(step.change) and shared * step.change > 0:
        if before.driver != after.driver:
            return "driver", f"{before.driver} to {after.driver}"
        return "machine", f"{one.peer} changed by {shared:+.1%} in the same sessions"
    beside = "" if shared is None else f"; {one.peer} changed by {shared:+.1%}"
    if one.line.ours:
        same = "" if own or shared is not None else changed
        return "ours", (own or same or "same version") + beside
    if own:
        return "peer's version", own + beside
    if before.driver != after.driver:
        return "driver", f"{before.driver} to {after.driver}{beside}"
    return "unknown", (changed or "same versions") + beside


def shift(one: Series, peer: Series, index: int) -> float | None:
    """How much the peer changed in the sessions around a step; None where too few are shared."""
    at = peer.by_number
    sides = one.points[max(0, index - 10) : index], one.points[index : index + 10]
    before, after = ([at[p.number] for p in side if p.number in at] for side in sides)
    if min(len(before), len(after)) < min(FEWEST, 3):
        return None
    return median(after) / median(before) - 1


def _changed(before: Point, after: Point) -> str:
    """The libraries that changed."""
    if before.system == after.system:
        return ""
    old, new = (set(text.split(", ")) for text in (before.system, after.system))
    names = sorted(f"now {text}" for text in new - old)
    return ", ".join(names[:3]) or "fewer libraries"
