"""What `pareo tune` shows: the best trials so far, and those being trained."""

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from pareo.cli.tables.narrow import TIGHT, Figures
from pareo.lab.tune.collect import trials_of
from pareo.lab.tune.result import Trial
from pareo.lab.tune.summary import shown
from pareo.parallel.tuning.search import Search

SHOWN = 10


def running(search: Search) -> Table:
    """The table while it runs; its caption says what is being trained."""
    made = table(trials_of(search), search.space.searched, search.wanted)
    under_way = [
        f"{number} (epoch {epoch.number}: {epoch.accuracy or 0:.2%})"
        for number, epoch in sorted(search.epochs.items())
    ]
    made.caption = f"training {', '.join(under_way) or '...'}"
    return made


def line(search: Search) -> str:
    """How far the search is, in a line of a log."""
    best = search.best
    found = "" if best is None or best.value is None else f"; best so far {best.value:.2%}"
    return f"{search.done} of {search.wanted} trials done, {len(search.running)} under way{found}"


def table(trials: Sequence[Trial], names: Sequence[str], wanted: int) -> Table:
    """The best trials, the best first."""
    words = [f"{len(trials)} of {wanted} trials"]
    for state in ("pruned", "failed"):
        count = sum(trial.state == state for trial in trials)
        words += [f"{count} {state}"] if count else []
    heads = ("trial", "accuracy", "epochs", "seconds", *names)
    made = Figures(*heads, title=", ".join(words), **TIGHT)
    done = [trial for trial in trials if trial.state == "complete"]
    for trial in sorted(done, key=lambda trial: (-(trial.accuracy or 0), trial.number))[:SHOWN]:
        cells = [f"{trial.accuracy:.2%}", str(len(trial.curve)), f"{trial.seconds or 0:.1f}"]
        values = [shown(trial.parameters.get(name)) for name in names]
        made.add_row(str(trial.number), *cells, *map(escape, values))
    return made
