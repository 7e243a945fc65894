"""The report of `pareo paper`: every published figure beside the one measured here, and why."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from html import escape
from typing import Any

from pareo.lab.experiment.results import Result
from pareo.lab.formatting import digits, percent
from pareo.lab.ops.result import OpsResult
from pareo.lab.ops.summary import timed
from pareo.lab.parallel.result import PapersResult
from pareo.lab.race.result import RaceResult
from pareo.lab.replication.result import Line, PaperResult, by_hardware, hardware
from pareo.lab.replication.words import amount, measured_by, ratio, shared, summary, title
from pareo.lab.report import parallel, sweep
from pareo.lab.report.charts import Figure, chart, colours, figure, line
from pareo.lab.report.ops import paper as ops_paper
from pareo.lab.report.page import head, items, page
from pareo.lab.report.race.figures import figures as race_figures
from pareo.lab.report.tables import machine, table
from pareo.lab.sweep.result import SweepResult

CAPTIONS = {
    "times": "Times of this part.",
    "epochs": "Figure 1(a): seconds of training at the end of each epoch.",
    "accuracy": "Figure 1(b): seconds until the test images were first classified so well.",
    "speedup": "Figure 2: at the end of each epoch, how many times as fast as",
    "memory": "Memory against the batch size.",
}
KEPT = ("data", "layout", "base")  # of a figure
BY, PLACE = "measured with, or why not", "where in the paper"  # heads of columns
RATE = "MFLOP/s"  # of lines that a chart by size shows
DRAWN: tuple[tuple[type[Result], Callable[[Any], dict[str, Figure]]], ...] = (
    (RaceResult, race_figures),
    (SweepResult, sweep.figures),
    (PapersResult, parallel.figures),
)


def html(result: PaperResult) -> str:
    """The report as one page."""
    drawn = {**figures(result), **_by_size(result)}
    return page(title(result), _sections(result, drawn), drawn)


def figures(result: PaperResult) -> dict[str, Figure]:
    """The figures of the reports of each part, under names that are unique on the page."""
    found = {}
    for part in result.parts:
        whole = part.whole()
        for declared, draw in DRAWN:
            # A study of kernels is a race, too; its times are those of the tables.
            if whole is not None and type(whole) is declared:
                for name, one in draw(whole).items():
                    found[f"{part.name}-{name}"] = {key: one[key] for key in KEPT if key in one}
    return found


def _by_size(result: PaperResult) -> dict[str, Figure]:
    """A chart for each operator of the fifth paper: MFLOP/s against the size."""
    found = {}
    for number, (_, lines) in enumerate(result.sections.items()):
        columns = hardware(by_hardware(lines))
        if lines[0].unit != RATE or not columns:
            continue
        series: dict[str, list[tuple[float, float]]] = {}
        for one in lines:
            size = float(one.what.partition(" ")[0].replace(",", "")) if _sized(one) else None
            for name, value in ((one.on, one.published), (f"here: {one.by}", one.here)):
                if size and value and (size, value) not in series.setdefault(name, []):
                    series[name].append((size, value))
        palette = colours(series)
        drawn = [
            line(name, palette[name], [x for x, _ in points], [y for _, y in points])
            for name, points in series.items()
        ]
        found[f"size-{number}"] = chart(drawn, "MB of data", RATE)
    return found


def _sized(one: Line) -> bool:
    """Whether a line is of a size in MB."""
    number, _, unit = one.what.partition(" ")
    return unit == "MB" and number.replace(",", "").isdecimal() and len(number) < 10


def _sections(result: PaperResult, drawn: dict[str, Figure]) -> Iterator[str]:
    about = result.published
    yield head(result, title(result), _headline(result), result.machine.cores)
    yield f"<p><i>{escape(about.title)}</i> ({escape(about.english)}). "
    yield f"{escape(', '.join(about.authors))}; {escape(about.institution)}; "
    yield f"{escape(about.year)}. {escape(about.dated_by)}</p>"
    for word, said in (("Asked", about.question), ("Found", about.finding)):
        yield f"<p><b>{word}.</b> {escape(said)}</p>"
    yield f"<p><b>Its machine.</b> {escape(about.machine)}.</p>"
    for number, (name, lines) in enumerate(result.sections.items()):
        yield f"<h2>{escape(name)}</h2>{_lines(lines)}"
        if f"size-{number}" in drawn:
            yield figure(f"size-{number}", f"{name}, by size.")
    yield "<h2>Why they differ</h2>"
    yield "".join(f"<p>{escape(paragraph)}</p>" for paragraph in result.why)
    yield from _parts(result, drawn)
    yield "<h2>The paper's software today</h2>"
    yield items([f"{name}: {today}" for name, today in result.software.items()])
    yield f"<h2>Machine</h2>{machine(result)}"


def _headline(result: PaperResult) -> str:
    """The first figure that was published and measured here, and how many there are."""
    both = (one for one in result.lines if one.published is not None and one.here is not None)
    first = next(both, None)
    if first is None:
        return summary(result)
    published, here = amount(first.published, first.unit), amount(first.here, first.unit)
    how = f" ({measured_by(first)})" if measured_by(first) else ""
    what = f"{first.section}; {first.what}"
    return f"{what}: {published} in the paper, {here} here{how}. {summary(result)}"


def _lines(lines: list[Line]) -> str:
    """The lines of a heading; a column for each of the paper's GPUs if there are several."""
    rows = by_hardware(lines)
    columns = hardware(rows)
    heads = ["what", *(columns or ["paper"]), "here", "here / paper", "of limit", BY, PLACE]
    places = dict.fromkeys(line.place for line in lines)
    note = shared(line.note for line in lines if line.here is not None)
    cells = []
    for row in rows.values():
        first = next(iter(row.values()))
        shown = [digits(row[name].published or 0.0) if name in row else "" for name in columns] or [
            amount(first.published, first.unit)
        ]
        here = amount(first.here, "times" if columns else first.unit)  # which the heading has
        ratios = ", ".join(ratio(one.ratio) for one in row.values() if one.ratio is not None)
        what = f"{first.what} ({first.on})" if first.on and not columns else first.what
        cells.append(
            [what, *shown, here, ratios, percent(first.of_limit),
             measured_by(replace(first, note="") if first.note == note else first),
             first.place if len(places) > 1 else ""]
        )  # fmt: skip
    kept = [at for at in range(len(heads)) if any(row[at] for row in cells)]
    where = "" if len(places) > 1 else f"<p>In the paper: {escape(next(iter(places)))}.</p>"
    where += f"<p>Measured here: {escape(note)}.</p>" if note else ""
    shown_rows = ([row[at] for at in kept] for row in cells)
    return where + table([heads[at] for at in kept], shown_rows, wrap=len(places) > 1)


def _parts(result: PaperResult, drawn: dict[str, Figure]) -> Iterator[str]:
    """What was run, how long it took, and the figures of each part."""
    rows = [
        [part.name, digits(part.seconds), part.status, part.command or "no command of its own",
         part.note]
        for part in result.parts
    ]  # fmt: skip
    heads = ["part", "seconds", "status", "command that runs it alone", "note"]
    yield f"<h2>What was run</h2>{table(heads, rows)}"
    for part in result.parts:
        names = [name for name in drawn if name.startswith(f"{part.name}-")]
        whole = part.whole()
        tables = ops_paper.sections(timed(whole)) if isinstance(whole, OpsResult) else []
        if names or tables:
            yield f"<h2>Part: {escape(part.name)}</h2>"
        for name in names:
            caption = CAPTIONS.get(name.removeprefix(f"{part.name}-"), "")
            base = drawn[name].get("base")
            yield figure(name, f"{caption} {base}." if base else caption)
        yield from tables
