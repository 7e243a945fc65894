"""The figures of a race's report.

Three of them are those of the first paper (Lima and Zola): the time at the end of each epoch, the
time to each accuracy, and the speedup.
"""

from collections.abc import Sequence
from math import log10

from pareo.lab.experiment.entry import ranked
from pareo.lab.formatting import digits
from pareo.lab.machine.floors import Floor
from pareo.lab.race.result import RaceResult, Row
from pareo.lab.race.summary import base_of
from pareo.lab.report import charts
from pareo.lab.report.charts import Figure, titled

LINE = 16  # pixels of a line of text
WIDE = 30  # ratio of the slowest to the fastest above which an axis is logarithmic


def figures(result: RaceResult) -> dict[str, Figure]:
    """Each figure by its name; those of the paper only where whole epochs were trained."""
    timed = ranked(result.rows)
    colours = charts.colours(row.contestant for row in result.rows)
    trained = [row for row in timed if row.curve]
    found = {"times": _times(timed, colours, result.floors)} if timed else {}
    if trained:
        found["epochs"] = _epochs(trained, colours)
        found["speedup"] = _speedup(trained, colours)
    if any(_reached(row) for row in trained):
        found["accuracy"] = _accuracy(trained, colours)
    return found


def _times(timed: list[Row], colours: dict[str, str], floors: list[Floor]) -> Figure:
    """Bars with intervals, the fastest on top, and the floor of each place as a line."""
    least = {floor.name: floor.seconds_per_epoch or 0.0 for floor in floors}
    places = [*(row.median for row in timed), *least.values()]
    kind = _scale(places)
    bars = charts.bars(
        [row.contestant for row in timed],
        [row.median for row in timed],
        "%{y}<extra></extra>",
        marker={"color": [colours[row.contestant] for row in timed]},
        error_x=charts.error_bars((row.interval for row in timed), thickness=1.5),
    )
    bars["y"] = [
        f"{name}<br>{digits(row.median)} s" for name, row in zip(bars["y"], timed, strict=True)
    ]
    layout = {
        "height": 110 + 46 * len(timed),
        "showlegend": False,
        "yaxis": {"autorange": "reversed", "automargin": True},
        "xaxis": titled(f"seconds per epoch{_named(kind)}", type=kind, range=_around(places, kind)),
        "margin": {"t": 20 + LINE * len(least)},
        "shapes": [charts.upright(place, dash="dash", width=2) for place in least.values()],
        "annotations": [
            charts.above(
                f"floor{f' of {name}' if len(least) > 1 else ''} {digits(place)} s",
                log10(place) if kind == "log" else place,
                yshift=LINE * number,
            )
            for number, (name, place) in enumerate(least.items())
        ],
    }
    return {"data": [bars], "layout": layout}


def _around(places: list[float], kind: str) -> list[float]:
    """An axis from below the least to above the most; plotly's own leaves room for annotations.

    >>> _around([1.0, 100.0], "log"), _around([1.0, 10.0], "linear")
    ([-0.3, 2.2], [0.0, 10.8])
    """
    if kind == "log":
        return [log10(min(places)) - 0.3, log10(max(places)) + 0.2]
    return [0.0, 1.08 * max(places)]


def _epochs(trained: list[Row], colours: dict[str, str]) -> Figure:
    """The paper's figure 1(a)."""
    lines = [
        _line(row, colours, [p.epoch for p in row.curve], [p.seconds for p in row.curve])
        for row in trained
    ]
    return _chart(lines, "epoch", "seconds at its end", [row.curve[-1].seconds for row in trained])


def _accuracy(trained: list[Row], colours: dict[str, str]) -> Figure:
    """The paper's figure 1(b)."""
    lines = [_line(row, colours, *found) for row in trained if (found := _reached(row))]
    values = [seconds for line in lines for seconds in line["y"]]
    chart = _chart(lines, "accuracy on the test images", "seconds to reach it", values)
    chart["layout"]["xaxis"]["tickformat"] = ".1%"
    return chart


def _speedup(trained: list[Row], colours: dict[str, str]) -> Figure:
    """The paper's figure 2, against one contestant, and in `bases` the lines against each."""
    bases = {
        base.contestant: [_line(row, colours, *_speedups(base, row)) for row in trained]
        for base in trained
    }
    chosen = base_of(trained)
    name = chosen.contestant if chosen else ""
    values = [y for lines in bases.values() for line in lines for y in line["y"]]
    return {**_chart(bases[name], "epoch", "times as fast", values), "bases": bases, "base": name}


def _speedups(base: Row, row: Row) -> tuple[list[int], list[float]]:
    """The epochs that both trained, and at the end of each the base's seconds over this one's."""
    known = {point.epoch: point.seconds for point in base.curve}
    both = [point for point in row.curve if point.epoch in known and point.seconds > 0]
    return [p.epoch for p in both], [known[p.epoch] / p.seconds for p in both]


def _reached(row: Row) -> tuple[list[float], list[float]] | None:
    """Each accuracy higher than all before, and the seconds it took."""
    best, found = 0.0, []
    for point in row.curve:
        if point.accuracy is not None and point.accuracy > best:
            best = point.accuracy
            found.append(point)
    return ([p.accuracy or 0.0 for p in found], [p.seconds for p in found]) if found else None


def _line(row: Row, colours: dict[str, str], x: Sequence[float], y: Sequence[float]) -> Figure:
    hover = "%{x}: %{y:.4g}<extra>%{fullData.name}</extra>"
    return charts.line(row.contestant, colours[row.contestant], x, y, hovertemplate=hover)


def _chart(lines: list[Figure], across: str, up: str, values: list[float]) -> Figure:
    kind = _scale(values)
    zero = {"rangemode": "tozero"} if kind == "linear" else {}
    y = titled(f"{up}{_named(kind)}", type=kind, **zero)
    return charts.with_legend(lines, 400, titled(across), y)


def _scale(values: list[float]) -> str:
    """The type of an axis: logarithmic where values lie far apart.

    >>> _scale([1.0, 20.0]), _scale([1.0, 5000.0])
    ('linear', 'log')
    """
    above = [value for value in values if value > 0]
    return "log" if above and max(above) > WIDE * min(above) else "linear"


def _named(kind: str) -> str:
    return " (log)" if kind == "log" else ""
