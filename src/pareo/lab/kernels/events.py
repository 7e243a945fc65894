"""What an instrument saw: events on a time line, and the rows of a table that they add up to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pareo.lab.experiment.bounds import Positive

KINDS = ("gemm", "batched gemm", "convolution", "elementwise", "reduction", "copy", "other")
MATRIX = KINDS[:3]  # where nearly all FLOPs are


@dataclass(frozen=True)
class Event:
    """One run of a kernel or routine; start and end in seconds, by any clock.

    lane: where it ran (a thread, a stream); within one lane events nest.
    flops: of this one run; None where they are not known.
    node: of the CUDA graph that it is part of; 0 where it is of none.
    """

    name: str
    kind: str
    start: float
    end: float
    lane: str = ""
    shape: str = ""
    flops: float | None = None
    node: int = 0


@dataclass
class Profile:
    """Some steps under an instrument.

    mode: how the steps ran, where not as they are raced; else empty.
    seconds: of one step, measured by the clock on the wall around all of them.
    rest: what the time between events is.
    """

    instrument: str
    steps: int
    seconds: Positive
    events: list[Event] = field(repr=False)
    rest: str = "(between operators)"
    mode: str = ""
    note: str = ""


@dataclass
class Row:
    """A kernel at one shape: calls, seconds and FLOPs of one step."""

    name: str
    kind: str
    shape: str
    calls: float = 0.0
    seconds: float = 0.0
    flops: float | None = None


def credited(events: Sequence[Event]) -> list[float]:
    """Seconds for each event, so that no moment is counted twice.

    Within a lane the innermost event has the moment; lanes that run at once share it equally.

    >>> outer, inner = Event("f", "other", 0.0, 4.0), Event("g", "other", 1.0, 2.0)
    >>> beside = Event("h", "other", 2.0, 4.0, lane="another")
    >>> credited([outer, inner, beside])
    [2.0, 1.0, 1.0]
    """
    found = [0.0] * len(events)
    lasting = [(n, event) for n, event in enumerate(events) if event.end > event.start]
    marks = sorted(
        # At one moment ends come before starts; of two starts, that of the longer event.
        [(event.end, 0, 0.0, n) for n, event in lasting]
        + [(event.start, 1, -event.end, n) for n, event in lasting]
    )
    stacks: dict[str, list[int]] = {}
    before = 0.0
    for moment, starts, _, number in marks:
        running = [stack[-1] for stack in stacks.values() if stack]
        for one in running:
            found[one] += (moment - before) / len(running)
        before = moment
        stack = stacks.setdefault(events[number].lane, [])
        if starts:
            stack.append(number)
        else:
            stack.remove(number)
    return found


def rows(profile: Profile) -> list[Row]:
    """A step's kernels, the longest first, and what is left of its time at their end.

    >>> twice = [Event("exp", "elementwise", t, t + 1.0, flops=8.0) for t in (0.0, 2.0)]
    >>> for row in rows(Profile("a clock", steps=2, seconds=2.0, events=twice)):
    ...     print(row.name, row.calls, row.seconds, row.flops)
    exp 1.0 1.0 8.0
    (between operators) 0.0 1.0 None
    """
    made: dict[tuple[str, str, str], Row] = {}
    for event, seconds in zip(profile.events, credited(profile.events), strict=True):
        key = event.name, event.kind, event.shape
        row = made.setdefault(key, Row(*key))
        row.calls += 1
        row.seconds += seconds
        if event.flops is not None:
            row.flops = (row.flops or 0.0) + event.flops
    for row in made.values():
        row.calls, row.seconds = row.calls / profile.steps, row.seconds / profile.steps
        row.flops = None if row.flops is None else row.flops / profile.steps
    found = sorted(made.values(), key=lambda row: -row.seconds)
    rest = profile.seconds - sum(row.seconds for row in found)
    return [*found, Row(profile.rest, "other", "", 0.0, max(rest, 0.0))]


def by_kind(table: Iterable[Row]) -> dict[str, Row]:
    """The sums of each kind that occurs, in the order of KINDS.

    >>> [row.calls for row in by_kind([Row("a", "gemm", "", 2), Row("b", "gemm", "", 1)]).values()]
    [3.0]
    """
    found = {kind: Row(kind, kind, "") for kind in KINDS}
    for row in table:
        total = found[row.kind]
        total.calls += row.calls
        total.seconds += row.seconds
        if row.flops is not None:
            total.flops = (total.flops or 0.0) + row.flops
    return {kind: row for kind, row in found.items() if row.calls or row.seconds}
