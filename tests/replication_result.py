"""A plan that measures nothing, and made-up results, for tests of what shows a paper's."""

from collections.abc import Callable
from typing import Any

import ops_result
import race_result
import sweep_result

from pareo.lab.experiment import results
from pareo.lab.experiment.results import plain
from pareo.lab.parallel.result import PapersResult, Published, Row
from pareo.lab.replication.engine import Facts, Found, Phase, Plan, Replication, Say
from pareo.lab.replication.result import Line

Run = Callable[[Say], Any]


class Pretended(Plan):
    """A plan with the given phases, and a line for each of them."""

    name = "lima-zola"

    def __init__(self, **runs: Run) -> None:
        self.runs = runs

    def phases(self) -> list[Phase]:
        return [Phase(name, f"part {name}", run, "pareo race") for name, run in self.runs.items()]

    def lines(self, found: Found) -> list[Line]:
        figure, made = self.paper.figure("cpu"), []
        for name in self.runs:
            here = found.fact(name, "seconds")
            more = found.absent(name) if here is None else {"here": here}
            made.append(Line.of("Figure 1(a)", figure, by=name, **more))
        return made

    def why(self, found: Found) -> list[str]:
        return ["Nothing was measured."]


def measured(seconds: float) -> Run:
    """A phase that finds this number."""
    return lambda say: Facts({"seconds": seconds})


def raising(error: BaseException) -> Run:
    """A phase that ends with an error."""

    def run(say: Say) -> Any:
        raise error

    return run


def parallel(speed: float = 1.0) -> PapersResult:
    """The fourth paper's strategies, in round numbers."""
    from pareo.lab.parallel import names

    rows = []
    for contestant, slow in (("pareo", 1.0), ("torch", 2.0)):
        for number, name in enumerate((names.SERIAL, names.ALL_CORES, names.THREADS)):
            row = Row(contestant, name, 2, 3)
            row.add((6 - number) * slow / speed, 0.5 * slow)
            row.of_peak = 0.5 / slow
            rows.append(row)
    keras = [Row("tensorflow", name, 2, 3) for name in (names.THREADS, names.ALL_CORES)]
    keras[0].add(8 / speed, 1.0)
    keras[0].of_peak = 0.25
    keras[1].end("missing", "not installed: pip install 'pareo[tensorflow]'")
    rows += keras
    failed = Row("torch", names.PROCESSES, 3, 3)
    failed.end("failed", "it fell")
    return PapersResult(
        **PapersResult.header("parallel-papers"), network="three", batch=128, images=6_000,
        test_images=10_000, workers=[2], flops=1.0, sgemm_peak=1e9, rows=[*rows, failed],
        published=Published(epochs=256, seconds={"separate threads": [1, 1], "one thread": [1, 1]}),
    )  # fmt: skip


def made() -> dict[str, Any]:
    """A result with parts of several kinds, as a file has it."""
    plan = Pretended(race=lambda say: race_result.race(), ops=lambda say: ops_result.made(),
                     sweep=lambda say: sweep_result.sweep(), strategies=lambda say: parallel(),
                     facts=measured(3.0))  # fmt: skip
    result = Replication(plan, quick=True).run()
    for gpu, published in (("K40", 10.0), ("GTX980", 20.0)):
        result.lines.append(
            Line(section="Table 2, ADD", what="6 MB", unit="MFLOP/s", place="Table 2", on=gpu,
                 published=published, by="pareo-compiled", here=5.0, of_limit=0.5)
        )  # fmt: skip
    found = plain(result)
    results.checked(found, "a made-up paper")
    return dict(found)
