"""The figures of a report, as plotly.js takes them: plain data, every text escaped.

Three of them are those of the first paper (Lima and Zola): the time at the end of each epoch, the
time to each accuracy, and the speedup.
"""

from html import escape
from math import log10
from typing import Any

from pareo.lab.experiment.statistics import error_bar
from pareo.lab.formatting import digits
from pareo.lab.report.summary import Floor, Timed, base_of, floors, timed

Figure = dict[str, Any]

# Told apart by most people who do not see all colours, on white and on black.
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#b0568f", "#9a7400", "#5873c4", "#c0504d", "#6b8e23",
    "#8064c0", "#00838f",
)  # fmt: skip
LINE = 16  # pixels of a line of text
WIDE = 30  # times between the fastest and the slowest beyond which an axis is logarithmic


def figures(result: dict[str, Any]) -> dict[str, Figure]:
    """Each figure by its name; those of the paper only where whole epochs were trained."""
    everyone = timed(result)
    colours = {r["contestant"]: COLOURS[n % len(COLOURS)] for n, r in enumerate(result["rows"])}
    trained = [one for one in everyone if one.row["curve"]]
    found = {"times": _times(everyone, colours, floors(result))} if everyone else {}
    if trained:
        found["epochs"] = _epochs(trained, colours)
        found["speedup"] = _speedup(trained, colours)
    if any(_reached(one) for one in trained):
        found["accuracy"] = _accuracy(trained, colours)
    return found


def _times(everyone: list[Timed], colours: dict[str, str], limits: list[Floor]) -> Figure:
    """Bars with intervals, the fastest on top, and the floor of each place as a line."""
    places = [one.seconds for one in everyone] + [limit.seconds for limit in limits]
    kind = _scale(places)
    spread = [error_bar(one.low, one.seconds, one.high) for one in everyone]
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": [f"{_label(one.name)}<br>{digits(one.seconds)} s" for one in everyone],
        "x": [one.seconds for one in everyone],
        "marker": {"color": [colours[one.name] for one in everyone]},
        "hovertemplate": "%{y}<extra></extra>",
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [above for _, above in spread],
            "arrayminus": [below for below, _ in spread],
            "thickness": 1.5,
        },
    }
    layout: Figure = {
        "height": 110 + 46 * len(everyone),
        "showlegend": False,
        "yaxis": {"autorange": "reversed", "automargin": True},
        "xaxis": {
            "title": {"text": f"seconds per epoch{_named(kind)}"},
            "type": kind,
            "range": _around(places, kind),
        },
        "margin": {"t": 20 + LINE * len(limits)},
    }
    layout["shapes"] = [
        {"type": "line", "x0": limit.seconds, "x1": limit.seconds, "y0": 0, "y1": 1,
         "yref": "paper", "line": {"dash": "dash", "width": 2}}
        for limit in limits
    ]  # fmt: skip
    named = len(limits) > 1
    layout["annotations"] = [
        {**_above_line(limit, kind, named), "yshift": LINE * n} for n, limit in enumerate(limits)
    ]
    return {"data": [bars], "layout": layout}


def _around(places: list[float], kind: str) -> list[float]:
    """An axis from below the least to beyond the most; plotly's own would make room for notes.

    >>> _around([1.0, 100.0], "log"), _around([1.0, 10.0], "linear")
    ([-0.3, 2.2], [0.0, 10.8])
    """
    if kind == "log":
        return [log10(min(places)) - 0.3, log10(max(places)) + 0.2]
    return [0.0, 1.08 * max(places)]


def _above_line(limit: Floor, kind: str, named: bool) -> dict[str, Any]:
    """The floor's name; on a logarithmic axis plotly wants a note's place as a power of ten."""
    place = log10(limit.seconds) if kind == "log" else limit.seconds
    text = f"floor{' of ' + _label(limit.name) if named else ''} {digits(limit.seconds)} s"
    return {"x": place, "y": 1, "yref": "paper", "yanchor": "bottom", "text": text,
            "showarrow": False}  # fmt: skip


def _epochs(trained: list[Timed], colours: dict[str, str]) -> Figure:
    """The paper's figure 1(a)."""
    lines = [_line(one, colours, _column(one, "epoch"), _column(one, "seconds")) for one in trained]
    kind = _scale([one.row["curve"][-1]["seconds"] for one in trained])
    return _chart(lines, "epoch", f"seconds at its end{_named(kind)}", kind)


def _accuracy(trained: list[Timed], colours: dict[str, str]) -> Figure:
    """The paper's figure 1(b)."""
    lines = [
        _line(one, colours, *zip(*_reached(one), strict=True)) for one in trained if _reached(one)
    ]
    kind = _scale([seconds for line in lines for seconds in line["y"]])
    chart = _chart(lines, "accuracy on the test images", f"seconds to reach it{_named(kind)}", kind)
    chart["layout"]["xaxis"]["tickformat"] = ".1%"
    return chart


def _speedup(trained: list[Timed], colours: dict[str, str]) -> Figure:
    """The paper's figure 2, against one contestant, and in `bases` the lines against each."""
    bases = {
        base.name: [_line(one, colours, *_speedups(base, one)) for one in trained]
        for base in trained
    }
    base = base_of(trained)
    name = base.name if base else ""
    kind = _scale([y for lines in bases.values() for line in lines for y in line["y"]])
    chart = _chart(bases[name], "epoch", f"times as fast{_named(kind)}", kind)
    return {**chart, "bases": bases, "base": name}


def _speedups(base: Timed, one: Timed) -> tuple[list[float], list[float]]:
    """The epochs that both trained, and at the end of each the base's seconds over this one's."""
    known = {point["epoch"]: point["seconds"] for point in base.row["curve"]}
    both = [p for p in one.row["curve"] if p["epoch"] in known and p["seconds"] > 0]
    return [p["epoch"] for p in both], [known[p["epoch"]] / p["seconds"] for p in both]


def _reached(one: Timed) -> list[tuple[float, float]]:
    """Each accuracy higher than all before, with the seconds it took."""
    best, found = 0.0, []
    for point in one.row["curve"]:
        if (point.get("accuracy") or 0) > best:
            best = point["accuracy"]
            found.append((best, point["seconds"]))
    return found


def _label(name: str) -> str:
    """A name for plotly, which reads a few tags and knows no entity for quotation marks."""
    return escape(name, quote=False)


def _column(one: Timed, name: str) -> list[float]:
    return [point[name] for point in one.row["curve"]]


def _line(one: Timed, colours: dict[str, str], x: Any, y: Any) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": _label(one.name),
        "x": list(x),
        "y": list(y),
        "line": {"color": colours[one.name], "width": 2},
        "hovertemplate": "%{x}: %{y:.4g}<extra>%{fullData.name}</extra>",
    }


def _chart(lines: list[Figure], across: str, up: str, kind: str) -> Figure:
    layout: Figure = {
        "height": 400,
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "xaxis": {"title": {"text": across}},
        "yaxis": {"title": {"text": up}, "type": kind, "automargin": True},
    }
    if kind == "linear":
        layout["yaxis"]["rangemode"] = "tozero"
    return {"data": lines, "layout": layout}


def _scale(values: list[float]) -> str:
    """An axis' type: logarithmic where values lie far apart.

    >>> _scale([1.0, 20.0]), _scale([1.0, 5000.0])
    ('linear', 'log')
    """
    above = [value for value in values if value > 0]
    return "log" if above and max(above) > WIDE * min(above) else "linear"


def _named(kind: str) -> str:
    return " (log)" if kind == "log" else ""
