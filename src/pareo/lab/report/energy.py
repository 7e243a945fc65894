"""Time against energy, in the reports of races and sweeps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pareo.lab.machine.energy import NOT_HERE, Energy
from pareo.lab.report import charts
from pareo.lab.report.charts import Figure

CAPTION = (
    "Energy against time: joules and milliseconds per image, by the counter of the device. A bar "
    "is what the steps of the counter may make. A ring is without the power of the idle device."
)
NOTHING = f"<p>Energy: {NOT_HERE}.</p>"


@dataclass(frozen=True)
class Spent:
    """What an image took: seconds, and the energy of all turns; `where` is shown at its point."""

    seconds: float
    energy: Energy
    where: str


def chart(spent: Iterable[tuple[str, str, Sequence[Spent]]]) -> Figure | None:
    """Names and colours of contestants with what they took; None where no energy is known."""
    lines = []
    for name, colour, every in spent:
        known = [one for one in every if one.energy.per_image]
        if not known:
            continue
        joules = [one.energy.per_image or 0.0 for one in known]
        off = [(one.energy.uncertainty or 0.0) * (one.energy.per_image or 0.0) for one in known]
        bars = {"type": "data", "array": off, "thickness": 1}
        lines.append({**_line(name, colour, known, joules), "error_y": bars})
        net = [one for one in known if one.energy.net_per_image]
        if net:
            less = [one.energy.net_per_image or 0.0 for one in net]
            rings = {"symbol": "circle-open", "size": 9}
            line = _line(f"{name}, less idling", colour, net, less)
            lines.append({**line, "mode": "markers", "marker": rings})
    if not lines:
        return None
    return charts.chart(lines, "ms per image, logarithmic", "J per image, logarithmic")


def _line(name: str, colour: str, spent: Sequence[Spent], joules: Sequence[float]) -> Figure:
    return charts.line(
        name, colour, [1e3 * one.seconds for one in spent], joules,
        text=[charts.label(one.where) for one in spent],
        hovertemplate="%{text}: %{x:.4g} ms, %{y:.4g} J<extra>%{fullData.name}</extra>",
    )  # fmt: skip
