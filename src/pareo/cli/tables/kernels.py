"""What `pareo kernels` shows: a table for each contestant, the totals of all, and sentences."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from pareo.cli.tables.narrow import Figures
from pareo.lab.formatting import seconds as written
from pareo.lab.kernels.events import Row
from pareo.lab.kernels.summary import (
    HEADS,
    Section,
    accounts,
    figures,
    finding,
    matrix_flops,
    sections,
    total_rows,
)


def everything(result: dict[str, Any], most: int) -> Iterator[RenderableType]:
    """A table for each profile with at most so many rows (0: all), then totals and sentences."""
    found = list(sections(result))
    for section in found:
        yield kernels(section, most)
    if found:
        yield totals(result, found)
    for line in lines(result, found):
        yield escape(line)


def lines(result: dict[str, Any], found: list[Section]) -> list[str]:
    """What must be said beneath the tables."""
    told = [accounts(section, result) for section in found]
    told += finding(result) if found else []
    told += [
        f"{row['contestant']}: {row['status']}: {row['note']}"
        for row in result["rows"]
        if row["status"] != "ok"
    ]
    return told


def kernels(section: Section, most: int) -> Table:
    """One profile, the longest kernels first."""
    title = f"{section.title}: {written(section.seconds)} a step under {section.instrument}"
    made = Figures(title=escape(title), title_justify="left", least=("shape", "kind", "calls"))
    made.add_column("kernel or routine", max_width=44, no_wrap=True)
    made.add_column("kind", no_wrap=True)
    made.add_column("shape", max_width=40, no_wrap=True)
    for head in HEADS:
        made.add_column(head, justify="right")
    shown = section.kernels[: most or None]
    for row in shown:
        made.add_row(escape(row.name), row.kind, escape(row.shape), *figures(row, section))
    hidden = section.kernels[len(shown) :]
    if hidden:
        rest = Row("", "", "", sum(row.calls for row in hidden), sum(row.seconds for row in hidden))
        made.add_row(f"[dim]and {len(hidden)} more[/]", "", "", *figures(rest, section))
    made.add_row(escape(section.rows[-1].name), "other", "", *figures(section.rows[-1], section))
    return made


def totals(result: dict[str, Any], found: list[Section]) -> Table:
    """The sums of each kind for everyone."""
    flops = matrix_flops(result)
    title = f"Totals by kind; products and convolutions of the program: {flops / 1e9:,.4g} GFLOP"
    made = Figures(title=title, title_justify="left", least=("calls",))
    made.add_column("contestant", max_width=40)
    made.add_column("kind")
    for head in HEADS:
        made.add_column(head, justify="right")
    for section in found:
        for number, cells in enumerate(total_rows(result, section)):
            made.add_row("" if number else escape(section.title), *cells)
        made.add_section()
    return made
