"""The figures of a search's report, as plotly.js takes them.

plotly's own parallel coordinates compile code in the browser, which the report's policy forbids, so
they are drawn as lines here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from pareo.lab.report.charts import COLOURS, Figure, bars, label, titled, with_legend
from pareo.lab.tune.result import Trial, TuneResult
from pareo.lab.tune.summary import described, shown

Heights = Callable[[Trial], list[float]]

SHADES = (  # of lines, from the worst fifth to the best; the last two stand out on white and black
    "rgba(128,128,128,0.35)", "rgba(128,128,128,0.55)", "#9a7400", "#5873c4", "#0072b2",
)  # fmt: skip


LEGEND = {"y": 1.12, "title": {"text": "accuracy"}}
FEW = 10  # trials that have a tick each


def figures(result: TuneResult) -> dict[str, Figure]:
    """Each figure by its name; those of trials only where some have an accuracy."""
    judged = result.judged
    found = {"history": _history(judged), "parallel": _parallel(result, judged)} if judged else {}
    if result.importances:
        found["importance"] = _importance(result.importances)
    return found


def _history(trials: list[Trial]) -> Figure:
    """A mark for each trial, and the best so far as steps."""
    done = [trial for trial in trials if trial.state == "complete"]
    best: list[float] = []
    for trial in done:
        best.append(max([_accuracy(trial), *best[-1:]]))
    pruned = [trial for trial in trials if trial.state != "complete"]
    traces = [
        _marks("completed", done, COLOURS[0], "circle"),
        _marks("pruned", pruned, COLOURS[1], "x-thin"),
        {
            "type": "scatter",
            "mode": "lines",
            "name": "best so far",
            "x": [trial.number for trial in done],
            "y": best,
            "line": {"color": COLOURS[2], "shape": "hv", "width": 2},
        },
    ]
    drawn = [trace for trace in traces if trace["x"]]
    across = titled("trial", **({"dtick": 1} if len(trials) <= FEW else {}))
    up = titled("accuracy", tickformat=".1%")
    up["title"]["standoff"] = 14  # of labels as long as 100.0%
    return with_legend(drawn, 380, across, up)


def _marks(name: str, trials: list[Trial], colour: str, symbol: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [trial.number for trial in trials],
        "y": [trial.accuracy for trial in trials],
        "text": [label(described(trial)) for trial in trials],
        "marker": {
            "color": colour,
            "symbol": symbol,
            "size": 8,
            "line": {"width": 2, "color": colour},
        },
        "hovertemplate": "%{text}<extra></extra>",
    }


def _parallel(result: TuneResult, trials: list[Trial]) -> Figure:
    """Parallel coordinates: five shades of lines, so that a thousand trials are five traces."""
    space = result.parsed_space
    ranked = sorted(trials, key=_accuracy)
    low, high = _accuracy(ranked[0]), _accuracy(ranked[-1])
    axes = [
        *(_range(name, bounds) for name, bounds in space.ranges.items()),
        *(_choice(name, choices) for name, choices in space.choices.items()),
        _Axis(
            "accuracy", [f"{low:.2%}", f"{high:.2%}"],
            lambda accuracy: (accuracy - low) / (high - low) if high > low else 0.5,
        ),
    ]  # fmt: skip

    def heights(trial: Trial) -> list[float]:
        values = {**trial.parameters, "accuracy": trial.accuracy}
        return [axis.height(values[axis.name]) for axis in axes]

    names = [axis.name for axis in axes]
    drawn = []
    for shade, colour in enumerate(SHADES):
        first, last = (len(ranked) * edge // len(SHADES) for edge in (shade, shade + 1))
        if last > first:
            part = ranked[first:last]
            ends = " to ".join(
                dict.fromkeys(f"{_accuracy(end):.2%}" for end in (part[0], part[-1]))
            )
            drawn.append(_lines(ends, part, len(names), heights, colour, 1.5))
    best = result.best_trial
    if best is not None:
        drawn.append(
            _lines(f"best: trial {best.number}", [best], len(names), heights, "#d55e00", 4)
        )
    x = {"tickvals": list(range(len(names))), "ticktext": names, "showgrid": True}
    found = with_legend(drawn, 460, x, {"visible": False, "range": [-0.08, 1.08]}, LEGEND)
    found["layout"]["annotations"] = [
        {
            "x": place,
            "y": y,
            "text": label(text),
            "showarrow": False,
            "xshift": 16 if 0 < y < 1 else 0,  # beside the lines that go through there
        }
        for place, axis in enumerate(axes)
        for y, text in axis.notes().items()
    ]
    return found


def _accuracy(trial: Trial) -> float:
    return trial.accuracy or 0.0


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
        text += [label(described(trial))] * axes + [""]
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


@dataclass(frozen=True)
class _Axis:
    """An axis of the parallel coordinates.

    values: written beside the axis, from just below it to just above.
    height: of a hyper-parameter's value, from 0 to 1.
    """

    name: str
    values: Sequence[Any]
    height: Callable[[Any], float]

    def notes(self) -> dict[float, str]:
        """What is written beside the axis, by height."""
        last = max(1, len(self.values) - 1)
        return {-0.06 + 1.12 * k / last: shown(value) for k, value in enumerate(self.values)}


def _range(name: str, bounds: dict[str, Any]) -> _Axis:
    ends = bounds["low"], bounds["high"]
    scale: Callable[[float], float] = log if bounds.get("log") else float
    low, high = map(scale, ends)
    return _Axis(name, ends, lambda value: (scale(value) - low) / (high - low))


def _choice(name: str, choices: list[Any]) -> _Axis:
    return _Axis(name, choices, lambda value: choices.index(value) / max(1, len(choices) - 1))


def _importance(shares: dict[str, float]) -> Figure:
    hover = "%{y}: %{x:.1%}<extra></extra>"
    drawn = bars(shares, shares.values(), hover, marker={"color": COLOURS[0]})
    layout = {
        "height": 110 + 36 * len(shares),
        "showlegend": False,
        "yaxis": {"autorange": "reversed", "automargin": True},
        "xaxis": titled("share (PED-ANOVA)", tickformat=".0%"),
    }
    return {"data": [drawn], "layout": layout}
