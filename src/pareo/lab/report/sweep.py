"""The report of a sweep: the answer, time and memory against the batch size, and every cell."""

from html import escape
from pathlib import Path
from typing import Any

from pareo.lab.atomic_write import write_whole
from pareo.lab.experiment.statistics import error_bar, interval, noticed
from pareo.lab.formatting import digits, span
from pareo.lab.papers import trindade_lima as paper
from pareo.lab.report.page import page
from pareo.lab.report.race_figures import COLOURS
from pareo.lab.report.tables import table
from pareo.lab.sweep.advice import ahead, answer, known_limits, limits_title
from pareo.lab.sweep.cells import Cell, from_dict
from pareo.lab.sweep.floors import floor
from pareo.lab.sweep.results import checked

Figure = dict[str, Any]
MILLI = 1e3  # seconds as milliseconds


def write(result: dict[str, Any], path: Path) -> None:
    """Write the report of a sweep to a file."""
    text = html(checked(result, "this sweep"))
    write_whole(path, text)


def html(result: dict[str, Any]) -> str:
    """The report as one page."""
    title = f"{result['network']} by batch size, {result['precision']}"
    drawn = figures(result)
    return page(title, _body(result, title), drawn)


def figures(result: dict[str, Any]) -> dict[str, Figure]:
    """The paper's figure, time per image against the batch size, and memory likewise.

    Of a cell that several sweeps have, the latest is drawn.
    """
    cells = [*{(c["contestant"], c["batch"]): from_dict(c) for c in result["cells"]}.values()]
    names = list(dict.fromkeys(cell.contestant for cell in cells))
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    return {
        "times": _chart("ms per image", [*_times(cells, colours), *_floors(result, cells)]),
        "memory": _memory(result, cells, colours),
    }


def _times(cells: list[Cell], colours: dict[str, str]) -> list[Figure]:
    lines = []
    for name, colour in colours.items():
        own = [c for c in cells if c.contestant == name and c.seconds_per_batch]
        found = [[MILLI * bound for bound in interval(cell.seconds_per_image)] for cell in own]
        bars = [error_bar(*ends) for ends in found]
        spread = {
            "type": "data",
            "symmetric": False,
            "array": [above for _, above in bars],
            "arrayminus": [below for below, _ in bars],
            "thickness": 1,
        }
        line = _line(name, colour, own, [middle for _, middle, _ in found])
        lines.append({**line, "error_y": spread} if len(own) else line)
    return lines


def _floors(result: dict[str, Any], cells: list[Cell]) -> list[Figure]:
    """A dashed line for each place: below it no time can be."""
    lines = []
    for place in dict.fromkeys(cell["place"] for cell in result["cells"]):
        name = next(c["contestant"] for c in result["cells"] if c["place"] == place)
        batches = sorted({cell.batch for cell in cells})
        least = [(batch, floor(result, name, batch)) for batch in batches]
        known = [(batch, seconds / batch) for batch, seconds in least if seconds]
        lines.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"floor, {escape(place, quote=False)}",
                "x": [batch for batch, _ in known],
                "y": [MILLI * seconds for _, seconds in known],
                "line": {"dash": "dash", "width": 2, "color": "#888888"},
            }
        )
    return lines


def _memory(result: dict[str, Any], cells: list[Cell], colours: dict[str, str]) -> Figure:
    lines = []
    for name, colour in colours.items():
        own = [c for c in cells if c.contestant == name and c.memory.get("used")]
        lines.append(_line(name, colour, own, [_giga(c.memory["used"]) for c in own]))
        expected = [c for c in own if c.predicted is not None]
        if expected:
            sizes = [_giga(c.predicted) for c in expected]
            marks = _line(f"{name}, predicted", colour, expected, sizes)
            lines.append({**marks, "mode": "markers", "marker": {"symbol": "x", "size": 10}})
    chart = _chart("GB used", lines)
    chart["layout"]["shapes"] = [
        {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": _giga(limit), "y1": _giga(limit),
         "line": {"dash": "dash", "width": 2},
         "label": {"text": f"limit {said} GB", "textposition": "start", "yanchor": "bottom"}}
        for said, limit in known_limits(result).items()
    ]  # fmt: skip
    return chart


def _giga(size: int | None) -> float:
    return (size or 0) / 1e9


def _line(name: str, colour: str, cells: list[Cell], values: list[float]) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": escape(name, quote=False),
        "x": [cell.batch for cell in cells],
        "y": values,
        "line": {"color": colour, "width": 2},
        "hovertemplate": "batch %{x}: %{y:.4g}<extra>%{fullData.name}</extra>",
    }


