"""What `pareo parallel` shows: a row for each way, and what follows from them."""

from collections.abc import Iterator
from typing import Any

from rich.markup import escape
from rich.table import Table

from pareo.cli.tables.narrow import Figures
from pareo.lab.experiment.statistics import has_ends, interval
from pareo.lab.parallel.engine import Row
from pareo.lab.parallel.result import base_of
from pareo.lab.parallel.summary import lines, title


def everything(result: dict[str, Any]) -> Iterator[Table | str]:
    """The tables, then what can be said in sentences."""
    yield ways(result)
    if result.get("strategies"):
        yield laws(result)
    yield from lines(result)


def ways(result: dict[str, Any]) -> Table:
    """Train and test time, as in the paper's Table 2, of every way."""
    least = ("95 % interval", "test s", "communication", "idle", "of sgemm")
    made = Figures(title=escape(title(result)), title_justify="left", least=least)
    papers = "sgemm_peak" in result
    heads = ["train s", "95 % interval", "speedup", "efficiency", "test s", "speedup"]
    heads += ["of sgemm"] if papers else ["communication", "idle"]
    for head in ["contestant"] if papers else []:
        made.add_column(head)
    made.add_column("way", no_wrap=True)
    made.add_column("workers", justify="right")
    for head in heads:
        made.add_column(head, justify="right")
    made.add_column("note")
    for row in result["rows"]:
        first = [row["contestant"]] if papers else []
        first += [escape(row["name"]), str(row["workers"])]
        if not row["train"]:
            blank = [""] * (len(heads) - 1)
            made.add_row(*first, row["status"], *blank, escape(row["note"]))
            continue
        networks = row["networks"] if not papers else 1
        low, middle, high = (value / networks for value in interval(row["train"]))
        tested = [value / networks for value in row["test"]]
        cells = [
            f"{middle:.3g}",
            f"{low:.3g} to {high:.3g}" if has_ends(low, high) else "cannot tell",
            _times(row["speedup"]),
            _share(row["efficiency"]),
            f"{interval(tested)[1]:.3g}" if tested else "",
            _times(row["test_speedup"]),
        ]
        if papers:
            cells.append(_share(row["of_peak"]))
        else:
            cells += [_share(row["communication"]), _share(row["idle"])]
        made.add_row(*first, *cells, escape(row["note"]))
    return made


def laws(result: dict[str, Any]) -> Table:
    """Amdahl's law, fitted, and the batch size from which on each strategy pays."""
    counts = [str(count) for count in result["workers"] if count > 1]
    made = Figures(title="Against one worker", title_justify="left")
    made.add_column("strategy", no_wrap=True)
    for count in counts:
        made.add_column(f"speedup, {count} workers", justify="right")
    for head in ("serial share (Amdahl)", "limit", "pays from batch"):
        made.add_column(head, justify="right")
    for entry in result["strategies"]:
        pays = result["pays_from"].get(entry["strategy"])
        made.add_row(
            escape(entry["strategy"]),
            *(_times(entry["speedups"].get(count)) for count in counts),
            _share(entry["serial_share"]),
            _times(entry["limit"]) or ("none" if entry["serial_share"] == 0 else ""),
            "not here" if pays is None else str(pays),
        )
    return made


def running(rows: list[Row], doing: str) -> Table:
    """The table while it runs, and beneath it who has a turn."""
    made = Table(title_justify="left", caption=escape(doing), caption_justify="left")
    for head in ("contestant", "way", "workers", "train s", "speedup", "note"):
        made.add_column(head)
    for row in rows:
        base = base_of(row, rows)
        faster = _times(base.each / row.each) if base and row.train else ""
        seconds = f"{row.each:.3g}" if row.train else "waiting"
        told = [row.contestant, escape(row.name), str(row.workers), seconds, faster]
        made.add_row(*told, escape(row.note))
    return made


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
