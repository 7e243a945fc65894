"""The third paper: AlexNet and GoogLeNet by batch size, their memory, and their products."""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from pareo.device import cores
from pareo.errors import PareoError
from pareo.lab.contestants.registry import chosen
from pareo.lab.experiment.entry import ranked
from pareo.lab.experiment.results import Result
from pareo.lab.experiment.tasks import task_for
from pareo.lab.experiment.worker import Worker
from pareo.lab.kernels.result import KernelsResult
from pareo.lab.kernels.study import TURNS, Study
from pareo.lab.kernels.summary import sections
from pareo.lab.papers import trindade_lima as published
from pareo.lab.replication.engine import Facts, Found, Partly, Phase, Plan, Say, no_gpu, ran
from pareo.lab.replication.result import Line, Measured, Where
from pareo.lab.sweep.admission import GPU_TURN
from pareo.lab.sweep.engine import Sweep
from pareo.lab.sweep.limit import next_batch, predicting
from pareo.lab.sweep.result import Cell, Probe, SweepResult
from pareo.lab.sweep.settings import Settings

KERNELS, MEMORY = "kernels", "memory"
ON_CPU = ("pareo-compiled", "torch", "tensorflow")
ON_GPU = ("pareo-cuda", "torch-cuda", "jax-cuda")
TIMES = "Figure 1: milliseconds per image"
BEST = "Time per image of one framework / another, at the batch where it gains most"
LARGEST = "The batch at which 12 GB of memory end"
CALLS, SECONDS = "Table 1: calls of SGEMM", "Table 1: seconds in SGEMM"
# The heads of narrow columns.
SHORTER = {"Caffe": "Caffe", "TensorFlow": "TF", "TensorFlow, batched": "TF batched"}
NO_NUMBERS = "Figure 1, which has no numbers"
# Contestants of the study of kernels, by place.
STUDIED = {False: ("pareo-compiled", "torch"), True: ("pareo-cuda", "torch-cuda")}


