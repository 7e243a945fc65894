"""Lines on logarithmic axes, as plotly.js takes them, with marks at sizes of caches."""

from collections.abc import Iterable, Sequence
from html import escape
from math import log10
from typing import Any

from pareo.lab.report.race_figures import COLOURS

Figure = dict[str, Any]
LOGARITHMIC = {"type": "log", "exponentformat": "SI"}


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, in order."""
    return {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}


def line(name: str, colour: str, x: Sequence[float], y: Sequence[float], **more: Any) -> Figure:
    """One line with its points."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": escape(name, quote=False),
        "x": list(x),
        "y": list(y),
        "line": {"color": colour, "width": 2},
        "hovertemplate": "%{x:.4s}: %{y:.4s}<extra>%{fullData.name}</extra>",
        **more,
    }


def chart(
    lines: list[Figure], across: str, up: str, marks: Sequence[tuple[str, float]] = ()
) -> Figure:
    """Lines on two logarithmic axes; `marks` are upright, each with its name and its place."""
    layout: Figure = {
        "height": 420,
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.06, "yanchor": "bottom"},
        "xaxis": {"title": {"text": across}, **LOGARITHMIC},
        "yaxis": {"title": {"text": up}, "automargin": True, **LOGARITHMIC},
    }
    layout["shapes"] = [
        {"type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "yref": "paper",
         "line": {"dash": "dot", "width": 1}}
        for _, place in marks
    ]  # fmt: skip
    layout["annotations"] = [
        {"x": log10(place), "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False,
         "text": escape(name, quote=False)}
        for name, place in marks
    ]  # fmt: skip
    return {"data": lines, "layout": layout}


def figure(name: str, caption: str) -> str:
    """The place of a figure on the page."""
    text = escape(caption)
    return f'<figure><figcaption>{text}</figcaption><div id="{escape(name)}"></div></figure>'
