"""The report of `pareo ops`: the paper's tables, size, roofline, and our own to-do list."""

from html import escape
from pathlib import Path
from typing import Any

from pareo.lab.atomic_write import write_whole
from pareo.lab.experiment.statistics import noticed
from pareo.lab.formatting import digits, span
from pareo.lab.machine.ceilings import Ceilings
from pareo.lab.ops.reading import Read, ceilings, offenders, timed
from pareo.lab.ops.results import checked
from pareo.lab.ops.sizes import shown
from pareo.lab.report import ceilings as limits
from pareo.lab.report import ops_paper as paper
from pareo.lab.report.charts import chart, colours, figure, line
from pareo.lab.report.page import page
from pareo.lab.report.tables import table

GREY = "#888888"
SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon")


def write(result: dict[str, Any], path: Path) -> None:
    """Write the report of a laboratory's result to a file."""
    text = html(checked(result, "this result"))
    write_whole(path, text)


def html(result: dict[str, Any]) -> str:
    """The report as one page."""
    found, known = timed(result), ceilings(result)
    drawn: dict[str, Any] = {}
    parts = [_head(result, found, known)]
    parts += paper.sections(found)
    parts.append("<h2>FLOP/s against size</h2>")
    for number, kind in enumerate(_kinds(found)):
        drawn[f"size{number}"] = _by_size([c for c in found if _kind(c) == kind], known)
        parts.append(figure(f"size{number}", f"{' '.join(kind)}, hot. Dotted: where caches end."))
    parts.append("<h2>Roofline</h2>")
    for place, one in known.items():
        drawn[f"roof-{place}"] = _roofline([c for c in found if c.row["place"] == place], one)
        said = "every operator at its largest size, on the roofline of its memory"
        parts.append(figure(f"roof-{place}", f"{limits.title(one)}: {said}."))
    parts += [_worst(found), paper.counters(result["rows"]), _cells(found), _not_timed(result)]
    for place, one in known.items():
        drawn[f"bandwidth-{place}"] = limits.bandwidth(one)
        parts.append(limits.section(one, f"bandwidth-{place}"))
    return page("Operators", "\n".join(part for part in parts if part), drawn)


def _head(result: dict[str, Any], found: list[Read], known: dict[str, Ceilings]) -> str:
    places = " and ".join(limits.title(one) for one in known.values())
    when = result["when"][:16].replace("T", " ")
    noted = noticed({}, result["threads"], result["machine"].get("idle_cores"))
    warnings = "".join(f"<li>{escape(sentence)}</li>" for sentence in noted)
    where = f"{when}, {places}, {result['threads']} CPU threads, float32."
    said = "Nobody was timed; the notes below say why."
    if found:
        best = max(found, key=lambda cell: cell.hot.of_roofline)
        said = f"Nearest to its roofline: {_placed(best)}."
        if worst := offenders(found, most=1):
            said += f" Furthest of pareo's own: {_placed(worst[0])}."
    return "\n".join(
        [
            "<h1>Operators, each against its own limit</h1>",
            f"<p>{escape(where)}</p>",
            f'<p class="headline">{escape(said)}</p>',
            f'<ul class="noticed">{warnings}</ul>' if warnings else "",
        ]
    )


def _named(cell: Read) -> str:
    row = cell.row
    return f"{row['operator']} {row['direction']} of {shown(row['nbytes'])}"


def _placed(cell: Read) -> str:
    return f"{_named(cell)} by {cell.row['contestant']}, {cell.hot.of_roofline:.0%}"


def _kind(cell: Read) -> tuple[str, str]:
    return cell.row["operator"], cell.row["direction"]


def _kinds(found: list[Read]) -> list[tuple[str, str]]:
    return list(dict.fromkeys(_kind(cell) for cell in found))


def _by_size(cells: list[Read], known: dict[str, Ceilings]) -> dict[str, Any]:
    """FLOP/s of each contestant; of what computes nothing, bytes a second."""
    told = colours(dict.fromkeys(cell.row["contestant"] for cell in cells))
    moves = not any(cell.row["flops"] for cell in cells)
    lines = []
    for name, colour in told.items():
        own = [cell for cell in cells if cell.row["contestant"] == name]
        rates = [cell.hot.byte_rate if moves else cell.hot.flops_rate for cell in own]
        lines.append(line(name, colour, [cell.row["nbytes"] for cell in own], rates))
    places = {cell.row["place"] for cell in cells}
    marks = [mark for place in sorted(places) for mark in limits.marks(known[place])]
    sizes = [cell.row["nbytes"] for cell in cells]
    near = [mark for mark in marks if min(sizes) / 2 <= mark[1] <= max(sizes) * 2]
    return chart(lines, "bytes of all operands", "bytes a second" if moves else "FLOP/s", near)