@dataclass(frozen=True)
class TrindadeLima(Plan):
    """Both networks at so many batch sizes; seconds are for each of these.

    gpu_seconds: the same on a GPU, which is less disturbed and faster.
    size: of images, 224 as in the paper. kernels: the batch whose kernels are counted, if any;
    turns: of each contestant in that study.
    largest: whether the largest batch that fits is searched by training, too.
    within: the share within which it is known at the end, searched or predicted; the paper
    doubled its batches.
    """

    name = "trindade-lima"
    networks: tuple[str, ...] = published.NETWORKS
    batches: tuple[int, ...] = published.BATCHES
    size: int = 224
    seconds: float = 60.0
    gpu_seconds: float = 10.0
    kernels: int | None = 128
    turns: int = TURNS
    largest: bool = True
    within: float = 0.2
    on_cpu: tuple[str, ...] = (*ON_CPU, "jax")

    @property
    def on_gpu(self) -> bool:
        """Whether there is a GPU; without one only the CPU's half is repeated."""
        return not no_gpu()

    def _settings(self, network: str) -> Settings:
        common = Settings(
            network,
            self.batches,
            threads=cores(),
            size=self.size,
            seconds=self._seconds,
            within=self.within,
        )
        if not self.on_gpu:
            return replace(common, contestants=self.on_cpu, largest=self.largest)
        # The largest batch is searched in as much memory as the paper's GPU had.
        limit = published.MEMORY if self.largest else None
        return replace(common, contestants=ON_GPU, turn=GPU_TURN, memory_limit=limit)

    @property
    def _seconds(self) -> float:
        return min(self.seconds, self.gpu_seconds) if self.on_gpu else self.seconds

    def phases(self) -> list[Phase]:
        sizes = ",".join(map(str, self.batches))
        names = ",".join(ON_GPU if self.on_gpu else self.on_cpu)
        options = f"--batches {sizes} --contestants {names} --seconds {self._seconds:g}"
        if self.largest:
            limit = f"--memory-limit {published.MEMORY // 10**9}GB" if self.on_gpu else "--largest"
            options += f" {limit} --within {100 * self.within:g}"
        if self.size != 224:
            options += f" --pixels {self.size}"
        found = []
        for network in self.networks:
            title, command = f"{network} at batch {sizes}", f"pareo sweep {network} {options}"
            sweep = Timed(self._settings(network))
            found.append(Phase(network, title, sweep, command, sweep.finish, sweep.resume))
        found.append(Phase(MEMORY, "the largest batch in 12 GB, predicted", self._predict))
        if self.kernels is not None:
            quick = " --quick" if self.turns < TURNS else ""
            quick += f" --pixels {self.size}" if self.size != 224 else ""
            command = f"pareo kernels alexnet --batch {self.kernels}{quick}"
            title = f"the kernels of alexnet at batch {self.kernels}"
            found.append(Phase(KERNELS, title, self._study, command))
        return found

    def _predict(self, say: Say) -> Facts:
        """The largest batch whose data and program fit into 12 GB, by `program.memory`."""
        name = "pareo-cuda" if self.on_gpu else "pareo-compiled"
        contestant, most = chosen([name])[name], published.MEMORY
        found = {}
        for network in self.networks:
            settings, probes = replace(self._settings(network), size=224), list[Probe]()
            with Worker(predicting, contestant, settings) as worker:
                while (batch := next_batch(probes, most, 64, self.within)) is not None:
                    say(f"{network}: does batch {batch} fit?")
                    used = worker.ask(batch)
                    probes.append(Probe(batch=batch, fits=used <= most, used=used))
            found[network] = float(max((p.batch for p in probes if p.fits), default=0))
        return Facts(found)

    @property
    def _predicted(self) -> str:
        close = f", within {100 * self.within:g} %" if self.within else ""
        return f"predicted by `program.memory`, not run{close}"

    def _study(self, say: Say) -> KernelsResult:
        task = task_for("alexnet", self.kernels or 1, cores(), self.size)
        return ran(Study(task, chosen([*STUDIED[self.on_gpu]]), turns=self.turns, say=say))

    def lines(self, found: Found) -> list[Line]:
        """Times by batch, the best ratio, the largest batch, and Table 1."""
        return [
            *self._times(found),
            *self._best(found),
            *self._largest(found),
            *self._table(found, CALLS, 1),
            *self._table(found, SECONDS, 0),
        ]

    def _times(self, found: Found) -> Iterator[Line]:
        for network in self.networks:
            result = found.result(network, SweepResult)
            where: Where = {"section": TIMES, "unit": "ms", "place": NO_NUMBERS}
            if result is None:
                yield Line(**where, what=network, **found.absent(network))
                continue
            for cell in result.cells:
                what, more = f"{network}, batch {cell.batch}", _measured(cell, result)
                yield Line(**where, what=what, by=cell.contestant, **more)
            yield Line(
                **where, what=network, by="Caffe 1.0.0", status="missing",
                note=self.paper.gone("Caffe"),
            )  # fmt: skip

    def _best(self, found: Found) -> Iterator[Line]:
        """The paper's best ratio, beside the best of pareo and a peer at one batch size."""
        for place, figure in (("cuda", "gpu-time"), ("cpu", "cpu-time")):
            published = self.paper.figure(figure)
            yield Line.of(
                BEST, published, by="TensorFlow / Caffe", status="missing",
                note=self.paper.gone("Caffe"),
            )  # fmt: skip
            if (place == "cuda") != self.on_gpu:
                reason = no_gpu() or "this machine was measured on its GPU"
                yield Line.of(BEST, published, by="pareo / peer", status="missing", note=reason)
                continue
            for network in self.networks:
                pair = _best_pair(found.result(network, SweepResult))
                if pair is None:
                    absent = found.absent(network)
                    yield Line.of(BEST, published, by=f"pareo / peer, {network}", **absent)
                    continue
                ours, other = pair
                yield Line.of(
                    BEST, published, what=f"{network}: pareo / the fastest peer",
                    by=f"{ours.contestant} / {other.contestant}, batch {ours.batch}",
                    here=ours.median / other.median,
                )  # fmt: skip
        swap = self.paper.figure("swap")
        note = "not repeated: pareo knows before it trains whether a batch fits"
        yield Line.of(BEST, swap, status="missing", note=note)

    def _largest(self, found: Found) -> Iterator[Line]:
        """What fitted in the paper's GPU, and what pareo's program would need in as much memory."""
        for name in ("largest-caffe", "largest-tensorflow"):
            figure = self.paper.figure(name)
            gone = self.paper.gone("Caffe")
            if name == "largest-caffe":
                yield Line.of(LARGEST, figure, by="Caffe 1.0.0", status="missing", note=gone)
            for network in self.networks:
                here = found.fact(MEMORY, network)
                more: Measured = {"here": here, "note": self._predicted}
                by = f"pareo, {network}, 224 x 224"
                yield Line.of(LARGEST, figure, by=by, **(more if here else found.absent(MEMORY)))

        yield from self._searched(found)

    def _searched(self, found: Found) -> Iterator[Line]:
        """The largest batch of each contestant in the memory of this machine, by training."""
        figure = self.paper.figure("largest-tensorflow")
        for network in self.networks:
            result = found.result(network, SweepResult)
            for one in result.limits if result else ():
                measured: Measured = {"status": "failed", "note": one.note}
                if one.largest is not None:
                    note = f"in {one.limit / 1e9:.3g} GB of this machine: {one.words}"
                    measured = {"here": float(one.largest), "note": note}
                what, by = "largest batch, searched", f"{one.contestant}, {network}"
                yield Line.of(LARGEST, figure, what=what, by=by, **measured)

    def _table(self, found: Found, section: str, column: int) -> Iterator[Line]:
        """Table 1 by kernel, whose names are of cuBLAS in 2017, and its sums beside a step here."""
        step = f"here, products and convolutions of a step of alexnet at batch {self.kernels}"
        where: Where = {
            "section": f"{section}; {step}", "place": "Table 1", "unit": "calls" if column else "s",
        }  # fmt: skip
        for framework, cells in published.sgemm().items():
            for kernel, both in cells.items():
                yield Line(
                    **where, what=kernel, on=SHORTER[framework], published=float(both[column]),
                    status="missing", note="kernels of cuBLAS in 2017, which has others today",
                )  # fmt: skip
        result = found.result(KERNELS, KernelsResult)
        counted = [one for one in sections(result) if not one.profile.mode] if result else []
        measured: list[tuple[str, Measured]] = [
            (one.contestant, {"here": one.matrix.calls if column else one.matrix.seconds})
            for one in counted
        ]
        for by, more in measured or [("", found.absent(KERNELS))]:
            for framework, both in published.totals().items():
                yield Line(
                    **where, what="all", on=SHORTER[framework], published=float(both[column]),
                    by=by, **more,
                )  # fmt: skip

    def why(self, found: Found) -> list[str]:
        """Why batches pay, where memory ends, and what the products say."""
        smaller = (
            f" Images have {self.size} x {self.size} pixels in this run, not 224 x 224 as in the "
            "paper, so an image takes less time."
            if self.size != 224
            else ""
        )
        return [
            "The paper's Figure 1 has no numbers, so times per image stand without a ratio; its "
            "text gives the largest gains. Time per image falls with the batch, because weights "
            "are read and updated once for all images of a batch, and products have more rows. It "
            'stops falling where arithmetic is the limit: the column "of limit" says how near.'
            + smaller,
            "Caffe multiplied image by image: 239,799 products, where TensorFlow made 183 and 219 "
            "batched ones. Today's frameworks give a layer of the whole batch to one call, so the "
            "calls of a step are about as many as its layers. The paper does not say for which "
            "network and how many steps it counted, so the sums do not compare with one step; the "
            "proportion between frameworks does.",
            "The largest batch is predicted from pareo's own program, at 224 x 224 pixels, in as "
            "much memory as the paper's GPU had. In it, a result is kept only until its last use, "
            "and parameters are updated in place. The paper does not say which network reached 128 "
            "and 256 images.",
        ]


