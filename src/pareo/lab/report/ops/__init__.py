"""The report of `pareo ops`: the paper's tables, speed by size, rooflines, the worst cells."""

from statistics import median

from pareo.lab.formatting import counted, digits, span
from pareo.lab.machine.ceilings import Ceilings
from pareo.lab.machine.places import Place
from pareo.lab.ops.result import OpsResult
from pareo.lab.ops.sizes import shown
from pareo.lab.ops.summary import Timed, ceilings, kinds, not_timed, offenders, timed
from pareo.lab.report import ceilings as limits
from pareo.lab.report.charts import (
    GREY,
    Figure,
    chart,
    colours,
    figure,
    line,
    titled,
    upright,
    with_legend,
)
from pareo.lab.report.ops import paper
from pareo.lab.report.page import folded, head, items, page
from pareo.lab.report.tables import table

SHARES = (
    "Share of the roofline that each operator reaches at its largest size, hot. At 100 % no faster "
    "program is possible."
)
SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon")


def html(result: OpsResult) -> str:
    """The report as one page."""
    found, known = timed(result), ceilings(result)
    drawn: dict[str, Figure] = {}
    title = "Operators, each against its own limit"
    parts = [head(result, title, _headline(found), result.threads, more=result.precision)]
    if found:
        drawn["shares"] = _shares(found)
        parts.append(figure("shares", SHARES))
    parts.append(_worst(found))
    parts += paper.sections(found)
    parts.append("<h2>FLOP/s against size</h2>")
    for number, kind in enumerate(_kinds(found)):
        own = [one for one in found if one.cell.kind == kind]
        if len({one.cell.nbytes for one in own}) < 2:
            continue
        drawn[f"size{number}"] = _by_size(own, known)
        parts.append(figure(f"size{number}", f"{' '.join(kind)}, hot. Dotted: where caches end."))
    parts.append("<h2>Roofline</h2>")
    for place, one in known.items():
        here = [timed for timed in found if timed.cell.place == place]
        drawn[f"roof-{place}"] = _roofline(here, one)
        said = "every operator at its largest size, on the roofline of its memory"
        parts.append(figure(f"roof-{place}", f"{one.name}: {said}."))
    parts += [paper.counters(result.rows), _cells(found)]
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
    if own := offenders(found, most=len(found)):
        middle = median(one.hot.of_roofline for one in own)
        said = (
            f"At their largest sizes pareo's operators reach {middle:.0%} of their rooflines in "
            f"the median. {said} Furthest of pareo's own: {_placed(own[0])}."
        )
    return said


def _largest(found: list[Timed]) -> dict[tuple[tuple[str, str], str], Timed]:
    """The largest size of each operator and contestant."""
    return {
        (one.cell.kind, one.cell.contestant): one
        for one in sorted(found, key=lambda one: one.cell.nbytes)
    }


def _shares(found: list[Timed]) -> Figure:
    """A line for each operator with a point for each contestant, pareo's best on top."""
    largest = _largest(found)
    best = {
        kind: max(
            (one.hot.of_roofline for (k, name), one in largest.items()
             if k == kind and name.startswith("pareo")),
            default=0.0,
        )
        for kind in _kinds(found)
    }  # fmt: skip
    order = [" ".join(kind) for kind in sorted(best, key=lambda kind: best[kind])]
    drawn = []
    for name, colour in colours(dict.fromkeys(name for _, name in largest)).items():
        own = {kind: one for (kind, by), one in largest.items() if by == name}
        points = [one.hot.of_roofline for one in own.values()]
        more: Figure = {
            "mode": "markers",
            "marker": {"color": colour, "size": 11 if name.startswith("pareo") else 8,
                       "symbol": "circle" if name.startswith("pareo") else "diamond"},
            "hovertext": [_placed(one) for one in own.values()],
            "hovertemplate": "%{hovertext}<extra></extra>",
        }  # fmt: skip
        drawn.append(line(name, colour, points, [" ".join(kind) for kind in own], **more))
    most = max(1.0, *(one.hot.of_roofline for one in largest.values()))
    x = titled("share of the roofline", tickformat=".0%", range=[0, 1.05 * most])
    y = {"type": "category", "categoryarray": order, "range": [-0.6, len(order) - 0.4]}
    made = with_legend(drawn, 130 + 26 * len(order), x, y)
    made["layout"]["shapes"] = [upright(1, dash="dash", width=1)]
    return made


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
    return f"<h2>Furthest from the limit</h2><p>Where pareo can gain most.</p>{table(heads, rows)}"


def _cells(found: list[Timed]) -> str:
    """A table for each operator, which is shown when its name is chosen."""
    parts = [
        folded(f"{' '.join(kind)}, {counted(len(own), 'cell')}", _table(own))
        for kind in _kinds(found)
        if (own := [one for one in found if one.cell.kind == kind])
    ]
    return f"<h2>Every cell</h2>{''.join(parts)}" if parts else ""


def _table(found: list[Timed]) -> str:
    rows = []
    for one in found:
        for cold, figures in one.shown:
            word = "cold" if cold else "hot"
            rows.append(
                [
                    shown(one.cell.nbytes),
                    one.cell.contestant,
                    word if one.cell.cold else "in no cache",
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
    heads = ["size", "contestant", "cache", "us", "95 % interval", "GFLOP/s", "GB/s", "FLOP/B"]
    heads += ["of peak", "of bandwidth", "of roofline", "off float64 by", "rung"]
    return table(heads, rows)