def _chart(up: str, lines: list[Figure]) -> Figure:
    batches = sorted({batch for line in lines for batch in line["x"]})
    return {
        "data": lines,
        "layout": {
            "height": 430,
            "showlegend": True,
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
            "xaxis": {
                "title": {"text": "images per batch, logarithmic"},
                "type": "log",
                "tickvals": batches,
                "ticktext": [str(batch) for batch in batches],
            },
            "yaxis": {
                "title": {"text": f"{up}, logarithmic"},
                "type": "log",
                "dtick": "D2",  # 2 and 5 between powers of ten: more would lie on each other
                "automargin": True,
            },
        },
    }


def _body(result: dict[str, Any], title: str) -> str:
    best = answer(result)
    settings, machine = result["settings"], result["machine"]
    cells = [from_dict(cell) for cell in result["cells"]]
    samples = {
        ", ".join([cell.contestant, f"batch {cell.batch}", *([cell.note] if cell.note else [])]):
            cell.seconds_per_batch
        for cell in cells
        if cell.seconds_per_batch
    }  # fmt: skip
    noted = noticed(samples, settings["threads"], machine.get("idle_cores"))
    warnings = "".join(f"<li>{escape(sentence)}</li>" for sentence in noted)
    where = f"{result['when'][:16].replace('T', ' ')}, {machine.get('processor', 'unknown')}"
    cards = ", ".join(str(card.get("name")) for card in machine.get("cards") or [])
    place = f"{where}{', ' + cards if cards else ''}, {settings['threads']} threads."
    return "\n".join(
        [
            f"<h1>{escape(title)}</h1><p>{escape(place)}</p>",
            f'<p class="headline">{escape(best.sentence if best else "Nobody was timed.")}</p>',
            f"<p>{escape(ahead(result))}</p>",
            f'<ul class="noticed">{warnings}</ul>' if warnings else "",
            "<h2>Time per image</h2><figure><figcaption>Milliseconds per image: median and 95 % "
            'interval.</figcaption><div id="times"></div></figure>',
            "<h2>Memory</h2><figure><figcaption>Memory used by a training process, or on a GPU by "
            "its arrays. Crosses are predictions, a dashed line is a limit, if there was one: on a "
            "GPU of all that a process takes there, its code too."
            '</figcaption><div id="memory"></div></figure>',
            _limits(result),
            f"<h2>Every cell</h2>{_cells(result, cells)}",
            _paper(result),
        ]
    )


def _limits(result: dict[str, Any]) -> str:
    if not result["limits"]:
        return ""
    rows = [
        [
            one["contestant"],
            _giga(one["limit"]),
            "unknown" if one["largest"] is None else one["largest"],
            None if one["used"] is None else _giga(one["used"]),
            one["predicted"],
            one["note"],
        ]
        for one in result["limits"]
    ]
    heads = ["contestant", "under GB", "largest batch", "GB used there", "predicted batch", "note"]
    return f"<h3>{limits_title(result)}</h3>{table(heads, rows)}"


def _cells(result: dict[str, Any], cells: list[Cell]) -> str:
    heads = [
        "contestant", "batch", "ms per image", "95 % interval", "ms per batch", "images/s",
        "of the floor", "GB used", "GB reserved", "GB predicted", "of these the program", "note",
    ]  # fmt: skip
    rows = []
    for cell in sorted(cells, key=lambda cell: (cell.batch, cell.median)):
        memory = [
            None if size is None else _giga(size)
            for size in (
                cell.memory.get("used"), cell.memory.get("reserved"), cell.predicted,
                cell.memory.get("program"),
            )
        ]  # fmt: skip
        if not cell.seconds_per_batch:
            rows.append([cell.contestant, cell.batch, cell.status, *[""] * 4, *memory, cell.note])
            continue
        low, middle, high = (MILLI * bound for bound in interval(cell.seconds_per_image))
        least = floor(result, cell.contestant, cell.batch)
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


def _paper(result: dict[str, Any]) -> str:
    """What the paper published, for its networks."""
    if result["network"] not in paper.NETWORKS:
        return ""
    rows = [[place, said] for place, said in paper.FINDINGS]
    about = f"Trindade and Lima, {paper.FRAMEWORKS}, on {paper.MACHINE}; batches 1 to 512."
    return f"<h2>As published</h2><p>{escape(about)}</p>{table(['where', 'what'], rows)}"