@dataclass
class Timed:
    """A sweep as a phase; until it is finished, it goes on when it is run again."""

    settings: Settings
    _sweep: Sweep | None = None
    _earlier: SweepResult | None = None

    def __call__(self, say: Say) -> SweepResult:
        with closing(Sweep(self.settings)) as sweep:
            self._sweep = sweep
            if self._earlier is not None:
                sweep.take_over(self._earlier)
            try:
                return sweep.run(lambda now: say(now.doing))
            except KeyboardInterrupt:
                raise Partly(sweep.result()) from None

    def resume(self, earlier: Result) -> None:
        """Let it go on from an interrupted sweep, if that had the same settings."""
        if isinstance(earlier, SweepResult) and earlier.settings == self.settings:
            self._earlier = earlier

    def finish(self) -> None:
        """Let the next sweep of this kind begin again, even if this one was not run.

        Its result may have been taken from a file, while its journal still lies here.
        """
        with suppress(PareoError):
            (self._sweep or Sweep(self.settings)).finish()


def _measured(cell: Cell, result: SweepResult) -> Measured:
    if not cell.times:
        note = cell.note or "it was interrupted"
        return {"status": "ok" if cell.status == "memory" else cell.status, "note": note}
    least = result.floor(cell.place, cell.batch)
    share = least / (cell.median * cell.batch) if least else None
    return {"here": cell.median * 1e3, "of_limit": share, "note": cell.note}


def _best_pair(result: SweepResult | None) -> tuple[Cell, Cell] | None:
    """The cells of pareo and of its fastest peer, at the batch where their ratio is least."""
    pairs = []
    for batch in {cell.batch for cell in result.cells} if result else ():
        here = ranked(cell for cell in (result.cells if result else ()) if cell.batch == batch)
        ours = next((cell for cell in here if cell.ours), None)
        other = next((cell for cell in here if not cell.ours), None)
        if ours and other:
            pairs.append((ours, other))
    return min(pairs, key=lambda pair: pair[0].median / pair[1].median, default=None)
