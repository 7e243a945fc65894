"""What `pareo tune` shows: the best trials so far, and what is under way."""

from collections.abc import Iterable
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from pareo.cli.tables.narrow import Figures
from pareo.parallel.tuning.outcome import plain
from pareo.parallel.tuning.search import Search
from pareo.parallel.tuning.study import counts

SHOWN = 10


def running(search: Search) -> Table:
    """The table while it runs; beneath it what is being trained."""
    trials = [plain(trial) for trial in search.study.get_trials(deepcopy=False) if counts(trial)]
    made = table(trials, search.space.searched, search.wanted)
    under_way = [
        f"{number} (epoch {epoch.number}: {epoch.accuracy or 0:.2%})"
        for number, epoch in sorted(search.epochs.items())
    ]
    made.caption = f"training {', '.join(under_way) or '...'}"
    made.caption_justify = "left"
    return made


def table(trials: list[dict[str, Any]], names: Iterable[str], wanted: int) -> Table:
    """The best trials, the best first."""
    words = [f"{len(trials)} of {wanted} trials"]
    for state in ("pruned", "failed"):
        count = sum(trial["state"] == state for trial in trials)
        words += [f"{count} {state}"] if count else []
    made = Figures(
        title=", ".join(words), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for head in ("trial", "accuracy", "epochs", "seconds", *names):
        made.add_column(head, justify="right")
    done = [trial for trial in trials if trial["state"] == "complete"]
    for trial in sorted(done, key=lambda t: (-t["accuracy"], t["number"]))[:SHOWN]:
        cells = [f"{trial['accuracy']:.2%}", str(len(trial["curve"])), f"{trial['seconds']:.1f}"]
        values = [shown(trial["parameters"].get(name)) for name in names]
        made.add_row(str(trial["number"]), *cells, *map(escape, values))
    return made


def shown(value: Any) -> str:
    """A hyper-parameter's value.

    >>> shown(0.123456), shown(64), shown("relu")
    ('0.1235', '64', 'relu')
    """
    return f"{value:.4g}" if isinstance(value, float) else str(value)
