"""What `pareo kernels` shows: a table for each contestant, the totals of all, and sentences."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from pareo.cli.tables.narrow import Figures
from pareo.lab.formatting import seconds as written
from pareo.lab.kernels.events import KernelTime
from pareo.lab.kernels.result import KernelsResult
from pareo.lab.kernels.summary import (
    HEADS,
    Section,
    accounts,
    figures,
    finding,
    sections,
    total_rows,
)


def everything(result: KernelsResult, most: int) -> Iterator[RenderableType]:
    """A table for each profile with at most so many rows (0: all), then totals and sentences."""
    found = list(sections(result))
    for section in found:
        yield kernels(section, most)
    if found:
        yield totals(result, found)
    for line in lines(result, found):
        yield escape(line)


def lines(result: KernelsResult, found: list[Section]) -> list[str]:
    """What stands below the tables."""
    said = [accounts(section, result) for section in found]
    said += finding(result) if found else []
    said += [
        f"{row.contestant}: {row.status}: {row.note}" for row in result.rows if row.status != "ok"
    ]
    return said


def kernels(section: Section, most: int) -> Table:
    """One profile, the longest kernels first."""
    profile = section.profile
    title = f"{section.title}: {written(profile.seconds)} a step under {profile.instrument}"
    names = ("kernel or routine", "kind", "shape")
    made = Figures(
        *names, *HEADS, title=escape(title), left=names, whole=names,
        least=("shape", "kind", "calls"),
    )  # fmt: skip
    made.columns[0].max_width, made.columns[2].max_width = 44, 40
    shown = section.kernels[: most or None]
    for row in shown:
        made.add_row(escape(row.name), row.kind, escape(row.shape), *figures(row, section))
    hidden = section.kernels[len(shown) :]
    if hidden:
        calls, taken = sum(row.calls for row in hidden), sum(row.seconds for row in hidden)
        rest = KernelTime("", "other", "", calls, taken)
        made.add_row(f"[dim]and {len(hidden)} more[/]", "", "", *figures(rest, section))
    made.add_row(escape(section.rest.name), "other", "", *figures(section.rest, section))
    return made


def totals(result: KernelsResult, found: list[Section]) -> Table:
    """The sums of each kind for every contestant."""
    flops = result.matrix_flops / 1e9
    title = f"Totals by kind; products and convolutions of the program: {flops:,.4g} GFLOP"
    names = ("contestant", "kind")
    made = Figures(*names, *HEADS, title=title, left=names, least=("calls",))
    made.columns[0].max_width = 40
    for section in found:
        for number, cells in enumerate(total_rows(result, section)):
            made.add_row("" if number else escape(section.title), *cells)
        made.add_section()
    return made
