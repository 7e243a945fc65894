"""Figures as plotly.js takes them: plain data, every text escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from math import log10
from typing import Any

from pareo.lab.experiment.statistics import error_bar

Figure = dict[str, Any]
LOGARITHMIC = {"type": "log", "exponentformat": "SI"}
GREY = "#888888"

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


def line(name: str, colour: str, x: Sequence[float], y: Sequence[float], **more: Any) -> Figure:
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


def upright(place: float, **style: Any) -> Figure:
    """A vertical line through the whole figure."""
    return {"type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "yref": "paper",
            "line": style}  # fmt: skip


def above(text: str, place: float, **more: Any) -> Figure:
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


def chart(
    lines: list[Figure], across: str, up: str, marks: Sequence[tuple[str, float]] = ()
) -> Figure:
    """Lines on two logarithmic axes; `marks` are vertical lines, each with its name and place."""
    x, y = titled(across, **LOGARITHMIC), titled(up, **LOGARITHMIC)
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
