"""The fourth paper: three MLPs in threads of their own, or one after another (Table 2)."""

from collections.abc import Iterator
from dataclasses import dataclass

from pareo.device import cores
from pareo.lab.papers import costa_banevicius as published
from pareo.lab.papers.published import Figure
from pareo.lab.parallel.measure import PapersRun
from pareo.lab.parallel.names import (
    ALL_CORES,
    PROCESSES,
    SCHEDULED_PROCESSES,
    SCHEDULED_THREADS,
    SERIAL,
    THREADS,
)
from pareo.lab.parallel.result import PapersResult, Row
from pareo.lab.parallel.speedup import ratio
from pareo.lab.replication.engine import Found, Partly, Phase, Plan, Say
from pareo.lab.replication.result import Line, Measured

STRATEGIES = "strategies"
IMAGES = 60_000  # of MNIST, an epoch of the paper's
TRAIN, TEST = "Table 2: training, 256 epochs", "Table 2: testing"
AGAINST = "Separate threads: how many times as fast as one thread"
# The paper's two ways, and what they are here; Keras used all cores for one network, too.
APART, ALONE = (THREADS, PROCESSES), (ALL_CORES, SERIAL)
TODAY = (SCHEDULED_THREADS, SCHEDULED_PROCESSES)


@dataclass(frozen=True)
class CostaBanevicius(Plan):
    """The paper's three networks and its batches; an epoch on so many images is a turn."""

    name = "costa-banevicius"
    images: int = IMAGES
    rounds: int = 5

    def phases(self) -> list[Phase]:
        command = f"pareo parallel --papers --images {self.images} --rounds {self.rounds}"
        return [Phase(STRATEGIES, "three networks in every strategy", self._run, command)]

    def _run(self, say: Say) -> PapersResult:
        run = PapersRun(self.images, cores(), self.rounds)
        try:
            run.race(lambda rows, doing: say(doing))
        except KeyboardInterrupt:
            raise Partly(run.result()) from None
        return run.result()

    def lines(self, found: Found) -> list[Line]:
        """Table 2, for pareo, today's Keras on TensorFlow and PyTorch, and what follows from it."""
        result = found.result(STRATEGIES, PapersResult)
        note = ""
        if result is not None:
            note = f"{published.EPOCHS} epochs of {IMAGES:,} from turns of {result.images:,} images"
        made = []
        for section, kind in ((TRAIN, "train"), (TEST, "test")):
            threads, one = (self.paper.figure(f"{kind}-{way}") for way in ("threads", "one"))
            rows: list[tuple[Figure, tuple[str, ...], str]] = [
                (threads, APART, "separate threads"), (one, ALONE, "one thread"),
                (threads, TODAY, "today's ways"),
            ]  # fmt: skip
            for figure, names, what in rows:
                for row in _rows(result, names):
                    made.append(self._line(section, figure, what, row, found, note))
        return [*made, *self._speedups(result, found)]

    def _line(
        self, section: str, figure: Figure, what: str, row: Row, found: Found, note: str
    ) -> Line:
        seconds = row.seconds if section == TRAIN else row.test_seconds
        by = f"{row.contestant}: {row.name}"
        if seconds is None:
            absent = found.absent(STRATEGIES)
            more: Measured = {"status": row.status, "note": row.note}
            return Line.of(
                section, figure, what=what, by=by, **(more if row.status != "ok" else absent)
            )
        here = seconds * row.networks
        if section == TEST:
            return Line.of(section, figure, what=what, by=by, here=here, note=ONE_TEST)
        result = found.result(STRATEGIES, PapersResult)
        whole = published.EPOCHS * IMAGES / (result.images if result else IMAGES)
        return Line.of(
            section, figure, what=what, by=by, here=here * whole, of_limit=row.of_peak, note=note
        )

    def _speedups(self, result: PapersResult | None, found: Found) -> Iterator[Line]:
        """Table 2 as ratios, which do not depend on how fast the machine is."""
        for kind in ("train", "test"):
            one, threads = (self.paper.figure(f"{kind}-{way}") for way in ("one", "threads"))
            for contestant in ("pareo", "torch", "tensorflow"):
                for base in ALONE:
                    a, b = (_row(result, contestant, name) for name in (base, THREADS))
                    more = _ratio(a, b, kind) if a and b else found.absent(STRATEGIES)
                    yield Line(
                        section=AGAINST, what=f"{kind}ing", unit="times",
                        place="from Table 2: one thread / separate threads",
                        published=one.value / threads.value,
                        by=f"{contestant}: {THREADS}, against {base}",
                        **more,
                    )  # fmt: skip

    def why(self, found: Found) -> list[str]:
        """The paper's gain, what limits it, and what the test times cannot say."""
        train, test = (self.paper.value(f"{kind}-threads") for kind in ("train", "test"))
        epochs = published.EPOCHS
        return [
            "The paper gains 1.21 times in training, on a processor that it does not name. Threads "
            "can only use cores that one network leaves idle: Keras gave each product to all "
            "cores, whose threads wait at every small product, and several networks at once fill "
            "these gaps. Where one network's products already keep the cores busy, or where each "
            "network has one thread and there are as many threads as cores, there is little left "
            "to gain; the share of the limit beside each time says how little.",
            "The networks, the batches and the arithmetic are the same, so what differs is the "
            "processor and the program: one compiled loop over batches in place of a graph that is "
            "called from Python for every step. The share of the limit is that of the peak of "
            "matrix products that was measured here; above 100 % the machine was busier then.",
            "The paper does not say how often it tests. One test of 10,000 images in 98 s would "
            f"be out of proportion to its training ({train / epochs:.1f} s an epoch); a test after "
            f"each of {epochs} epochs would take {test / epochs:.2f} s. Here one test is timed.",
        ]


ONE_TEST = "one test of 10,000 images"


def _rows(result: PapersResult | None, names: tuple[str, ...]) -> list[Row]:
    """The rows of some strategies; rows without times where nothing was measured."""
    if result is None:
        return [Row("pareo", name, 1, 3) for name in names]
    return [row for name in names for row in result.rows if row.name == name]


def _row(result: PapersResult | None, contestant: str, name: str) -> Row | None:
    rows = result.rows if result else ()
    return next((row for row in rows if (row.contestant, row.name) == (contestant, name)), None)


def _ratio(over: Row, under: Row, kind: str) -> Measured:
    """How many times as long one strategy takes as another, or why that is not known."""
    for row in (over, under):
        if row.status != "ok":
            return {"status": row.status, "note": row.note}
    train, test = ratio(over.seconds, under.seconds), ratio(over.test_seconds, under.test_seconds)
    return {"here": train if kind == "train" else test}
