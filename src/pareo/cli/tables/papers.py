"""What `pareo papers` and `pareo paper` show."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pareo.cli.tables.narrow import TIGHT, Figures
from pareo.lab.experiment.statistics import noticed
from pareo.lab.formatting import digits, percent
from pareo.lab.papers.published import Paper
from pareo.lab.replication.result import Line, PaperResult, by_hardware, hardware
from pareo.lab.replication.words import amount, measured_by, ratio, shared, summary, title

WHAT, PAPER, HERE, RATIO, LIMIT = "what", "paper", "here", "here / paper", "of limit"
BY = "measured with, or why not"
SHORT = 12  # characters of a word that never wraps


def everyone(found: Mapping[str, Paper]) -> Table:
    """One table of all papers, which 80 columns suffice for."""
    made = Table(title="The five papers", title_justify="left", show_lines=True, **TIGHT)
    made.add_column("name", no_wrap=True, style="bold")
    made.add_column("paper")
    for name, one in found.items():
        about = Text()
        about.append(one.title, "italic")
        about.append(f"\n{', '.join(one.authors)}; {one.year}\n")
        about.append("asked  ", "dim")
        about.append(f"{one.question}\n")
        about.append("found  ", "dim")
        about.append(one.finding)
        made.add_row(name, about)
    return made


def report(result: PaperResult) -> Iterator[Table | Padding | str]:
    """The report: what the paper asked and found, its figures beside those here, and why."""
    about = result.published
    yield f"[bold]{escape(title(result))}[/]"
    yield escape(f"{about.title}. {', '.join(about.authors)}; {about.year}.")
    yield escape(f"The paper's machine: {about.machine}. This one: {result.machine.name}.")
    for sentence in noticed({}, result.machine.cores or 0, result.machine.idle_cores):
        yield escape(sentence)
    for name, lines in result.sections.items():
        yield ""
        yield section(name, lines)
    yield "\n[bold]Why they differ[/]"
    for paragraph in result.why:
        yield Padding(escape(paragraph), (0, 0, 1, 0))
    yield "[bold]The paper's software[/]"
    for name, today in result.software.items():
        yield escape(f"{name}: {today}")
    yield ""
    yield escape(summary(result))


def section(name: str, lines: list[Line]) -> Table:
    """The lines under one heading; a column for each of the paper's GPUs if there are several.

    Columns without any cell are left out, and what all rows would say is said once, below.
    """
    rows = by_hardware(lines)
    columns = hardware(rows)
    by, note, reason = (
        shared(line.by for line in lines),
        shared(line.note for line in lines if line.here is not None),
        shared(line.note for line in lines if line.here is None),
    )
    said = {"here": by, "note": note, "not measured": reason}
    cells = [_cells(row, columns, by, (note, reason)) for row in rows.values()]
    heads = [WHAT, *(columns or [PAPER]), HERE, RATIO, LIMIT, BY]
    kept = [at for at in range(len(heads)) if any(row[at] for row in cells)]
    short = max(len(row[0]) for row in cells) <= SHORT
    made = Figures(
        *(heads[at] for at in kept),
        title=escape(name),
        caption=escape("; ".join(f"{word}: {words}" for word, words in said.items() if words)),
        left=(WHAT, BY),
        whole=(WHAT,) if short else (),
        least=(LIMIT,),
        **TIGHT,
    )
    for row in cells:
        made.add_row(*(escape(row[at]) for at in kept))
    return made


def _cells(
    row: Mapping[str, Line], columns: list[str], by: str, notes: tuple[str, str]
) -> list[str]:
    """The cells of one row, without what the caption says."""
    first = next(iter(row.values()))
    said = replace(first, by="" if by else first.by, note="" if first.note in notes else first.note)
    return [
        _what(first, columns),
        *([_number(row.get(name)) for name in columns] or [amount(first.published, first.unit)]),
        _number(first, here=True) if columns else amount(first.here, first.unit),
        " ".join(ratio(one.ratio, 2 if columns else 3) for one in row.values() if one.ratio),
        percent(first.of_limit),
        measured_by(said),
    ]


def _number(line: Line | None, here: bool = False) -> str:
    """A number without its unit, which the heading has."""
    value = None if line is None else line.here if here else line.published
    return "" if value is None else digits(value)


def _what(line: Line, columns: list[str]) -> str:
    """What a row is about, with the paper's hardware where that has no column."""
    return f"{line.what} ({line.on})" if line.on and not columns else line.what
