"""The tables of a report, as HTML; every cell is escaped."""

from collections.abc import Iterable
from html import escape
from typing import Any

from pareo.lab.formatting import digits, span
from pareo.lab.report.summary import Timed, base_of, beside, floors, timed

LEDGER = ("precision", "layout", "mode", "threads", "version", "first_layer_data_gradient")


def table(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table that scrolls by itself where it is too wide for the page.

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


def times(result: dict[str, Any]) -> str:
    """Who was timed: the time with its interval, its share of the floor, and a verdict."""
    everyone = timed(result)
    base = base_of(everyone)
    if base is None:
        return ""
    rows = [
        [
            one.name,
            digits(one.seconds),
            span(one.low, one.high),
            digits(result["images"] / one.seconds),
            _share(one),
            "" if one is base else str(beside(one, base)),
            one.row["note"],
        ]
        for one in everyone
    ]
    heads = ["contestant", "s per epoch", "95 % interval", "images/s", "of the floor"]
    return table([*heads, f"beside {base.name}", "note"], rows)


def _share(one: Timed) -> str:
    floor = one.row["floor"].get("seconds_per_epoch")
    return f"{floor / one.seconds * 100:.2g} %" if floor else "unknown"


def not_timed(result: dict[str, Any]) -> str:
    """Who has no time, and why, as a list."""
    items = "".join(
        f"<li><b>{escape(row['contestant'])}</b> {escape(row['status'] + ': ' + row['note'])}</li>"
        for row in result["rows"]
        if not row["samples"]
    )
    return f"<h3>Not timed</h3><ul>{items}</ul>" if items else ""


def parity(result: dict[str, Any]) -> str:
    """How far each was from float64 in its first steps."""
    heads = [
        "contestant",
        "through the gate",
        "loss",
        "worst parameter",
        "median parameter",
        "steps",
    ]
    rows = []
    for row in result["rows"]:
        far = row["parity"]
        gate = {"ok": "yes", "refused": "no", "failed": "failed"}.get(row["status"], "not here")
        errors = (far.get(name) for name in ("loss", "parameter", "median"))
        shown = ["" if error is None else f"{error:.1e}" for error in errors]
        rows.append([row["contestant"], gate, *shown, far.get("steps")])
    return table(heads, rows)


def ledger(result: dict[str, Any]) -> str:
    """Under which conditions each ran."""
    heads = ["contestant", "samples", "each of", *(name.replace("_", " ") for name in LEDGER)]
    rows = []
    for row in result["rows"]:
        if row["status"] == "missing":
            continue
        known = row["ledger"]
        peak, first = known.get("peak_memory_bytes"), row["first_call"]
        rows.append(
            [
                row["contestant"],
                len(row["samples"]),
                f"{row['slice'] * 100:.3g} % of an epoch" if row["samples"] else "",
                *(known.get(name) for name in LEDGER),
                f"{first:.3g}" if first else "",
                f"{peak / 2**20:,.0f}" if peak else "",
                known.get("settings_tried"),
            ]
        )
    return table([*heads, "first call, s", "peak memory, MiB", "settings tried"], rows)


def machine(result: dict[str, Any]) -> str:
    """Where it ran, with which versions, and the limits that were measured."""
    known = result["machine"]
    rows: list[list[Any]] = [
        [name.replace("_", " "), value]
        for name, value in known.items()
        if name not in ("libraries", "memory_bytes", "cards")
    ]
    if known.get("memory_bytes"):
        rows.append(["memory", f"{known['memory_bytes'] / 2**30:.1f} GiB"])
    for number, card in enumerate(known.get("cards") or ()):
        rows.append([f"cuda:{number}", card])
    for floor in floors(result):
        peak, bandwidth = _rate(floor.peak, "GFLOP/s"), _rate(floor.bandwidth, "GB/s")
        rows.append([f"measured on {floor.name}", f"{peak}, bandwidth {bandwidth}"])
    rows += [[name, version] for name, version in result["versions"].items() if version]
    return table(["what", "value"], rows)


def _rate(value: float | None, unit: str) -> str:
    return f"{digits(value / 1e9)} {unit}" if value else "unknown"