def _roofline(cells: list[Read], found: Ceilings) -> dict[str, Any]:
    """Roofs of memory and of each cache, and a point for each operator and contestant."""
    peak = found.peak("float32").value
    reach = [cell.hot.intensity for cell in cells if cell.row["flops"]] or [1.0]
    low, high = min(reach) / 4, max(*reach, peak / found.memory().value) * 4
    lines = []
    for name, _, nbytes in found.hierarchy():
        rate = found.stream("copy", nbytes).value
        ends = [low, peak / rate, high]
        roof = [min(peak, rate * x) for x in ends]
        more: dict[str, Any] = {
            "mode": "lines+text",
            "text": [name, "", ""],
            "textposition": "top right",
            "line": {"color": GREY, "width": 1},
            "showlegend": False,
        }
        lines.append(line(f"roof of {name}", GREY, ends, roof, **more))
    largest = {(*_kind(cell), cell.row["contestant"]): cell for cell in cells if cell.row["flops"]}
    told = colours(dict.fromkeys(name for *_, name in largest))
    symbols = {kind: SYMBOLS[n % len(SYMBOLS)] for n, kind in enumerate(_kinds(cells))}
    for name, colour in told.items():
        own = [cell for (*_, who), cell in largest.items() if who == name]
        first = name == next(iter(told))  # whose points carry the operators' names
        more = {
            "mode": "markers+text" if first else "markers",
            "marker": {"color": colour, "size": 10, "symbol": [symbols[_kind(c)] for c in own]},
            "text": [c.row["operator"] for c in own],
            "textposition": "bottom center",
            "hovertext": [f"{_named(c)}: {c.hot.of_roofline:.0%}" for c in own],
            "hovertemplate": "%{hovertext}<extra>%{fullData.name}</extra>",
        }
        points = [c.hot.intensity for c in own], [c.hot.flops_rate for c in own]
        lines.append(line(name, colour, *points, **more))
    return chart(lines, "FLOPs for each byte", "FLOP/s")


def _worst(found: list[Read]) -> str:
    rows = [
        [
            _named(cell),
            cell.row["contestant"],
            f"{cell.hot.of_roofline:.0%}",
            digits(cell.hot.seconds * 1e6),
            digits(cell.limit.floor(cold=False) * 1e6),
            cell.limit.why,
        ]
        for cell in offenders(found)
    ]
    if not rows:
        return ""
    heads = ["operator", "contestant", "of the roofline", "us", "could be", "limit"]
    return f"<h2>Worst offenders</h2><p>Our own to-do list.</p>{table(heads, rows)}"


def _cells(found: list[Read]) -> str:
    rows = []
    for cell in found:
        both = [("hot", cell.hot)] + ([("cold", cell.cold)] if cell.row["cold"] else [])
        for word, figures in both:
            rows.append(
                [
                    _named(cell),
                    cell.row["contestant"],
                    word if cell.row["cold"] else "no cache holds it",
                    digits(figures.seconds * 1e6),
                    span(figures.low * 1e6, figures.high * 1e6),
                    digits(figures.flops_rate / 1e9),
                    digits(figures.byte_rate / 1e9),
                    digits(figures.intensity),
                    f"{figures.of_peak:.2%}",
                    f"{figures.of_bandwidth:.0%}",
                    f"{figures.of_roofline:.0%}",
                    f"{cell.row['error']:.0e}",
                    cell.row["counters"].get("rung", "timing"),
                ]
            )
    heads = ["operator", "contestant", "cache", "us", "95 % interval", "GFLOP/s", "GB/s"]
    heads += ["FLOP/B", "of peak", "of bandwidth", "of roofline", "off float64 by", "rung"]
    return f"<h2>Every cell</h2>{table(heads, rows)}" if rows else ""


def _not_timed(result: dict[str, Any]) -> str:
    reasons: dict[str, list[str]] = {}
    for row in result["rows"]:
        if row["status"] != "ok":
            told = f"{row['contestant']}: {row['status']}: {row['note']}"
            reasons.setdefault(told, []).append(f"{row['operator']} {row['direction']}")
    items = "".join(
        f"<li>{escape(told)} ({escape(', '.join(dict.fromkeys(where)))})</li>"
        for told, where in reasons.items()
    )
    return f"<h2>Not timed</h2><ul>{items}</ul>" if items else ""
