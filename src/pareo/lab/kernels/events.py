"""What an instrument recorded: events on a time line, and the time of each kernel."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from pareo.lab.experiment.bounds import Amount, Positive

Kind = Literal["gemm", "batched gemm", "convolution", "elementwise", "reduction", "copy", "other"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MATRIX = KINDS[:3]  # where nearly all FLOPs are


@dataclass(frozen=True)
class Event:
    """One run of a kernel or routine; start and end in seconds, by any clock.

    lane: where it ran (a thread, a stream); within one lane events nest.
    flops: of this one run; None where they are not known.
    node: of the CUDA graph that it is part of; 0 where it is part of none.
    """

    name: str
    kind: Kind
    start: float
    end: float
    lane: str = ""
    shape: str = ""
    flops: float | None = None
    node: int = 0


@dataclass
class Profile:
    """Some steps under an instrument.

    mode: how the steps ran, where not as in a race; otherwise empty.
    seconds: wall time of one step, measured around all of them.
    rest: a name for the time between events.
    """

    instrument: str
    steps: int
    seconds: Positive
    events: list[Event] = field(repr=False)
    rest: str = "(between operators)"
    mode: str = ""
    note: str = ""


@dataclass
class KernelTime:
    """A kernel at one shape: calls, seconds and FLOPs of one step."""

    name: str
    kind: Kind
    shape: str
    calls: Amount = 0.0
    seconds: Amount = 0.0
    flops: Amount | None = None

    @property
    def rate(self) -> float | None:
        """FLOP/s; None where FLOPs are not known.

        >>> KernelTime("dot", "gemm", "", calls=1, seconds=2.0, flops=8.0).rate
        4.0
        """
        return self.flops / self.seconds if self.flops and self.seconds else None

    def add(self, other: "KernelTime") -> None:
        """Add the calls, seconds and FLOPs of another one."""
        self.calls += other.calls
        self.seconds += other.seconds
        if other.flops is not None:
            self.flops = (self.flops or 0.0) + other.flops


def credited(events: Sequence[Event]) -> list[float]:
    """Seconds for each event, so that no moment is counted twice.

    Within a lane a moment belongs to the innermost event; lanes that run at the same time share it
    equally.

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


def rows(profile: Profile) -> list[KernelTime]:
    """A step's kernels, the longest first; the last row is the rest of its time.

    >>> twice = [Event("exp", "elementwise", t, t + 1.0, flops=8.0) for t in (0.0, 2.0)]
    >>> for row in rows(Profile("a clock", steps=2, seconds=2.0, events=twice)):
    ...     print(row.name, row.calls, row.seconds, row.flops)
    exp 1.0 1.0 8.0
    (between operators) 0.0 1.0 None
    """
    made: dict[tuple[str, Kind, str], KernelTime] = {}
    for event, seconds in zip(profile.events, credited(profile.events), strict=True):
        key = event.name, event.kind, event.shape
        made.setdefault(key, KernelTime(*key)).add(KernelTime(*key, 1, seconds, event.flops))
    for row in made.values():
        row.calls, row.seconds = row.calls / profile.steps, row.seconds / profile.steps
        row.flops = None if row.flops is None else row.flops / profile.steps
    found = sorted(made.values(), key=lambda row: -row.seconds)
    rest = profile.seconds - sum(row.seconds for row in found)
    return [*found, KernelTime(profile.rest, "other", "", 0.0, max(rest, 0.0))]


def by_kind(kernels: Iterable[KernelTime]) -> dict[Kind, KernelTime]:
    """The sums of each kind that occurs, in the order of KINDS.

    >>> two = KernelTime("a", "gemm", "", 2), KernelTime("b", "gemm", "", 1)
    >>> [total.calls for total in by_kind(two).values()]
    [3.0]
    """
    found = {kind: KernelTime(kind, kind, "") for kind in KINDS}
    for kernel in kernels:
        found[kernel.kind].add(kernel)
    return {kind: total for kind, total in found.items() if total.calls or total.seconds}
