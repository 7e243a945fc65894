"""The figures of a race's report.

Three of them are those of the first paper (Lima and Zola): the time at the end of each epoch, the
time to each accuracy, and the speedup.
"""

import math
from collections.abc import Sequence

from pareo.lab.experiment.entry import ranked
from pareo.lab.formatting import digits
from pareo.lab.machine.floors import Floor
from pareo.lab.race.result import RaceResult, Row
from pareo.lab.race.summary import base_of
from pareo.lab.report import charts, energy
from pareo.lab.report.charts import Figure, titled

EPOCH = "epoch"  # the name of an axis
LINE = 16  # pixels of a line of text
WIDE = 30  # ratio of the slowest to the fastest that a linear axis shows


def figures(result: RaceResult) -> dict[str, Figure]:
    """Each figure by its name; those of the paper only where whole epochs were trained."""
    timed = ranked(result.rows)
    colours = charts.colours(row.contestant for row in result.rows)
    trained = [row for row in timed if row.curve]
    if not any(len(row.curve) > 1 for row in trained):
        trained = []  # one epoch is what the bars show
    found = {"times": _times(timed, colours, result.floors)} if timed else {}
    if trained:
        found["epochs"] = _epochs(trained, colours)
        found["speedup"] = _speedup(trained, colours)
    if any(_reached(row) for row in trained):
        found["accuracy"] = _accuracy(trained, colours)
    spent = energy.chart(
        (name, colours[name], [energy.Spent(row.median / result.images, row.energy, name)])
        for row in timed
        if (name := row.contestant)
    )
    return found | ({"energy": spent} if spent else {})


def _times(timed: list[Row], colours: dict[str, str], floors: list[Floor]) -> Figure:
    """Bars with intervals, the fastest on top, and the floor of each place as a line.

    The axis is linear. Bars of those that take far longer are cut, hatched, and say so.
    """
    end = _longest(timed)
    least = {
        floor.name: place for floor in floors if 0 < (place := floor.seconds_per_epoch or 0) < end
    }
    cut = [row.median > end for row in timed]
    bars = charts.bars(
        [row.contestant for row in timed],
        [min(row.median, 1.08 * end) for row in timed],
        "%{y}<extra></extra>",
        marker={
            "color": [colours[row.contestant] for row in timed],
            "pattern": {"shape": ["/" if far else "" for far in cut], "fgopacity": 0.6},
        },
        error_x=charts.error_bars(
            (
                (0.0, 0.0, math.inf) if far else row.interval
                for row, far in zip(timed, cut, strict=True)
            ),
            thickness=1.5,
        ),
    )
    bars["y"] = [
        f"{name}<br>{digits(row.median)} s{' »' if far else ''}"
        for name, row, far in zip(bars["y"], timed, cut, strict=True)
    ]
    layout = {
        "height": 110 + 46 * len(timed) + LINE * len(least),
        "showlegend": False,
        "yaxis": {"autorange": "reversed", "automargin": True},
        "xaxis": titled("seconds per epoch", range=[0.0, 1.08 * end]),
        "margin": {"t": 20 + 2 * LINE * len(least)},
        "shapes": [charts.upright(place, dash="dash", width=2) for place in least.values()],
        "annotations": [
            _floor(f"floor{f' of {name}' if len(least) > 1 else ''}", place, number, end)
            for number, (name, place) in enumerate(least.items())
        ],
    }
    return {"data": [bars], "layout": layout}


def _floor(name: str, place: float, number: int, end: float) -> Figure:
    """The label of a floor above the bars, above those before it, on the side where it fits."""
    side = "left" if place < 0.5 * end else "right"  # a phone would cut the other
    found = charts.above("", place, yshift=2 * LINE * number, xanchor=side, align=side)
    return {**found, "text": f"{name}<br>{digits(place)} s"}


def _longest(timed: list[Row]) -> float:
    """The longest time that is drawn to scale: at most WIDE times the shortest, or the second."""
    medians = [row.median for row in timed]
    for shortest in medians[:2]:
        within = [each for each in medians if each <= WIDE * shortest]
        if len(within) > 1:
            return max(within)
    return medians[0]


def _epochs(trained: list[Row], colours: dict[str, str]) -> Figure:
    """The paper's figure 1(a)."""
    lines = [
        _line(row, colours, [p.epoch for p in row.curve], [p.seconds for p in row.curve])
        for row in trained
    ]
    return _chart(lines, EPOCH, "seconds at its end", [row.curve[-1].seconds for row in trained])


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
    return {**_chart(bases[name], EPOCH, "times as fast", values), "bases": bases, "base": name}


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
    scale = charts.logarithmic(values) if kind == "log" else {"type": kind, **zero}
    y = titled(f"{up}{_named(kind)}", **scale)
    ends = [x for line in lines for x in line["x"]]
    whole = {"dtick": 1} if across == EPOCH and ends and max(ends) - min(ends) <= 10 else {}
    return charts.with_legend(lines, 400, titled(across, **whole), y)


def _scale(values: list[float]) -> str:
    """The type of an axis: logarithmic where values lie far apart.

    >>> _scale([1.0, 20.0]), _scale([1.0, 5000.0])
    ('linear', 'log')
    """
    above = [value for value in values if value > 0]
    return "log" if above and max(above) > WIDE * min(above) else "linear"


def _named(kind: str) -> str:
    return " (log)" if kind == "log" else ""
