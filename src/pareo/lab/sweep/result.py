"""The result of a sweep: docs/sweep-json.md describes its fields."""

from dataclasses import dataclass, field
from typing import Any, Self

from pareo.lab.experiment.entry import Entry, Status
from pareo.lab.experiment.in_notebook import frame
from pareo.lab.experiment.results import Amount, Count, Natural, Positive, Result
from pareo.lab.sweep.settings import Settings

INTERRUPTED = "interrupted after"  # so many rounds: the note of a cell begins with it


@dataclass(kw_only=True)
class Memory:
    """Bytes of one cell; `lab.sweep.runner` describes each. None: not known."""

    used: Natural | None = None
    reserved: Natural | None = None
    before: Natural | None = None
    data: Natural | None = None
    program: Natural | None = None

    @property
    def predicted(self) -> int | None:
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

    batch: Count
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
        """The contestant and the batch size, which identify a cell of one sweep."""
        return self.contestant, self.batch

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do: it was timed in all rounds, or it cannot be timed.

        >>> Cell("torch", 4).complete, Cell("torch", 4, status="refused").complete
        (False, True)
        """
        if self.status == "ok":
            return bool(self.times) and not self.note.startswith(INTERRUPTED)
        return self.status != "waiting"

    @property
    def times(self) -> list[float]:
        """The samples as seconds per image.

        >>> Cell("torch", 4, seconds_per_batch=[2.0], rounds=[1]).times
        [0.5]
        """
        return [seconds / self.batch for seconds in self.seconds_per_batch]

    def in_turn_with(self, other: Self) -> bool:
        return self.began == other.began and super().in_turn_with(other)

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
    flops: Count
    least_bytes: Count
    moved_bytes: Count


@dataclass(kw_only=True)
class Ceiling:
    """The highest FLOP/s and bytes a second that were measured in a place. None: not known."""

    place: str
    peak_flops: Amount | None
    bandwidth: Amount | None


@dataclass(kw_only=True)
class Probe:
    """Whether one batch size fits under a limit of bytes; `used` and `before` as in `Memory`."""

    contestant: str = ""
    under: Natural | None = None
    batch: Count
    fits: bool
    note: str = ""
    used: Natural | None = None
    before: Natural | None = None


@dataclass(kw_only=True)
class Limit:
    """The largest batch of one contestant under a limit of bytes, and the probes that found it.

    used: bytes at the largest batch. predicted: the largest batch that was expected.
    """

    contestant: str
    note: str
    limit: Natural
    largest: Natural | None
    used: Natural | None
    predicted: Natural | None
    probes: list[Probe]

    @property
    def words(self) -> str:
        """The largest batch, with the next that was tried where the search was not exact.

        >>> tried = [Probe(batch=64, fits=True), Probe(batch=67, fits=False)]
        >>> Limit(contestant="", note="", limit=1, largest=64, used=1, predicted=None,
        ...       probes=tried).words
        '64, not 67'
        """
        if self.largest is None:
            return "unknown"
        missed = min((one.batch for one in self.probes if not one.fits), default=None)
        exact = missed is None or missed == self.largest + 1
        return str(self.largest) if exact else f"{self.largest}, not {missed}"


@dataclass(kw_only=True)
class SweepResult(Result):
    """Everything that is known of a sweep."""

    data: str
    precision: str
    settings: Settings
    work: list[Work]
    ceilings: list[Ceiling]
    cells: list[Cell]
    limits: list[Limit]

    def __post_init__(self) -> None:
        batches = {one.batch for one in self.work}
        for number, cell in enumerate(self.cells):
            if cell.batch not in batches:
                raise ValueError(
                    f"Expected a batch size that work has - at `$.cells[{number}].batch`"
                )

    @property
    def latest(self) -> list[Cell]:
        """The cells; where joined sweeps have the same one, the latest."""
        return list({cell.key: cell for cell in self.cells}.values())

    @property
    def complete(self) -> list[list[Cell]]:
        """The cells of each batch size of which none is left to do: they were timed in turns."""
        sizes = [[one for one in self.cells if one.batch == work.batch] for work in self.work]
        return [cells for cells in sizes if all(cell.complete for cell in cells)]

    def frame(self) -> Any:
        """A pandas data frame with a row for each cell; seconds are of an image.

        Raises:
            ImportError: pandas is not installed.
        """
        return frame([self._plain_row(cell) for cell in self.cells], "SweepResult")

    def _plain_row(self, cell: Cell) -> dict[str, Any]:
        low, middle, high = cell.interval if cell.times else (None, None, None)
        least = self.floor(cell.place, cell.batch)
        return {
            "contestant": cell.contestant,
            "batch": cell.batch,
            "status": cell.status,
            "seconds": middle,
            "low": low,
            "high": high,
            "of_floor": least / (middle * cell.batch) if least and middle else None,
            "used_bytes": cell.memory.used,
            "predicted_bytes": cell.memory.predicted,
            "note": cell.note,
        }

    def rates(self, place: str) -> tuple[float, float] | None:
        """The measured FLOP/s and bytes a second of a place; None where one is not known."""
        for one in self.ceilings:
            if one.place == place and one.peak_flops and one.bandwidth:
                return one.peak_flops, one.bandwidth
        return None

    def work_of(self, batch: int) -> Work:
        """What a step at a batch size is."""
        return next(one for one in self.work if one.batch == batch)

    def floor(self, place: str, batch: int) -> float | None:
        """The least seconds of a step in a place: its FLOPs or its bytes at the measured rates.

        None where they are not known.
        """
        rates, work = self.rates(place), self.work_of(batch)
        return max(work.flops / rates[0], work.least_bytes / rates[1]) if rates else None


RESULTS = {"sweep": SweepResult}
