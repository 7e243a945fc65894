"""The figures of a search's report, as plotly.js takes them.

plotly's own parallel coordinates compile code in the browser, which the report's policy forbids, so
they are drawn as lines here.
"""

from collections.abc import Callable
from html import escape
from math import log
from typing import Any

from pareo.lab.formatting import digits
from pareo.lab.report.charts import COLOURS

Figure = dict[str, Any]
Trial = dict[str, Any]
Heights = Callable[[Trial], list[float]]

SHADES = (  # of lines, from the worst fifth to the best; the last two stand out on white and black
    "rgba(128,128,128,0.35)", "rgba(128,128,128,0.55)", "#9a7400", "#5873c4", "#0072b2",
)  # fmt: skip


def figures(result: dict[str, Any]) -> dict[str, Figure]:
    """Each figure by its name; those that need trials only where there are some."""
    judged = [trial for trial in result["trials"] if trial["accuracy"] is not None]
    found = {"history": _history(judged), "parallel": _parallel(result, judged)} if judged else {}
    if result["importances"]:
        found["importance"] = _importance(result["importances"])
    return found


def _history(trials: list[Trial]) -> Figure:
    """A mark for each trial, and the best so far as steps."""
    done = [trial for trial in trials if trial["state"] == "complete"]
    best: list[float] = []
    for trial in done:
        best.append(max(trial["accuracy"], best[-1] if best else 0.0))
    data = [
        _marks("trained to its end", done, COLOURS[0], "circle"),
        _marks("pruned", [t for t in trials if t["state"] != "complete"], COLOURS[1], "x-thin"),
        {
            "type": "scatter",
            "mode": "lines",
            "name": "best so far",
            "x": [trial["number"] for trial in done],
            "y": best,
            "line": {"color": COLOURS[2], "shape": "hv", "width": 2},
        },
    ]
    layout = {
        "height": 380,
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "xaxis": {"title": {"text": "trial"}},
        "yaxis": {"title": {"text": "accuracy"}, "tickformat": ".1%", "automargin": True},
    }
    return {"data": [trace for trace in data if trace["x"]], "layout": layout}


def _marks(name: str, trials: list[Trial], colour: str, symbol: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [trial["number"] for trial in trials],
        "y": [trial["accuracy"] for trial in trials],
        "text": [escape(told(trial), quote=False) for trial in trials],
        "marker": {"color": colour, "symbol": symbol, "size": 8, "line": {"width": 2}},
        "hovertemplate": "%{text}<extra></extra>",
    }


def _parallel(result: dict[str, Any], trials: list[Trial]) -> Figure:
    """Parallel coordinates: five shades of lines, so that a thousand trials are five traces."""
    axes = [_Axis(name, of) for name, of in result["space"].items() if searched(of)]
    best = next((t for t in trials if t["number"] == result["best"]), None)
    ranked = sorted(trials, key=lambda trial: trial["accuracy"])
    low, high = ranked[0]["accuracy"], ranked[-1]["accuracy"]

    def heights(trial: Trial) -> list[float]:
        last = (trial["accuracy"] - low) / (high - low) if high > low else 0.5
        return [*(axis.height(trial["parameters"]) for axis in axes), last]

    names = [*(axis.name for axis in axes), "accuracy"]
    data = []
    for shade, colour in enumerate(SHADES):
        first, last = (len(ranked) * edge // len(SHADES) for edge in (shade, shade + 1))
        if last > first:
            part = ranked[first:last]
            told = f"{part[0]['accuracy']:.2%} to {part[-1]['accuracy']:.2%}"
            data.append(_lines(told, part, len(names), heights, colour, 1.5))
    if best is not None:
        data.append(_lines(f"trial {best['number']}", [best], len(names), heights, "#d55e00", 4))
    notes = [*(axis.notes() for axis in axes), {-0.06: f"{low:.2%}", 1.06: f"{high:.2%}"}]
    layout = {
        "height": 460,
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.12, "yanchor": "bottom"},
        "xaxis": {"tickvals": list(range(len(names))), "ticktext": names, "showgrid": True},
        "yaxis": {"visible": False, "range": [-0.08, 1.08]},
        "annotations": [
            {
                "x": place,
                "y": y,
                "text": escape(text, quote=False),
                "showarrow": False,
                "xshift": 16 if 0 < y < 1 else 0,  # beside the lines that go through there
            }
            for place, texts in enumerate(notes)
            for y, text in texts.items()
        ],
    }
    return {"data": data, "layout": layout}


def _lines(
    name: str, trials: list[Trial], axes: int, heights: Heights, colour: str, width: float
) -> Figure:
    """Some trials as one trace, with gaps between their lines."""
    x: list[int | None] = []
    y: list[float | None] = []
    text: list[str] = []
    for trial in trials:
        x += [*range(axes), None]
        y += [*heights(trial), None]
        text += [escape(told(trial), quote=False)] * axes + [""]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "text": text,
        "line": {"color": colour, "width": width},
        "hovertemplate": "%{text}<extra></extra>",
    }


class _Axis:
    """An axis of the parallel coordinates: from a hyper-parameter's value to a height of 0 to 1."""

    def __init__(self, name: str, of: Any) -> None:
        self.name, self._choices = name, of if isinstance(of, list) else None
        self._log = isinstance(of, dict) and bool(of.get("log"))
        self._ends: tuple[Any, Any] = (0, 1) if self._choices else (of["low"], of["high"])

    def height(self, parameters: dict[str, Any]) -> float:
        value = parameters[self.name]
        if self._choices is not None:
            return self._choices.index(value) / max(1, len(self._choices) - 1)
        low, high = self._ends
        if self._log:
            low, high, value = log(low), log(high), log(value)
        return (value - low) / (high - low)

    def notes(self) -> dict[float, str]:
        """What is written beside the axis, by height: its ends, or every choice."""
        values = self._choices or self._ends
        last = max(1, len(values) - 1)
        return {-0.06 + 1.12 * k / last: shown(value) for k, value in enumerate(values)}


def _importance(shares: dict[str, float]) -> Figure:
    names = list(shares)
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": [escape(name, quote=False) for name in names],
        "x": [shares[name] for name in names],
        "marker": {"color": COLOURS[0]},
        "hovertemplate": "%{y}: %{x:.1%}<extra></extra>",
    }
    layout = {
        "height": 110 + 36 * len(names),
        "showlegend": False,
        "yaxis": {"autorange": "reversed", "automargin": True},
        "xaxis": {"title": {"text": "share (PED-ANOVA)"}, "tickformat": ".0%"},
    }
    return {"data": [bars], "layout": layout}


def told(trial: Trial) -> str:
    """A trial in a few words."""
    values = ", ".join(f"{name} {shown(value)}" for name, value in trial["parameters"].items())
    return f"trial {trial['number']} ({values}) with {trial['accuracy']:.2%}"


def shown(value: Any) -> str:
    """A hyper-parameter's value."""
    return digits(value) if isinstance(value, float) else str(value)


def searched(of: Any) -> bool:
    """Whether a space has several values for a hyper-parameter."""
    return isinstance(of, dict | list)
