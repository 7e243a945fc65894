"""What `pareo parallel` shows: a row for each strategy, and what follows from them."""

from collections.abc import Iterator

from rich.markup import escape
from rich.table import Table

from pareo.cli.tables.narrow import Figures
from pareo.lab.experiment.statistics import has_ends, interval
from pareo.lab.formatting import percent, times
from pareo.lab.parallel.result import OneNetworkResult, PapersResult, ParallelResult, Row
from pareo.lab.parallel.summary import lines, title


def everything(result: ParallelResult) -> Iterator[Table | str]:
    """The tables, then what can be said in sentences."""
    yield strategies(result)
    if isinstance(result, OneNetworkResult) and result.strategies:
        yield scaling(result)
    yield from lines(result)


def strategies(result: ParallelResult) -> Table:
    """Seconds of training and testing of every strategy, as in the paper's Table 2."""
    least = ("95 % interval", "test s", "communication", "idle", "of sgemm")
    papers = isinstance(result, PapersResult)
    heads = ["train s", "95 % interval", "speedup", "efficiency", "test s", "speedup"]
    heads += ["of sgemm"] if papers else ["communication", "idle"]
    made = Figures(
        *(["contestant"] if papers else []), "strategy", "workers", *heads, "note",
        title=escape(title(result)), left=("contestant", "strategy", "note"),
        whole=("strategy",), least=least,
    )  # fmt: skip
    for row in result.rows:
        first = [row.contestant] if papers else []
        first += [escape(row.name), str(row.workers)]
        if not row.train:
            blank = [""] * (len(heads) - 1)
            made.add_row(*first, row.status, *blank, escape(row.note))
            continue
        networks = row.networks if not papers else 1
        low, middle, high = (value / networks for value in interval(row.train))
        tested = [value / networks for value in row.test]
        cells = [
            f"{middle:.3g}",
            f"{low:.3g} to {high:.3g}" if has_ends(low, high) else "cannot tell",
            times(row.speedup),
            percent(row.efficiency),
            f"{interval(tested)[1]:.3g}" if tested else "",
            times(row.test_speedup),
        ]
        shares = [row.of_peak] if papers else [row.communication, row.idle]
        made.add_row(*first, *cells, *map(percent, shares), escape(row.note))
    return made


def scaling(result: OneNetworkResult) -> Table:
    """Speedups, Amdahl's law fitted to them, and the batch size from which each strategy pays."""
    counts = [str(count) for count in result.workers if count > 1]
    made = Figures(
        "strategy", *(f"speedup, {count} workers" for count in counts), "serial share (Amdahl)",
        "limit", "pays from batch", title="Compared with one worker", left=("strategy",),
        whole=("strategy",),
    )  # fmt: skip
    for one in result.strategies:
        pays = result.pays_from.get(one.strategy)
        made.add_row(
            escape(one.strategy),
            *(times(one.speedups.get(count)) for count in counts),
            percent(one.serial_share),
            times(one.limit) or ("none" if one.serial_share == 0 else ""),
            "not here" if pays is None else str(pays),
        )
    return made


def line(rows: list[Row], doing: str) -> str:
    """What takes a turn, in a line of a log."""
    return doing


def running(rows: list[Row], doing: str) -> Table:
    """The table while it runs; its caption says what takes a turn."""
    made = Table(title_justify="left", caption=escape(doing), caption_justify="left")
    for head in ("contestant", "strategy", "workers", "train s", "speedup", "note"):
        made.add_column(head)
    for row in rows:
        seconds = "waiting" if row.seconds is None else f"{row.seconds:.3g}"
        cells = [row.contestant, escape(row.name), str(row.workers), seconds, times(row.speedup)]
        made.add_row(*cells, escape(row.note))
    return made
