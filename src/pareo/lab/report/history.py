"""The page of a history: a figure for each network, batch and precision, and all steps."""

from collections import defaultdict
from html import escape
from statistics import median

from pareo.lab.formatting import digits
from pareo.lab.history.lines import Labelled, Series
from pareo.lab.report.charts import Figure, colours, figure, label, titled, with_legend
from pareo.lab.report.page import page
from pareo.lab.report.tables import table

MOST = 400  # points of a line that are drawn; of more, medians of neighbours
SHOWN = 200  # steps in the table, the latest first


def html(lines: list[Series], results: int) -> str:
    """The page; `results` is the number of saved results."""
    by_work: dict[object, list[Series]] = defaultdict(list)
    for one in lines:
        by_work[one.line.work].append(one)
    drawn: dict[str, Figure] = {}
    sections = [
        "<h1>History</h1>",
        f"<p>{results:,} saved results, {len(lines)} lines: one for each machine, network, batch, "
        "precision and contestant.</p>",
        _steps(lines),
    ]
    for number, together in enumerate(by_work.values()):
        sections += _work(number, together, drawn)
    return page("History", sections, drawn)


def _work(number: int, together: list[Series], drawn: dict[str, Figure]) -> list[str]:
    """Figures and a table for what was trained alike."""
    first = together[0].line
    chosen = colours(one.line.contestant for one in together)
    drawn[f"times-{number}"] = _figure(
        [_line(one, chosen, one.times) for one in together], f"seconds per {first.unit}"
    )
    sections = [
        f"<h2>{escape(first.title)}</h2>",
        figure(f"times-{number}", f"Seconds per {first.unit}; a vertical line is a step."),
    ]
    drawn[f"times-{number}"]["layout"]["shapes"] = [
        _mark(step, chosen[one.line.contestant]) for one in together for step in one.steps
    ]
    ratios = [one for one in together if len(one.ratios) > 1 and one.line.ours]
    if ratios:
        drawn[f"ratios-{number}"] = _figure(
            [_ratio(one, chosen) for one in ratios], "seconds over the peer's"
        )
        peers = ", ".join(sorted({one.peer for one in ratios}))
        caption = f"Ratio to a peer in the same session ({peers}): a slower machine cancels."
        sections.append(figure(f"ratios-{number}", caption))
    return [*sections, _latest(together)]


def _line(one: Series, chosen: dict[str, str], values: list[float]) -> Figure:
    return _scatter(
        one.line.contestant,
        chosen[one.line.contestant],
        [point.moment for point in one.points],
        values,
    )


def _ratio(one: Series, chosen: dict[str, str]) -> Figure:
    moments = [one.points[index].moment for index in one.ratios]
    name = f"{one.line.contestant} / {one.peer}"
    return _scatter(name, chosen[one.line.contestant], moments, list(one.ratios.values()))


def _scatter(name: str, colour: str, moments: list[str], values: list[float]) -> Figure:
    x, y = thinned(moments, values)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label(name),
        "x": x,
        "y": [float(f"{value:.5g}") for value in y],
        "line": {"color": colour, "width": 1.5},
        "marker": {"size": 4},
        "hovertemplate": "%{x}: %{y:.4s}<extra>%{fullData.name}</extra>",
    }


def thinned(moments: list[str], values: list[float]) -> tuple[list[str], list[float]]:
    """As many points as a figure can show: medians of neighbours.

    >>> thinned(["a", "b"], [1.0, 2.0])
    (['a', 'b'], [1.0, 2.0])
    """
    size = -(-len(values) // MOST)
    if size <= 1:
        return moments, values
    starts = range(0, len(values), size)
    return [moments[s] for s in starts], [median(values[s : s + size]) for s in starts]


def _figure(lines: list[Figure], up: str) -> Figure:
    x = titled("", type="date")
    return with_legend(lines, 360, x, titled(up, type="log", exponentformat="SI"))


def _mark(step: Labelled, colour: str) -> Figure:
    at = step.point.moment
    return {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper",
            "line": {"color": colour, "dash": "dot", "width": 1}}  # fmt: skip


def _steps(lines: list[Series]) -> str:
    """All steps, the latest first."""
    found = [(step, one) for one in lines for step in one.steps]
    found.sort(key=lambda pair: pair[0].point.moment, reverse=True)
    if not found:
        return "<p>No step was found: nothing became faster or slower for good.</p>"
    rows = [
        [step.point.moment[:16].replace("T", " "), step.point.number, one.line.contestant,
         one.line.title, f"{step.step.change:+.1%}", step.whose, step.because, one.line.command]
        for step, one in found[:SHOWN]
    ]  # fmt: skip
    heads = ["from", "result", "contestant", "of", "change", "whose", "why", "again"]
    more = f"<p>The latest {SHOWN} of {len(found):,}.</p>" if len(found) > SHOWN else ""
    return f"<h2>Steps</h2>{table(heads, rows)}{more}"


def _latest(together: list[Series]) -> str:
    """The latest point of each line."""
    rows = []
    for one in together:
        point = one.points[-1]
        ratio = one.ratios.get(len(one.points) - 1)
        rows.append(
            [one.line.contestant, len(one.points), digits(point.seconds),
             f"{digits(point.low)} to {digits(point.high)}",
             "unknown" if point.floor is None else f"{point.floor:.0%}",
             "" if ratio is None else f"{ratio:.3g} of {one.peer}", point.version, one.line.command]
        )  # fmt: skip
    unit = together[0].line.unit
    heads = ["contestant", "points", f"s per {unit}, latest", "95 % interval", "of the floor"]
    return table([*heads, "ratio", "version", "again"], rows)
