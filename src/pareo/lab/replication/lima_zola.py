"""The first paper: a small CNN on MNIST for 40 epochs, on a CPU and on a GPU."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pareo.device import cores
from pareo.lab.contestants.registry import SLOW_TO_BUILD, chosen
from pareo.lab.experiment.tasks import task_for
from pareo.lab.formatting import counted
from pareo.lab.papers.published import Figure
from pareo.lab.race.engine import Race, Rules
from pareo.lab.race.result import RaceResult, Row
from pareo.lab.replication.engine import Found, Phase, Plan, Say, no_gpu, ran
from pareo.lab.replication.result import Line, Measured

RACE = "race"
EPOCHS, IMAGES = 40, 60_000  # of MNIST
ON_CPU = ("pareo-compiled", "torch", "jax", "tensorflow")
ON_GPU = ("pareo-cuda", "torch-cudagraph", "jax-cuda-scan")
TIMES = "Figure 1(a): 40 epochs"
SPEEDUP = "Figure 2: the GPU, in hand-written code, beside the CPU in a framework"
ACCURACY = "Figure 1(b): accuracy on the test images"


@dataclass(frozen=True)
class LimaZola(Plan):
    """The paper's CNN in every contestant, for so many epochs, or until the time is up."""

    name = "lima-zola"
    epochs: int = EPOCHS
    batch: int = 128
    on_cpu: tuple[str, ...] = ON_CPU
    data: str | None = None
    patience: float = 600.0
    seconds: float = math.inf  # after which no round begins

    def phases(self) -> list[Phase]:
        names = ",".join(self._contestants())
        command = f"pareo race papers-cnn --epochs {self.epochs} --contestants {names}"
        return [
            Phase(RACE, f"{counted(self.epochs, 'epoch')} in every contestant", self._run, command)
        ]

    def _contestants(self) -> list[str]:
        on_gpu = ON_GPU[:1] if no_gpu() else ON_GPU
        return [*self.on_cpu, *on_gpu]

    def _run(self, say: Say) -> RaceResult:
        task = task_for("papers-cnn", self.batch, cores(), source=self.data)
        rules = replace(
            Rules().training(self.epochs, None), patience=self.patience, untried=SLOW_TO_BUILD,
            seconds=self.seconds,
        )  # fmt: skip
        race = Race(
            task, chosen(self._contestants()), rules,
            watch=lambda now: say(f"{now.doing}, round {now.round}" if now.round else now.doing),
        )  # fmt: skip
        return ran(race)

    def lines(self, found: Found) -> list[Line]:
        """40 epochs on each device, the ratio of both, and what was learned."""
        result = found.result(RACE, RaceResult)
        rows = {row.contestant: row for row in result.rows} if result else {}
        cpu, gpu = (self.paper.figure(name) for name in ("cpu", "gpu"))
        made = [
            self._line(figure, name, rows.get(name), found, result.images if result else IMAGES)
            for figure, names in ((cpu, self.on_cpu), (gpu, ON_GPU))
            for name in names
            if name in self._contestants()
        ]
        return [*made, *self._speedups(rows, found), *self._accuracies(rows)]

    def _line(
        self, figure: Figure, name: str, row: Row | None, found: Found, images: int
    ) -> Line:  # fmt: skip
        seconds = _seconds(row)
        if row is None or seconds is None:
            more = found.absent(RACE)
            if row is not None and row.status != "ok":
                more = {"status": row.status, "note": row.note}
            return Line.of(TIMES, figure, by=name, **more)
        least = row.floor.seconds_per_epoch
        return Line.of(
            TIMES, figure, by=name, here=EPOCHS * IMAGES / images * seconds,
            note=_extent(row, images),
            of_limit=least / seconds if least else None,
        )  # fmt: skip

    def _speedups(self, rows: dict[str, Row], found: Found) -> Iterator[Line]:
        """The paper's ratio: with a GPU the same, without one hand-written code on the CPU."""
        figure = self.paper.figure("speedup")
        here = {"pareo-compiled": "framework / hand-written, both on the CPU"}
        for base in ("tensorflow", "torch"):
            for name in ("pareo-cuda", "pareo-compiled"):
                slow, fast = _seconds(rows.get(base)), _seconds(rows.get(name))
                more = self._missing(rows, base, name, found)
                if slow and fast:
                    more = {"here": slow / fast}
                by, what = f"{base} / {name}", here.get(name, figure.what)
                on = figure.on if what == figure.what else ""
                yield Line.of(SPEEDUP, figure, what=what, on=on, by=by, **more)

    def _missing(self, rows: dict[str, Row], base: str, name: str, found: Found) -> Measured:
        for one in (base, name):
            if one in rows and rows[one].status != "ok":
                return {"status": rows[one].status, "note": f"{one}: {rows[one].note}"}
            if rows and one not in rows:
                return {"status": "waiting", "note": f"{one} was not in the race"}
        return found.absent(RACE)

    def _accuracies(self, rows: dict[str, Row]) -> Iterator[Line]:
        """What each had learned in the end; the paper's figure has no numbers."""
        for row in rows.values():
            points = [point for point in row.curve if point.accuracy is not None]
            if points:
                last = points[-1]
                yield Line(
                    section=ACCURACY, what=f"after {counted(last.epoch, 'epoch')}", unit="%",
                    place="Figure 1(b), which has no numbers", by=row.contestant,
                    here=100 * (last.accuracy or 0.0), note=f"{last.seconds:.3g} s of training",
                )  # fmt: skip

    def why(self, found: Found) -> list[str]:
        """Why 219 s are far from what a GPU can do, and 621 s from what a CPU can."""
        return [
            "The network has 2,343 parameters, and an image needs 0.41 MFLOP in a training step, "
            "so 40 epochs are 1 TFLOP: 13 s at 75 GFLOP/s, which two cores of an Arm Neoverse N1 "
            "reach in matrix products, and a fraction of a second at a T4's peak. Neither 621 s "
            "nor 219 s is near a limit of its hardware. What is left is the overhead of many "
            "small steps: calls from Python on the CPU, and launches of kernels on the GPU. The "
            "column "
            '"of limit" has the share of this machine\'s floor.',
            "pareo's compiled device trains on whole batches in one generated loop, in which all "
            "sizes are constants, and does not return to Python; its cuda device runs a whole "
            "epoch in one launch. The frameworks in the table have the overhead of a call for each "
            "operator or each step; how far they are from pareo says what that costs on the same "
            "processor.",
            "The paper does not give its batch size, rate or initial weights. Here a batch has "
            f"{self.batch} images, and all contestants train on the same ones.",
        ]


def _seconds(row: Row | None) -> float | None:
    """Seconds of an epoch: of those that were trained, else the median of shorter turns."""
    if row is None or not row.samples:
        return None
    return row.curve[-1].seconds / row.curve[-1].epoch if row.curve else row.median


def _extent(row: Row, images: int) -> str:
    """How much was trained, where it is not 40 epochs of all images."""
    epochs = row.curve[-1].epoch if row.curve else 0
    if epochs == EPOCHS and images == IMAGES:
        return ""
    trained = counted(epochs, "epoch") if epochs else "parts of an epoch"
    return f"from {trained} of {images:,} images"
