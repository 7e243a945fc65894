"""The page of a history: a figure for each network, batch and precision, and all steps."""

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from statistics import median
from typing import TypeVar

from pareo.lab.formatting import digits
from pareo.lab.history.groups import Group, every_group, groups
from pareo.lab.history.lines import Series
from pareo.lab.history.points import Point
from pareo.lab.report.charts import (
    Figure,
    above,
    colours,
    figure,
    label,
    titled,
    upright,
    with_legend,
)
from pareo.lab.report.page import page
from pareo.lab.report.tables import table

MOST = 400  # points of a line that are drawn; of more, medians of neighbours
SHOWN = 200  # steps in the table, the latest first
NAMED = 12  # steps in a figure that have words
FIRST = 8  # points of a line whose median others are shown relative to

T = TypeVar("T")


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
    times = [_line(one, chosen) for one in together]
    drawn[f"times-{number}"] = _figure(times, "times the first", groups(together))
    caption = (
        f"Seconds per {first.unit}, each line as a multiple of its first points; a vertical line "
        "is a step. A point shows its seconds and its share of the floor."
    )
    sections = [f"<h2>{escape(first.title)}</h2>", figure(f"times-{number}", caption)]
    ratios = [one for one in together if len(one.ratios) > 1 and one.line.ours]
    if ratios:
        shown = [_ratio(one, chosen) for one in ratios]
        drawn[f"ratios-{number}"] = _figure(shown, "times the first")
        peers = ", ".join(sorted({one.peer for one in ratios}))
        caption = (
            f"Ratio to a peer in the same session ({peers}), as a multiple of its first points: a "
            "slower machine cancels."
        )
        sections.append(figure(f"ratios-{number}", caption))
    return [*sections, _latest(together)]


def _line(one: Series, chosen: dict[str, str]) -> Figure:
    name, unit, points = one.line.contestant, one.line.unit, thinned(one.points)
    seen = [
        f"{digits(point.seconds)} s per {unit}"
        + (f", {point.floor:.0%} of the floor" if point.floor else "")
        + f", result {point.number}"
        for point in points
    ]
    return _scatter(name, chosen[name], points, one.times, seen)


def _ratio(one: Series, chosen: dict[str, str]) -> Figure:
    values = list(one.ratios.values())
    points = [one.points[index] for index in thinned(list(one.ratios))]
    name = f"{one.line.contestant} / {one.peer}"
    seen = [
        f"{digits(value)} of {label(one.peer)}, result {point.number}"
        for point, value in zip(points, thinned(values), strict=True)
    ]
    return _scatter(name, chosen[one.line.contestant], points, values, seen)


def _scatter(
    name: str, colour: str, points: list[Point], values: list[float], seen: list[str]
) -> Figure:
    """A line as multiples of its first values; points are as many as are drawn, values are all."""
    base = median(values[:FIRST])
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label(name),
        "x": [point.moment for point in points],
        "y": [float(f"{value / base:.5g}") for value in medians(values)],
        "text": seen,
        "line": {"color": colour, "width": 1.5},
        "marker": {"size": 4},
        "hovertemplate": "%{x}: %{text}<extra>%{fullData.name}</extra>",
    }


def thinned(values: list[T]) -> list[T]:
    """As many as a figure can show: the first of neighbours.

    >>> thinned([1, 2]), len(thinned([0] * 1000))
    ([1, 2], 334)
    """
    return values[:: max(1, -(-len(values) // MOST))]


def medians(values: list[float]) -> list[float]:
    """The same for times, of which medians of neighbours are shown.

    >>> medians([1.0, 2.0]), medians([1.0] * 999 + [9.0])[-1]
    ([1.0, 2.0], 9.0)
    """
    size = -(-len(values) // MOST)
    if size <= 1:
        return values
    return [median(values[start : start + size]) for start in range(0, len(values), size)]


def _figure(lines: list[Figure], up: str, steps: Sequence[Group] = ()) -> Figure:
    x = titled("", type="date")
    found = with_legend(lines, 360, x, titled(up))
    found["layout"]["legend"]["y"] = 1.08  # above the words at steps
    found["layout"]["shapes"] = [upright(one.moment, dash="dot", width=1) for one in steps]
    found["layout"]["annotations"] = [
        above(f"{one.whose} {one.change}", one.moment, font={"size": 10}) for one in steps[:NAMED]
    ]
    return found


def _steps(lines: list[Series]) -> str:
    """All steps, the latest first."""
    found = every_group(lines)
    if not found:
        return "<p>No step was found: nothing became faster or slower for good.</p>"
    rows = [
        [one.moment[:16].replace("T", " "), one.change, one.whose, ", ".join(one.changes),
         one.because, one.title, one.result]
        for one in found[:SHOWN]
    ]  # fmt: skip
    heads = ["from", "change", "whose", "contestants", "why", "of", "first result"]
    more = f"<p>The latest {SHOWN} of {len(found):,}.</p>" if len(found) > SHOWN else ""
    return f"<h2>Steps</h2>{table(heads, rows, wrap=True)}{more}"


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
             "" if ratio is None else f"{digits(ratio)} of {one.peer}", point.version,
             one.line.command]
        )  # fmt: skip
    unit = together[0].line.unit
    heads = ["contestant", "points", f"s per {unit}, latest", "95 % interval", "of the floor"]
    return table([*heads, "ratio", "version", "again"], rows, wrap=True)
