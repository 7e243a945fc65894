"""The fifth paper: six operators by size, with the roofline that explains them (Tables 2 and 3)."""

from collections.abc import Iterator
from dataclasses import dataclass

from pareo.device import Device, cores
from pareo.lab.machine.ceilings import Ceilings, ceilings_of
from pareo.lab.machine.places import CPU, GPU, Place
from pareo.lab.ops.engine import Benchmark
from pareo.lab.ops.result import OpsResult
from pareo.lab.ops.summary import Timed, timed
from pareo.lab.ops.work import FORWARD, Work
from pareo.lab.papers import melo as published
from pareo.lab.replication.engine import Found, Phase, Plan, Say, no_gpu, ran
from pareo.lab.replication.result import Line, Measured

OPERATORS = "operators"
MB = 1 << 20
SUCCESSOR = "pytensor"  # of Theano, on the CPU
ON_GPU = ("torch-cuda", "jax-cuda")


@dataclass(frozen=True)
class Melo(Plan):
    """Every operator and size of the paper's, up to a size; seconds are for each of them."""

    name = "melo"
    most: int = 1024  # MB
    seconds: float = 2.0
    peers: tuple[str, ...] = ("numpy", "torch", "jax", SUCCESSOR)

    @property
    def device(self) -> str:
        """The device whose figures stand beside the paper's: the GPU where there is one."""
        return "pareo-compiled" if no_gpu() else "pareo-cuda"

    def phases(self) -> list[Phase]:
        sizes = sorted({size for rows in published.PUBLISHED.values() for size in rows})
        words = ",".join(f"{size}MB" for size in sizes if size <= self.most)
        device, peers = self.device.removeprefix("pareo-"), ",".join(self._peers())
        command = (
            f"pareo ops --sizes {words} --devices {device} --peers {peers} "
            f"--seconds {self.seconds:g}"
        )
        return [Phase(OPERATORS, "six operators at every size", self._run, command)]

    def _run(self, say: Say) -> OpsResult:
        works = [
            Work(operator, FORWARD, size * MB)
            for operator, rows in published.PUBLISHED.items()
            for size in rows
            if size <= self.most
        ]
        on = "-cuda" if self.device == "pareo-cuda" else ""
        peers = [name if name == SUCCESSOR else name + on for name in self._peers()]
        contestants = [self.device, *peers]
        limits: dict[Place, Ceilings] = {CPU: self._ceilings("compiled", say)}
        if self.device == "pareo-cuda":
            limits[GPU] = self._ceilings("cuda", say)
        benchmark = Benchmark(
            works, contestants, limits, cores(), self.seconds, lambda now: say(now.doing)
        )
        return ran(benchmark)

    def _peers(self) -> list[str]:
        """Those that compute on the same device; Theano's successor has the CPU alone."""
        if self.device != "pareo-cuda":
            return [*self.peers]
        return [name for name in self.peers if name == SUCCESSOR or f"{name}-cuda" in ON_GPU]

    def _ceilings(self, name: str, say: Say) -> Ceilings:
        device = Device(name) if name == "cuda" else Device(name, threads=cores())
        return ceilings_of(device, False, lambda done, of, what: say(f"this machine's {what}"))

    def lines(self, found: Found) -> list[Line]:
        """Both tables: MFLOP/s, and per cent of the peak; PyTensor where it was timed."""
        result = found.result(OPERATORS, OpsResult)
        here = {
            (one.cell.contestant, one.cell.operator, one.cell.nbytes // MB): one
            for one in (timed(result) if result is not None else ())
        }
        return [
            line
            for operator, rows in published.PUBLISHED.items()
            for share in (False, True)
            for size in rows
            for by in (self.device, SUCCESSOR)
            if by == self.device or (by, operator, size) in here
            for line in self._row(operator, size, share, by, here.get((by, operator, size)), found)
        ]

    def _row(
        self, operator: str, size: int, share: bool, by: str, one: Timed | None, found: Found
    ) -> Iterator[Line]:
        place = self.paper.table(operator).place
        unit = "%" if share else "MFLOP/s"
        what = "per cent of the arithmetic peak" if share else "MFLOP/s"
        more = self._absent(operator, size, found)
        if one is not None:
            value = one.hot.of_peak * 100 if share else one.hot.flops_rate / 1e6
            more = {"here": value, "of_limit": one.hot.of_roofline}
        for gpu, cells in zip(
            published.GPUS, published.PUBLISHED[operator][size], strict=True
        ):  # fmt: skip
            yield Line(
                section=f"{place}, {operator.upper()}: {what}", what=f"{size:,} MB", unit=unit,
                place=place, on=gpu.name, published=cells[share], by=by, **more,
            )  # fmt: skip

    def _absent(self, operator: str, size: int, found: Found) -> Measured:
        if size > self.most:
            return {"status": "waiting", "note": "not in --quick"}
        result = found.result(OPERATORS, OpsResult)
        for cell in result.rows if result else ():
            wanted = (operator, size * MB, self.device)
            if (cell.operator, cell.nbytes, cell.contestant) == wanted and cell.status != "ok":
                return {"status": cell.status, "note": cell.note}
        return found.absent(OPERATORS)

    def why(self, found: Found) -> list[str]:
        """What the arithmetic peak hides, and the roofline shows."""
        k40, mflops = published.GPUS[1], published.PUBLISHED["add"][96][1][0]
        share = mflops * 1e6 * 12 / k40.bandwidth  # a FLOP for each 12 bytes
        ratios = [
            sigmoid[0] / scalar[0]
            for sigmoid, scalar in zip(
                published.PUBLISHED["sigmoid"][128], published.PUBLISHED["scalar"][128], strict=True
            )
        ]
        rates = ", ".join(f"{gpu.bandwidth / 1e9:g}" for gpu in published.GPUS)
        return [
            "The paper divides by the arithmetic peak and finds a fraction of a per cent for ADD, "
            "MUL and Scalar. These operators do one FLOP for each 8 or 12 bytes, so bandwidth is "
            f"their limit: the K40's {mflops:,.0f} MFLOP/s of ADD move {share:.0%} of its "
            f'{k40.bandwidth / 1e9:g} GB/s. The column "of limit" has the share of the roofline: '
            "the longer of the time for the FLOPs and the time for the bytes, at the rates that "
            "`pareo ceilings` measured here. DOT does many FLOPs for each byte; only there is the "
            "arithmetic peak the limit.",
            f"The paper's GPUs have {rates} GB/s (Table 1). {self._bandwidth(found)}Elementwise "
            "operators differ by about that ratio. The smallest sizes fit into a cache here, which "
            f"is faster than memory.{self._calls()}",
            f"Table 3 has {min(ratios):.0f} to {max(ratios):.0f} times the MFLOP/s of Scalar for "
            "Sigmoid on the same bytes: the profiler counted the instructions inside the "
            "exponential. Here Sigmoid counts as 3 FLOPs an element and Tanh as 1, so their "
            "MFLOP/s do not compare directly, and their shares of the roofline do. "
            f"{self.paper.gone('Theano')}; PyTensor, its successor, has lines of its own where it "
            "is installed. It computes on the CPU.",
        ]

    def _calls(self) -> str:
        """Why small sizes are far from the limit on a GPU."""
        if self.device != "pareo-cuda":
            return ""
        return (
            " They are far from the limit all the same: a call from Python takes longer than the "
            "GPU needs for a few megabytes."
        )

    def _bandwidth(self, found: Found) -> str:
        """What the memory here reaches, where that was measured."""
        result = found.result(OPERATORS, OpsResult)
        place: Place = GPU if self.device == "pareo-cuda" else CPU
        if result is None or place not in result.ceilings:
            return ""
        rate = result.ceilings[place].memory(2.0).value
        where = "the GPU" if place == GPU else "the processor, as there is no GPU,"
        said = f"The memory of {where} reaches {rate / 1e9:.3g} GB/s here. "
        if result.ceilings[place].busy:
            said += (
                "That was measured while other programs ran, so shares of the limit are too high; "
                "`pareo ceilings --again` measures it again. "
            )
        return said
