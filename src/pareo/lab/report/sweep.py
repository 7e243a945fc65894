"""The report of a sweep: the answer, time and memory against the batch size, and every cell."""

from collections.abc import Sequence
from html import escape

from pareo.lab.formatting import digits, span
from pareo.lab.papers import trindade_lima as paper
from pareo.lab.report import charts, energy
from pareo.lab.report.charts import Figure, titled
from pareo.lab.report.page import head, page
from pareo.lab.report.tables import table
from pareo.lab.sweep.advice import ahead, answer, known_limits, limits_title
from pareo.lab.sweep.result import Cell, SweepResult

MILLI = 1e3  # seconds as milliseconds


def html(result: SweepResult) -> str:
    """The report as one page."""
    return page(_title(result), _sections(result), figures(result))


def fragment(result: SweepResult) -> list[str]:
    """The sections that need no figures."""
    return [*_head(result), _limits(result), _cells(result)]


def _title(result: SweepResult) -> str:
    return f"{result.network} by batch size, {result.precision}"


def figures(result: SweepResult) -> dict[str, Figure]:
    """The paper's figure, time per image against the batch size, and memory likewise.

    Of a cell that several joined sweeps have, the latest is drawn.
    """
    cells = result.latest
    colours = charts.colours(dict.fromkeys(cell.contestant for cell in cells))
    found = {
        "times": _chart("ms per image", [*_times(cells, colours), *_floors(result)]),
        "memory": _memory(result, cells, colours),
    }
    spent = energy.chart((name, colour, _spent(cells, name)) for name, colour in colours.items())
    return found | ({"energy": spent} if spent else {})


def _spent(cells: list[Cell], name: str) -> list[energy.Spent]:
    own = [cell for cell in cells if cell.contestant == name and cell.times]
    return [energy.Spent(cell.median, cell.energy, f"batch {cell.batch}") for cell in own]


def _times(cells: list[Cell], colours: dict[str, str]) -> list[Figure]:
    lines = []
    for name, colour in colours.items():
        own = [cell for cell in cells if cell.contestant == name and cell.times]
        found = [_milliseconds(cell) for cell in own]
        line = _line(name, colour, own, [middle for _, middle, _ in found])
        lines.append({**line, "error_y": charts.error_bars(found, thickness=1)} if own else line)
    return lines


def _milliseconds(cell: Cell) -> tuple[float, float, float]:
    low, middle, high = (MILLI * seconds for seconds in cell.interval)
    return low, middle, high


def _floors(result: SweepResult) -> list[Figure]:
    """A dashed line for each place, below which no time can be."""
    lines = []
    batches = sorted({cell.batch for cell in result.cells})
    for place in dict.fromkeys(cell.place for cell in result.cells):
        least = [(batch, result.floor(place, batch)) for batch in batches]
        known = [(batch, MILLI * seconds / batch) for batch, seconds in least if seconds]
        style = {"dash": "dash", "width": 2, "color": charts.GREY}
        x, y = [batch for batch, _ in known], [each for _, each in known]
        lines.append(charts.line(f"floor, {place}", charts.GREY, x, y, mode="lines", line=style))
    return lines


def _memory(result: SweepResult, cells: list[Cell], colours: dict[str, str]) -> Figure:
    lines = []
    for name, colour in colours.items():
        own = [cell for cell in cells if cell.contestant == name and cell.memory.used]
        lines.append(_line(name, colour, own, [_giga(cell.memory.used) for cell in own]))
        expected = [cell for cell in own if cell.memory.predicted is not None]
        if expected:
            sizes = [_giga(cell.memory.predicted) for cell in expected]
            marks = _line(f"{name}, predicted", colour, expected, sizes)
            lines.append({**marks, "mode": "markers", "marker": {"symbol": "x", "size": 10}})
    limits = known_limits(result)
    chart = _chart("GB used", lines, [_giga(limit) for limit in limits.values()])
    chart["layout"]["shapes"] = [
        {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": _giga(limit), "y1": _giga(limit),
         "line": {"dash": "dash", "width": 2},
         "label": {"text": f"limit {said} GB", "textposition": "start", "yanchor": "bottom"}}
        for said, limit in limits.items()
    ]  # fmt: skip
    return chart


