"""Figures as plotly.js takes them: plain data, every text escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Any

from pareo.lab.experiment.statistics import error_bar

Figure = dict[str, Any]
GREY = "#888888"

# Steps of the ticks of a logarithmic axis, from few to many: the first that has FEWEST is taken.
STEPS = (
    (1,),
    (1, 2, 5),
    (1, 1.5, 2, 3, 5, 7),
    (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9),
)
FEWEST, MOST = 3, 12

# Colours that most people with a colour deficiency can tell apart, on white and on black.
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#b0568f", "#9a7400", "#5873c4", "#c0504d", "#6b8e23",
    "#8064c0", "#00838f",
)  # fmt: skip


def label(name: str) -> str:
    """A text for plotly, which reads a few tags and knows no entity for quotation marks."""
    return escape(name, quote=False)


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, in order."""
    return {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}


def line(name: str, colour: str, x: Sequence[float], y: Sequence[Any], **more: Any) -> Figure:
    """One line with its points."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label(name),
        "x": list(x),
        "y": list(y),
        "line": {"color": colour, "width": 2},
        "hovertemplate": "%{x:.4s}: %{y:.4s}<extra>%{fullData.name}</extra>",
        **more,
    }


def error_bars(intervals: Iterable[tuple[float, float, float]], thickness: float) -> Figure:
    """What plotly draws around points: each interval is a low end, the point and a high end."""
    bars = [error_bar(*ends) for ends in intervals]
    return {
        "type": "data",
        "symmetric": False,
        "array": [above for _, above in bars],
        "arrayminus": [below for below, _ in bars],
        "thickness": thickness,
    }


def upright(place: float | str, **style: Any) -> Figure:
    """A vertical line through the whole figure."""
    return {"type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "yref": "paper",
            "line": style}  # fmt: skip


def above(text: str, place: float | str, **more: Any) -> Figure:
    """A text above a figure; plotly wants a place on a logarithmic axis as a power of ten."""
    return {"x": place, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False,
            "text": label(text), **more}  # fmt: skip


def bars(names: Iterable[str], values: Iterable[float], hover: str, **more: Any) -> Figure:
    """Horizontal bars with their names; `hover` is plotly's template of what a bar shows."""
    return {
        "type": "bar",
        "orientation": "h",
        "y": [label(name) for name in names],
        "x": list(values),
        "hovertemplate": hover,
        **more,
    }


def with_legend(
    lines: list[Figure], height: int, x: Figure, y: Figure, legend: Figure | None = None
) -> Figure:
    """Lines or bars on two axes, below a legend."""
    layout = {
        "height": height,
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", **(legend or {})},
        "xaxis": x,
        "yaxis": {"automargin": True, **y},
    }
    return {"data": lines, "layout": layout}


def titled(text: str, **more: Any) -> Figure:
    """An axis with a title."""
    return {"title": {"text": text}, **more}


def logarithmic(values: Iterable[float], **more: Any) -> Figure:
    """A logarithmic axis around values, whose ticks are whole numbers such as 0.5 or 20k.

    plotly's own ticks between powers of ten are single digits: its "5" may stand for 0.5 or 500.

    >>> logarithmic([0.3, 4.0])["ticktext"], logarithmic([60.0, 150.0])["ticktext"]
    (['0.5', '1', '2', '5'], ['50', '70', '100', '150'])
    """
    known = [value for value in values if value > 0] or [1.0]
    low, high = min(known) / 1.25, max(known) * 1.25
    ticks = next(
        (found for steps in STEPS if len(found := _ticks(steps, low, high)) >= FEWEST), []
    ) or _ticks(STEPS[-1], low, high)
    ticks = ticks[:: ceil(len(ticks) / MOST)]
    text = [si(tick) for tick in ticks]
    ends = [log10(low), log10(high)]
    return {"type": "log", "tickvals": ticks, "ticktext": text, "range": ends, **more}


def _ticks(steps: Sequence[float], low: float, high: float) -> list[float]:
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    ticks = (float(f"{step}e{power}") for power in powers for step in steps)
    return [tick for tick in ticks if low <= tick <= high]


def si(value: float) -> str:
    """A number with a prefix of a thousand, a million and so on.

    >>> si(0.05), si(1500.0), si(2e6), si(1e-7)
    ('0.05', '1.5k', '2M', '1e-07')
    """
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{prefix}"
    return f"{value:g}"


def chart(
    lines: list[Figure], across: str, up: str, marks: Sequence[tuple[str, float]] = ()
) -> Figure:
    """Lines on two logarithmic axes; `marks` are vertical lines, each with its name and place."""
    places = [*(place for _, place in marks), *(x for line in lines for x in line["x"])]
    x = titled(across, **logarithmic(places))
    y = titled(up, **logarithmic(value for line in lines for value in line["y"]))
    found = with_legend(lines, 420, x, y, legend={"y": 1.06})
    found["layout"]["shapes"] = [upright(place, dash="dot", width=1) for _, place in marks]
    found["layout"]["annotations"] = [above(name, log10(place)) for name, place in marks]
    return found


def figure(name: str, caption: str) -> str:
    """The place of a figure on the page."""
    return framed(name, escape(caption))


def framed(name: str, caption: str) -> str:
    """The place of a figure under a caption that is HTML."""
    return f'<figure><figcaption>{caption}</figcaption><div id="{escape(name)}"></div></figure>'
