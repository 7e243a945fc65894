"""The report of `pareo ops`: the paper's tables, speed by size, rooflines, the worst cells."""

from pareo.lab.formatting import digits, span
from pareo.lab.machine.ceilings import Ceilings
from pareo.lab.machine.places import Place
from pareo.lab.ops.result import OpsResult
from pareo.lab.ops.sizes import shown
from pareo.lab.ops.summary import Timed, ceilings, kinds, not_timed, offenders, timed
from pareo.lab.report import ceilings as limits
from pareo.lab.report.charts import GREY, Figure, chart, colours, figure, line
from pareo.lab.report.ops import paper
from pareo.lab.report.page import head, items, page
from pareo.lab.report.tables import table

SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon")


def html(result: OpsResult) -> str:
    """The report as one page."""
    found, known = timed(result), ceilings(result)
    drawn: dict[str, Figure] = {}
    title = "Operators, each against its own limit"
    parts = [head(result, title, _headline(found), result.threads, more=result.precision)]
    parts += paper.sections(found)
    parts.append("<h2>FLOP/s against size</h2>")
    for number, kind in enumerate(_kinds(found)):
        drawn[f"size{number}"] = _by_size([one for one in found if one.cell.kind == kind], known)
        parts.append(figure(f"size{number}", f"{' '.join(kind)}, hot. Dotted: where caches end."))
    parts.append("<h2>Roofline</h2>")
    for place, one in known.items():
        here = [timed for timed in found if timed.cell.place == place]
        drawn[f"roof-{place}"] = _roofline(here, one)
        said = "every operator at its largest size, on the roofline of its memory"
        parts.append(figure(f"roof-{place}", f"{one.name}: {said}."))
    parts += [_worst(found), paper.counters(result.rows), _cells(found)]
    if untimed := not_timed(result):
        parts += ["<h2>Not timed</h2>", items(untimed)]
    for place, one in known.items():
        drawn[f"bandwidth-{place}"] = limits.bandwidth(one)
        parts.append(limits.section(one, f"bandwidth-{place}"))
    return page("Operators", parts, drawn)


def _headline(found: list[Timed]) -> str:
    """The cells nearest to and furthest from their rooflines, in a sentence or two."""
    if not found:
        return "Nothing was timed; the notes below say why."
    best = max(found, key=lambda one: one.hot.of_roofline)
    said = f"Nearest to its roofline: {_placed(best)}."
    if worst := offenders(found, most=1):
        said += f" Furthest of pareo's own: {_placed(worst[0])}."
    return said


def _named(one: Timed) -> str:
    return f"{' '.join(one.cell.kind)} of {shown(one.cell.nbytes)}"


def _placed(one: Timed) -> str:
    return f"{_named(one)} by {one.cell.contestant}, {one.hot.of_roofline:.0%}"


def _kinds(found: list[Timed]) -> list[tuple[str, str]]:
    return kinds([one.cell for one in found])


def _by_size(found: list[Timed], known: dict[Place, Ceilings]) -> Figure:
    """FLOP/s of each contestant; bytes a second of an operator that computes nothing."""
    coloured = colours(dict.fromkeys(one.cell.contestant for one in found))
    moves = not any(one.cell.flops for one in found)
    lines = []
    for name, colour in coloured.items():
        own = [one for one in found if one.cell.contestant == name]
        rates = [one.hot.byte_rate if moves else one.hot.flops_rate for one in own]
        lines.append(line(name, colour, [one.cell.nbytes for one in own], rates))
    places = {one.cell.place for one in found}
    marks = [mark for place in sorted(places) for mark in limits.marks(known[place])]
    sizes = [one.cell.nbytes for one in found]
    near = [mark for mark in marks if min(sizes) / 2 <= mark[1] <= max(sizes) * 2]
    return chart(lines, "bytes of all operands", "bytes a second" if moves else "FLOP/s", near)


def _roofline(found: list[Timed], known: Ceilings) -> Figure:
    """Roofs of memory and of each cache, and a point for each operator and contestant."""
    peak = known.peak("float32").value
    found = [one for one in found if one.cell.flops]
    reach = [one.hot.intensity for one in found] or [1.0]
    low, high = min(reach) / 4, max(*reach, peak / known.memory().value) * 4
    lines = []
    for name, _, nbytes in known.hierarchy():
        rate = known.stream("copy", nbytes).value
        ends = [low, peak / rate, high]
        roof = [min(peak, rate * x) for x in ends]
        more: Figure = {
            "mode": "lines+text",
            "text": [name, "", ""],
            "textposition": "top right",
            "line": {"color": GREY, "width": 1},
            "showlegend": False,
        }
        lines.append(line(f"roof of {name}", GREY, ends, roof, **more))
    largest = {(*one.cell.kind, one.cell.contestant): one for one in found}
    coloured = colours(dict.fromkeys(name for *_, name in largest))
    symbols = {kind: SYMBOLS[n % len(SYMBOLS)] for n, kind in enumerate(_kinds(found))}
    for name, colour in coloured.items():
        own = [one for one in largest.values() if one.cell.contestant == name]
        first = name == next(iter(coloured))  # whose points carry the names of the operators
        shapes = [symbols[one.cell.kind] for one in own]
        more = {
            "mode": "markers+text" if first else "markers",
            "marker": {"color": colour, "size": 10, "symbol": shapes},
            "text": [one.cell.operator for one in own],
            "textposition": "bottom center",
            "hovertext": [f"{_named(one)}: {one.hot.of_roofline:.0%}" for one in own],
            "hovertemplate": "%{hovertext}<extra>%{fullData.name}</extra>",
        }
        points = [one.hot.intensity for one in own], [one.hot.flops_rate for one in own]
        lines.append(line(name, colour, *points, **more))
    return chart(lines, "FLOPs for each byte", "FLOP/s")


def _worst(found: list[Timed]) -> str:
    rows = [
        [
            _named(one),
            one.cell.contestant,
            f"{one.hot.of_roofline:.0%}",
            digits(one.hot.seconds * 1e6),
            digits(one.limit.floor(cold=False) * 1e6),
            one.limit.why,
        ]
        for one in offenders(found)
    ]
    if not rows:
        return ""
    heads = ["operator", "contestant", "of the roofline", "us", "could be", "limit"]
    return f"<h2>Worst offenders</h2><p>Our own to-do list.</p>{table(heads, rows)}"


def _cells(found: list[Timed]) -> str:
    rows = []
    for one in found:
        for cold, figures in one.shown:
            word = "cold" if cold else "hot"
            rows.append(
                [
                    _named(one),
                    one.cell.contestant,
                    word if one.cell.cold else "no cache holds it",
                    digits(figures.seconds * 1e6),
                    span(figures.low * 1e6, figures.high * 1e6),
                    digits(figures.flops_rate / 1e9),
                    digits(figures.byte_rate / 1e9),
                    digits(figures.intensity),
                    f"{figures.of_peak:.2%}",
                    f"{figures.of_bandwidth:.0%}",
                    f"{figures.of_roofline:.0%}",
                    f"{one.cell.error:.0e}",
                    one.cell.counters.get("rung", "timing"),
                ]
            )
    heads = ["operator", "contestant", "cache", "us", "95 % interval", "GFLOP/s", "GB/s"]
    heads += ["FLOP/B", "of peak", "of bandwidth", "of roofline", "off float64 by", "rung"]
    return f"<h2>Every cell</h2>{table(heads, rows)}" if rows else ""
