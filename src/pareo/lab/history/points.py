"""Points of a history: the time of one contestant in one result, with what may explain it."""

import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:  # importing these takes longer than all that `pareo history` does
    from pareo.lab.experiment.entry import Entry
    from pareo.lab.experiment.results import Result
    from pareo.lab.race.result import RaceResult
    from pareo.lab.sweep.result import SweepResult


@dataclass(frozen=True)
class Line:
    """What a line of a history is for: the same work on the same machine."""

    machine: str
    kind: str
    network: str
    data: str
    batch: int
    precision: str
    threads: int
    contestant: str
    loss: str = ""  # where it is not the cross-entropy

    @property
    def work(self) -> tuple[str, str, str, str, str, int, str, int]:
        """All but the contestant: what lines have in common that are drawn together."""
        return (
            self.machine, self.kind, self.network, self.loss, self.data, self.batch,
            self.precision, self.threads,
        )  # fmt: skip

    @property
    def title(self) -> str:
        """The work in words."""
        data = (f", {self.loss}" if self.loss else "") + (f" on {self.data}" if self.data else "")
        threads = f"{self.threads} thread{'' if self.threads == 1 else 's'}"
        return (
            f"{self.network}{data}, batch {self.batch}, {self.precision}, {threads}, {self.machine}"
        )

    @property
    def unit(self) -> str:
        """What its seconds are of."""
        return "epoch" if self.kind == "race" else "image"

    @property
    def ours(self) -> bool:
        """Whether the contestant is pareo itself."""
        return self.contestant.startswith("pareo")

    @property
    def command(self) -> str:
        """What measures a point of this line again.

        >>> Line("m", "race", "papers-cnn", "mnist", 128, "float32", 2, "torch").command
        'pareo race papers-cnn --batch 128 --precision float32 --threads 2 --contestants torch'
        """
        batch = "--batch" if self.kind == "race" else "--batches"
        words = [
            "pareo", self.kind, self.network, batch, str(self.batch), "--precision",
            self.precision, "--threads", str(self.threads), "--contestants", self.contestant,
        ]  # fmt: skip
        if self.data not in ("", "mnist"):
            words += ["--data", self.data]
        if self.loss:
            words += ["--loss", self.loss]
        return shlex.join(words)


class Point(NamedTuple):
    """A time on a line.

    number: of the result. seconds: of an epoch or an image, between the ends of a 95 % interval.
    floor: the share of the floor, if that is known. version: of the contestant's framework.
    driver: of the GPU, where there is one. system: Python and libraries, in one text.
    """

    number: int
    moment: str
    seconds: float
    low: float
    high: float
    floor: float | None
    version: str
    driver: str
    system: str


def points(number: int, result: "Result") -> Iterator[tuple[Line, Point]]:
    """The points of a race or of a sweep, with the lines that they belong to; of others none.

    number: that of the result in the records.
    """
    if result.kind == "race":
        race = cast("RaceResult", result)
        for row in race.rows:
            if row.samples:
                line = Line(
                    race.machine.name, "race", race.network, race.data or "", race.batch,
                    race.precision, race.threads, row.contestant,
                    race.other_loss,
                )  # fmt: skip
                yield line, _point(number, result, row, row.floor.seconds_per_epoch)
    elif result.kind == "sweep":
        sweep = cast("SweepResult", result)
        for cell in sweep.cells:
            if cell.times:
                line = Line(
                    sweep.machine.name, "sweep", sweep.network, "", cell.batch,
                    sweep.precision, sweep.settings.threads, cell.contestant,
                )  # fmt: skip
                yield line, _point(number, result, cell, None)


def _point(number: int, result: "Result", entry: "Entry", floor: float | None) -> Point:
    low, middle, high = around(entry.times)
    gpu = next((f"{gpu.name} {gpu.driver}" for gpu in result.machine.gpus), "")
    own = {name: text for name, text in result.versions.items() if text and name != "pareo"}
    system = ", ".join([f"python {result.machine.python}", *(f"{n} {v}" for n, v in own.items())])
    version = str(entry.ledger.get("version") or result.versions.get("pareo") or "")
    share = floor / middle if floor else None
    return Point(number, result.when, middle, low, high, share, version, gpu, system)


def around(samples: list[float]) -> tuple[float, float, float]:
    """The median between two samples that hold it in 95 % of cases, by their ranks.

    It is quick, for many results; `statistics.interval` is exact.

    >>> around([5.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0])
    (3.0, 5.0, 7.0)
    """
    ordered = sorted(samples)
    count = len(ordered)
    half = (count - 1) / 2
    middle = (ordered[math.floor(half)] + ordered[math.ceil(half)]) / 2
    away = 0.98 * math.sqrt(count)
    low, high = max(0, round(half - away + 0.5)), min(count - 1, round(half + away - 0.5))
    return min(ordered[low], middle), middle, max(ordered[high], middle)
