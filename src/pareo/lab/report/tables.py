"""The tables of a report, as HTML; every cell is escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from pareo.lab.experiment.entry import Entry
from pareo.lab.experiment.results import Result, plain
from pareo.lab.formatting import digits
from pareo.lab.machine.floors import Floor
from pareo.lab.race.result import Row

LEDGER = ("precision", "layout", "mode", "threads", "version", "first_layer_data_gradient")


def table(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table, which scrolls where it is too wide for the page.

    >>> table(["a"], [["<b>"]])
    '<div class="wide"><table><tr><th>a</th></tr><tr><td>&lt;b&gt;</td></tr></table></div>'
    """
    lines = [_cells("th", heads), *(_cells("td", row) for row in rows)]
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def _cells(tag: str, cells: Iterable[Any]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(_shown(cell))}</{tag}>' for cell in cells)}</tr>"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(item)}" for key, item in value.items() if item is not None)
    if isinstance(value, list):
        return "; ".join(map(_shown, value))
    return digits(value) if isinstance(value, float) else str(value)


def not_timed(rows: Sequence[Entry]) -> str:
    """The contestants that have no time, and why, as a list."""
    found = "".join(
        f"<li><b>{escape(row.contestant)}</b> {escape(f'{row.status}: {row.note}')}</li>"
        for row in rows
        if not row.times
    )
    return f"<h3>Not timed</h3><ul>{found}</ul>" if found else ""


def ledger(rows: Sequence[Row]) -> str:
    """The conditions under which each contestant ran."""
    heads = ["contestant", "samples", "each of", *(name.replace("_", " ") for name in LEDGER)]
    cells = []
    for row in rows:
        if row.status == "missing":
            continue
        peak = row.ledger.get("peak_memory_bytes")
        cells.append(
            [
                row.contestant,
                len(row.samples),
                f"{(row.slice or 0) * 100:.3g} % of an epoch" if row.samples else "",
                *(row.ledger.get(name) for name in LEDGER),
                f"{row.first_call:.3g}" if row.first_call else "",
                f"{peak / 2**20:,.0f}" if peak else "",
                row.ledger.get("settings_tried"),
            ]
        )
    return table([*heads, "first call, s", "peak memory, MiB", "settings tried"], cells)


def machine(result: Result, floors: Iterable[Floor] = ()) -> str:
    """Where it ran, with which versions, and the limits that were measured, if any."""
    here = result.machine
    rows: list[list[Any]] = [
        ["processor", here.processor],
        ["architecture", here.architecture],
        ["cores", here.cores],
        ["python", here.python],
        ["idle cores", here.idle_cores],
    ]
    if here.memory_bytes:
        rows.append(["memory", f"{here.memory_bytes / 2**30:.1f} GiB"])
    rows += [[f"cuda:{number}", plain(gpu)] for number, gpu in enumerate(here.gpus)]
    for floor in floors:
        peak, bandwidth = _rate(floor.peak_flops, "GFLOP/s"), _rate(floor.bandwidth, "GB/s")
        rows.append([f"measured on {floor.name}", f"{peak}, bandwidth {bandwidth}"])
    rows += [[name, version] for name, version in result.versions.items()]
    return table(["what", "value"], (row for row in rows if row[1] not in (None, "")))


def _rate(value: float | None, unit: str) -> str:
    return f"{digits(value / 1e9)} {unit}" if value else "unknown"
