"""The result of a race: docs/race-json.md describes its fields."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pareo.lab.experiment.entry import Entry
from pareo.lab.experiment.in_notebook import frame
from pareo.lab.experiment.results import Amount, Count, Natural, Number, Positive, Result
from pareo.lab.machine.floors import Floor


@dataclass(kw_only=True)
class Point:
    """A point of a learning curve, after so many epochs and seconds of training."""

    epoch: Natural
    seconds: Amount
    loss: Number | None = None
    accuracy: Number | None = None


@dataclass
class Row(Entry):
    """One contestant; samples are seconds per epoch, in the order taken.

    slice: the part of an epoch that one turn trains.
    """

    samples: list[Positive] = field(default_factory=list, kw_only=True)
    slice: Amount | None = field(default=0.0, kw_only=True)
    floor: Floor = field(default_factory=Floor, kw_only=True)
    curve: list[Point] = field(default_factory=list, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples and not self.slice:
            raise ValueError("Expected a slice above 0 where there are samples")

    @property
    def times(self) -> list[float]:
        return self.samples

    def reached(self, accuracy: float) -> float | None:
        """Seconds of training after which it first had an accuracy on the test images."""
        points = (point for point in self.curve if (point.accuracy or 0) >= accuracy)
        return next((point.seconds for point in points), None)

    def drop(self) -> None:
        self.samples, self.rounds, self.curve = [], [], []

    def add(self, number: int, seconds: float) -> None:
        self.samples.append(seconds)
        self.rounds.append(number)


@dataclass(kw_only=True)
class RaceResult(Result):
    """Everything that is known of a race.

    building_seconds: until the first round; rounds_seconds: of all rounds.
    """

    SCHEMA: ClassVar[int] = 2

    data: str | None = None
    batch: Count
    loss: str = "cross-entropy"
    precision: str
    threads: Count
    images: Count
    flops: Natural
    building_seconds: Amount | None = None
    rounds_seconds: Amount | None = None
    rows: list[Row]

    @property
    def floors(self) -> list[Floor]:
        """The floor of each place that has contestants, if it is known."""
        known = (row.floor for row in self.rows if row.floor.seconds_per_epoch)
        return list({floor.place: floor for floor in known}.values())

    @property
    def other_loss(self) -> str:
        """The loss, if it is not the cross-entropy; empty otherwise."""
        return "" if self.loss == "cross-entropy" else self.loss

    def frame(self) -> Any:
        """A pandas data frame with a row for each contestant; seconds are of an epoch.

        Raises:
            ImportError: pandas is not installed.
        """
        return frame([self._plain_row(row) for row in self.rows], "RaceResult")

    def _plain_row(self, row: Row) -> dict[str, Any]:
        low, middle, high = row.interval if row.times else (None, None, None)
        least = row.floor.seconds_per_epoch
        return {
            "contestant": row.contestant,
            "status": row.status,
            "seconds": middle,
            "low": low,
            "high": high,
            "images_per_second": self.images / middle if middle else None,
            "of_floor": least / middle if least and middle else None,
            "first_call": row.first_call,
            "peak_memory_bytes": row.ledger.get("peak_memory_bytes"),
            "note": row.note,
        }

    @classmethod
    def upgraded(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Schema 1 had one floor: the GPU's where there was one, otherwise the CPU's."""
        if data.get("schema") != 1:
            return super().upgraded(data)
        machine, floor, rows = (data.get(name) for name in ("machine", "floor", "rows"))
        if not isinstance(machine, dict):
            raise ValueError("Expected `object` - at `$.machine`")
        if not isinstance(floor, dict):
            raise ValueError("Expected `object` - at `$.floor`")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError("Expected a list of objects - at `$.rows`")
        place = "cuda" if machine.get("cards") else "cpu"
        found = []
        for row in rows:
            there = "cuda" if "cuda" in str(row.get("contestant")) else "cpu"
            known = floor if there == place else {}
            own = {**known, "place": there, "precision": data.get("precision")}
            found.append({**row, "floor": own})
        trained_on = "mnist" if data.get("images") == 60_000 else None  # there was no choice
        return {**data, "schema": cls.SCHEMA, "data": trained_on, "rows": found}


RESULTS = {"race": RaceResult}
