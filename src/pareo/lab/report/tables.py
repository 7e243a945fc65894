"""The tables of a report, as HTML; every cell is escaped."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, get_args

from pareo.lab.experiment.entry import Entry, Status
from pareo.lab.experiment.results import Gpu, Result
from pareo.lab.formatting import digits
from pareo.lab.machine.floors import Floor
from pareo.lab.race.result import Row
from pareo.lab.report.page import folded, items

LEDGER = ("precision", "layout", "mode", "threads", "version", "first_layer_data_gradient")


# A number with its unit, two ends of an interval, or that there is none.
NUMBER = re.compile(
    r"-?[\d,]*\.?\d+(e[-+]?\d+)?( ?(%|[A-Za-z/]{1,10}))?( to [\d,]*\.?\d+(e[-+]?\d+)?)?"
)
UNIT = re.compile(r"(?<=\d) (?=(%|[A-Za-z/]{1,10})$)")  # the space before it, where no line breaks
NAME = 24  # characters of a name in the first column that stays on one line
ABSENT = ("", "unknown", "cannot tell", "not here", *get_args(Status))
PERCENT = re.compile(r"(?<=\d) (?=%)")  # the space before it, within a longer text


def table(heads: Iterable[str], rows: Iterable[Iterable[Any]], wrap: bool = False) -> str:
    """A table, which scrolls where it is too wide for the page.

    wrap: break the lines of all cells, for tables of many columns.
    Columns of numbers are aligned to the right. A column without any value is left out.

    >>> table(["a", "b", "note"], [["<b>", 1, ""]]).partition("<tbody>")[2][:60]
    '<tr><td class="name">&lt;b&gt;</td><td class="n">1</td></tr>'
    """
    names = list(heads)
    cells = [[_shown(cell) for cell in row] for row in rows]
    columns = [[row[at] for row in cells] for at in range(len(names))]
    kept = [at for at, column in enumerate(columns) if any(column) or not cells]
    numbers = {at for at in kept if _numeric(columns[at])}
    top = _cells("th", names, kept, numbers)
    body = "".join(_cells("td", row, kept, numbers, wrap) for row in cells)
    style = "wide wrap" if wrap else "wide"
    return f'<div class="{style}"><table><thead>{top}</thead><tbody>{body}</tbody></table></div>'


def _numeric(column: list[str]) -> bool:
    """Whether all cells that have a value hold a number.

    >>> _numeric(["1.5", "", "2 %"]), _numeric(["", "unknown"]), _numeric(["2.13.0"])
    (True, False, False)
    >>> _numeric(["1.5", "missing"]), _numeric(["ok", "missing"])
    (True, False)
    """
    known = [cell for cell in column if cell not in ABSENT]
    return bool(known) and all(NUMBER.fullmatch(cell) for cell in known)


def _cells(
    tag: str, cells: Sequence[str], kept: list[int], numbers: set[int], wrap: bool = False
) -> str:
    """A row; names and numbers with their units stay on one line, also where others wrap."""
    found = []
    for at in kept:
        text, style = escape(cells[at]), ""
        if wrap:
            text = (UNIT if at in numbers else PERCENT).sub("&nbsp;", text)
        if at in numbers:
            style = ' class="n"'
        elif at == kept[0] and tag == "td" and " " not in text and len(text) <= NAME:
            style = ' class="name"'
        found.append(f"<{tag}{style}>{text}</{tag}>")
    return f"<tr>{''.join(found)}</tr>"


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
                _part_of_epoch(row.slice or 0) if row.samples else "",
                *(row.ledger.get(name) for name in LEDGER),
                f"{row.first_call:.3g}" if row.first_call else "",
                f"{peak / 2**20:,.0f}" if peak else "",
            ]
        )
    tried = [
        f"{row.contestant}: {_shown(settings)}"
        for row in rows
        if (settings := row.ledger.get("settings_tried"))
    ]
    shown = table([*heads, "first call, s", "peak memory, MiB"], cells, wrap=True)
    return shown + folded("Settings that were tried", items(tried))


def _part_of_epoch(share: float) -> str:
    """How much a turn trains.

    >>> _part_of_epoch(0.05), _part_of_epoch(1.0), _part_of_epoch(31.2)
    ('5 % of an epoch', '1 epoch', '31.2 epochs')
    """
    if share < 1:
        return f"{share * 100:.3g} % of an epoch"
    return "1 epoch" if share == 1 else f"{share:.3g} epochs"


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
    rows += [[f"cuda:{number}", _gpu(gpu)] for number, gpu in enumerate(here.gpus)]
    for floor in floors:
        peak, bandwidth = _rate(floor.peak_flops, "GFLOP/s"), _rate(floor.bandwidth, "GB/s")
        rows.append([f"measured on {floor.name}", f"{peak}, bandwidth {bandwidth}"])
    rows += [[name, version] for name, version in result.versions.items()]
    return table(["what", "value"], (row for row in rows if row[1] not in (None, "")))


def _gpu(gpu: Gpu) -> str:
    """A GPU with its memory, clock and driver, where they are known.

    >>> _gpu(Gpu(name="NVIDIA H200", memory=150754820096, highest_clock=1980))
    'NVIDIA H200, 140.4 GiB, 1980 MHz at most'
    """
    memory = f"{gpu.memory / 2**30:.1f} GiB" if gpu.memory else ""
    clock = f"{gpu.highest_clock} MHz at most" if gpu.highest_clock else ""
    driver = f"driver {gpu.driver}" if gpu.driver else ""
    return ", ".join(part for part in (gpu.name, memory, clock, driver) if part)


def _rate(value: float | None, unit: str) -> str:
    return f"{digits(value / 1e9)} {unit}" if value else "unknown"
