"""What `pareo history` says of one result: what is best in it, and in how many seconds."""

from functools import singledispatch

from pareo.lab.arena.result import ArenaResult
from pareo.lab.arena.summary import distribution
from pareo.lab.experiment.entry import ranked
from pareo.lab.experiment.results import Result
from pareo.lab.ops.result import OpsResult
from pareo.lab.parallel.result import ParallelResult
from pareo.lab.race.result import RaceResult
from pareo.lab.replication.result import PaperResult
from pareo.lab.sweep.advice import answer
from pareo.lab.sweep.result import SweepResult
from pareo.lab.tune.result import TuneResult


@singledispatch
def best(result: Result) -> tuple[str, str]:
    """What is best in a result, and its seconds per epoch where that is what was measured."""
    raise NotImplementedError(f"a result of {result.kind}")


@best.register
def _(result: RaceResult) -> tuple[str, str]:
    timed = ranked(result.rows)
    return (timed[0].contestant, f"{timed[0].median:.4g}") if timed else ("nothing was timed", "")


@best.register
def _(result: SweepResult) -> tuple[str, str]:
    found = answer(result)
    return (f"{found.contestant}, batch {found.batch}" if found else "nothing was timed"), ""


@best.register
def _(result: OpsResult) -> tuple[str, str]:
    return f"{sum(bool(cell.hot) for cell in result.rows)} cells timed", ""


@best.register
def _(result: ParallelResult) -> tuple[str, str]:
    timed = {row.label: row.seconds for row in result.rows if row.seconds}
    name = min(timed, key=timed.__getitem__, default="nothing was timed")
    return name, f"{timed[name]:.4g}" if timed else ""


@best.register
def _(result: TuneResult) -> tuple[str, str]:
    found = result.best_trial
    return (f"trial {found.number}, {found.accuracy:.2%}" if found else "no trial finished"), ""


@best.register
def _(result: ArenaResult) -> tuple[str, str]:
    found = distribution(result.bouts)
    if found is None:
        return "nothing was compared", ""
    return f"best peer / pareo {found.mean:.2f}, {found.share:.0%} won", ""


@best.register
def _(result: PaperResult) -> tuple[str, str]:
    both = sum(line.ratio is not None for line in result.lines)
    return f"{both} figures beside the paper's", ""