def _giga(size: float | None) -> float:
    return (size or 0) / 1e9


def _line(name: str, colour: str, cells: Sequence[Cell], values: Sequence[float]) -> Figure:
    hover = "batch %{x}: %{y:.4g}<extra>%{fullData.name}</extra>"
    return charts.line(name, colour, [cell.batch for cell in cells], values, hovertemplate=hover)


def _chart(up: str, lines: list[Figure], more: Sequence[float] = ()) -> Figure:
    """Lines against the batch size; `more` are heights that must be seen besides those of lines."""
    batches = sorted({batch for line in lines for batch in line["x"]})
    ticks = {"tickvals": batches, "ticktext": [str(batch) for batch in batches]}
    heights = [value for line in lines for value in line["y"]]
    return charts.with_legend(
        lines, 430, titled("images per batch, logarithmic", type="log", **ticks),
        titled(f"{up}, logarithmic", **charts.logarithmic([*heights, *more])),
    )  # fmt: skip


def _head(result: SweepResult) -> list[str]:
    best = answer(result)
    samples = {
        ", ".join(part for part in (cell.contestant, f"batch {cell.batch}", cell.note) if part):
            cell.seconds_per_batch
        for cell in result.cells
    }  # fmt: skip
    said = best.sentence if best else "No contestant was timed."
    return [
        head(result, _title(result), said, result.settings.threads, samples),
        f"<p>{escape(said)}</p>" if (said := ahead(result)) else "",
    ]


def _sections(result: SweepResult) -> list[str]:
    return [
        *_head(result),
        "<h2>Time per image</h2>",
        charts.figure("times", "Milliseconds per image: median and 95 % interval."),
        "<h2>Memory</h2>",
        charts.figure(
            "memory",
            "Memory that a training process uses, or on a GPU that its arrays use. Crosses are "
            "predictions. A dashed line is a limit, if there was one; on a GPU it is a limit of "
            "all memory that a process takes there, including its code.",
        ),
        _limits(result),
        "<h2>Energy</h2>",
        charts.figure("energy", energy.CAPTION) if _has_energy(result) else energy.NOTHING,
        f"<h2>Every cell</h2>{_cells(result)}",
        _paper(result),
    ]


def _has_energy(result: SweepResult) -> bool:
    return any(cell.energy.known for cell in result.latest if cell.times)


def _limits(result: SweepResult) -> str:
    if not result.limits:
        return ""
    rows = [
        [
            one.contestant,
            _giga(one.limit),
            one.words,
            None if one.used is None else _giga(one.used),
            one.predicted,
            one.note,
        ]
        for one in result.limits
    ]
    heads = ["contestant", "under GB", "largest batch", "GB used there", "predicted batch", "note"]
    return f"<h3>{limits_title(result)}</h3>{table(heads, rows)}"


def _cells(result: SweepResult) -> str:
    heads = [
        "contestant", "batch", "ms per image", "95 % interval", "ms per batch", "images/s",
        "of the floor", "GB used", "GB reserved", "GB predicted", "of these the program", "note",
    ]  # fmt: skip
    rows = []
    for cell in sorted(result.cells, key=lambda cell: (cell.batch, cell.median)):
        used = cell.memory
        memory = [
            None if size is None else _giga(size)
            for size in (used.used, used.reserved, used.predicted, used.program)
        ]
        if not cell.times:
            rows.append([cell.contestant, cell.batch, cell.status, *[""] * 4, *memory, cell.note])
            continue
        low, middle, high = _milliseconds(cell)
        least = result.floor(cell.place, cell.batch)
        rows.append(
            [
                cell.contestant,
                cell.batch,
                digits(middle),
                span(low, high),
                digits(middle * cell.batch),
                digits(1 / cell.median),
                f"{least / (cell.median * cell.batch):.0%}" if least else "unknown",
                *memory,
                cell.note,
            ]
        )
    return table(heads, rows)


def _paper(result: SweepResult) -> str:
    """What the paper published, for its networks."""
    if result.network not in paper.NETWORKS:
        return ""
    about = f"Trindade and Lima, {paper.FRAMEWORKS}, on {paper.MACHINE}; batches 1 to 512."
    return f"<h2>As published</h2><p>{escape(about)}</p>{table(['where', 'what'], paper.FINDINGS)}"
