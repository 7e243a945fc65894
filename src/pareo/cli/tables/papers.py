"""What `pareo papers` and `pareo paper` show."""

from collections.abc import Iterator, Mapping

from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pareo.cli.tables.narrow import TIGHT, Figures
from pareo.lab.formatting import digits, percent
from pareo.lab.papers.published import Paper
from pareo.lab.replication.result import Line, PaperResult, by_hardware, hardware
from pareo.lab.replication.words import amount, measured_by, ratio, summary, title

WHAT, PAPER, HERE, RATIO, LIMIT = "what", "paper", "here", "here / paper", "of limit"
BY = "by, or why not"


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
    for name, lines in result.sections.items():
        yield ""
        yield section(name, lines)
    yield "\n[bold]Why they differ[/]"
    for paragraph in result.why:
        yield Padding(escape(paragraph), (0, 0, 1, 0))
    yield "[bold]The paper's software[/]"
    for name, today in result.software:
        yield escape(f"{name}: {today}")
    yield ""
    yield escape(summary(result))


def section(name: str, lines: list[Line]) -> Table:
    """The lines under one heading; a column for each of the paper's GPUs if there are several."""
    rows = by_hardware(lines)
    columns = hardware(rows)
    shared = {line.by for line in lines}
    caption = f"Here: {escape(shared.pop())}." if columns and len(shared) == 1 else None
    made = Figures(
        WHAT, *(columns or [PAPER]), HERE, RATIO, LIMIT, BY,
        title=escape(name), caption=caption, left=(WHAT, BY), least=(LIMIT,),
    )  # fmt: skip
    for row in rows.values():
        first = next(iter(row.values()))
        published = [
            digits(value) if (value := _published(row.get(column))) is not None else ""
            for column in columns
        ]
        ratios = " ".join(ratio(line.ratio) for line in row.values() if line.ratio is not None)
        made.add_row(
            escape(_what(first, columns)),
            *(published or [amount(first.published, first.unit)]),
            (digits(first.here) if columns else amount(first.here, first.unit))
            if first.here is not None
            else "",
            ratios,
            percent(first.of_limit),
            escape(first.note if caption else measured_by(first)),
        )
    return made


def _published(line: Line | None) -> float | None:
    return None if line is None else line.published


def _what(line: Line, columns: list[str]) -> str:
    """What a row is about, with the paper's hardware where that has no column."""
    return f"{line.what} ({line.on})" if line.on and not columns else line.what
