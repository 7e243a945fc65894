"""The result of a sweep: docs/sweep-json.md describes its fields."""

import math
from dataclasses import dataclass, field
from statistics import median

from pareo.lab.experiment.entry import Entry, Status
from pareo.lab.experiment.results import (
    Amount,
    Count,
    Natural,
    Number,
    Positive,
    Result,
)
from pareo.lab.sweep.settings import Settings


@dataclass(kw_only=True)
class Memory:
    """Bytes of one cell; `lab.sweep.runner` describes each. None: not known."""

    used: Number | None = None
    reserved: Number | None = None
    before: Number | None = None
    data: Number | None = None
    program: Number | None = None

    @property
    def predicted(self) -> float | None:
        """Bytes expected: those of the program, of the data, and those there before."""
        if self.program is None:
            return None
        return self.program + (self.data or 0) + (self.before or 0)


@dataclass
class Cell(Entry):
    """One contestant at one batch size.

    seconds_per_batch: samples, each the mean step of a turn, in the order taken; `rounds` are
    counted from `began`. phases: seconds of `loading` (beside others on a GPU), `building` and
    getting `ready`. sweep: which one it is from, where several are joined.
    """

    batch: Count = 1
    status: Status = field(default="waiting", kw_only=True)
    seconds_per_batch: list[Positive] = field(default_factory=list, kw_only=True)
    place: str = field(default="cpu", kw_only=True)
    began: str = field(default="", kw_only=True)
    steps: Natural = field(default=0, kw_only=True)
    phases: dict[str, Amount] = field(default_factory=dict, kw_only=True)
    memory: Memory = field(default_factory=Memory, kw_only=True)
    sweep: Natural = field(default=0, kw_only=True)

    @property
    def key(self) -> tuple[str, int]:
        """What tells cells apart."""
        return self.contestant, self.batch

    @property
    def seconds_per_image(self) -> list[float]:
        """The same samples for one image.

        >>> Cell("torch", 4, seconds_per_batch=[2.0]).seconds_per_image
        [0.5]
        """
        return [seconds / self.batch for seconds in self.seconds_per_batch]

    @property
    def median(self) -> float:
        """Seconds per image, the median; infinite where there is none, so that it is never best."""
        samples = self.seconds_per_image
        return median(samples) if samples else math.inf

    def drop(self) -> None:
        self.seconds_per_batch, self.rounds = [], []

    def add(self, number: int, seconds: float) -> None:
        self.seconds_per_batch.append(seconds)
        self.rounds.append(number)


@dataclass(kw_only=True)
class Work:
    """What a step at one batch size is.

    least_bytes: those that any implementation moves. moved_bytes: those that the instructions of
    pareo's fused program move.
    """

    batch: Count
    flops: Positive
    least_bytes: Positive
    moved_bytes: Positive


@dataclass(kw_only=True)
class Ceiling:
    """The best that was measured in a place."""

    place: str
    peak_flops: Number | None
    bandwidth: Number | None


@dataclass(kw_only=True)
class Probe:
    """One batch size that was tried under a limit: whether it fits, and what it used."""

    batch: Count
    fits: bool
    contestant: str = ""
    under: Natural | None = None
    note: str = ""
    used: Number | None = None
    before: Number | None = None


@dataclass(kw_only=True)
class Limit:
    """The largest batch of one contestant under a limit of bytes, and the probes that found it."""

    contestant: str
    note: str
    limit: Amount
    largest: Number | None
    used: Number | None
    predicted: Number | None
    probes: list[Probe]


@dataclass(kw_only=True)
class Sweep(Result):
    """Everything that is known of a sweep."""

    data: str
    precision: str
    settings: Settings
    work: list[Work]
    ceilings: list[Ceiling]
    cells: list[Cell]
    limits: list[Limit]

    def __post_init__(self) -> None:
        super().__post_init__()
        batches = {one.batch for one in self.work}
        for number, cell in enumerate(self.cells):
            if cell.batch not in batches:
                raise ValueError(
                    f"Expected a batch size that `work` has - at `$.cells[{number}].batch`"
                )


RESULTS = {"sweep": Sweep}
