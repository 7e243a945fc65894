"""What `pareo ops` shows: a table for each operator, sizes down, contestants across."""

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from pareo.cli.tables.narrow import Figures
from pareo.lab.experiment import statistics
from pareo.lab.formatting import digits, span
from pareo.lab.ops.engine import Laboratory
from pareo.lab.ops.reading import Read, offenders, raised, timed
from pareo.lab.ops.sizes import shown


def everything(result: dict[str, Any], cells: bool = False) -> Iterator[RenderableType]:
    """The tables, then what a reader must know."""
    found = timed(result)
    for kind in _kinds(result["rows"]):
        chosen = [cell for cell in found if _kind(cell.row) == kind]
        yield _matrix(", ".join(kind), [r for r in result["rows"] if _kind(r) == kind], chosen)
        if cells:
            yield _cells(chosen)
    if worst := offenders(found):
        yield _worst(worst)
    for line in lines(result):
        yield escape(line)


def running(lab: Laboratory) -> Group:
    """The operator at hand while it runs, and beneath it what is being done."""
    result = lab.result()
    kinds = _kinds(result["rows"])[-1:]
    parts: list[RenderableType] = []
    for kind in kinds:
        rows = [row for row in result["rows"] if _kind(row) == kind]
        parts.append(_matrix(", ".join(kind), rows, timed({**result, "rows": rows})))
    parts.append(f"{lab.done} of {len(lab.works)} done; {escape(lab.doing)}")
    return Group(*parts)


def lines(result: dict[str, Any]) -> list[str]:
    """What a reader must know beneath the tables: who has no time and why, and how noisy it was."""
    reasons: dict[str, list[str]] = {}
    for row in result["rows"]:
        if row["status"] != "ok":
            told = f"{row['contestant']}: {row['status']}: {row['note']}"
            reasons.setdefault(told, []).append(f"{row['operator']} {row['direction']}")
    found = [f"{told} ({', '.join(dict.fromkeys(where))})" for told, where in reasons.items()]
    errors = [row["error"] for row in result["rows"] if row["hot"]]
    if errors:
        found.append(f"Everyone who was timed agrees with float64 within {max(errors):.0e}.")
    found += raised(result)
    for place, rung in result["rungs"].items():
        why = f" ({rung['why']})" if rung["why"] else ""
        found.append(f"Counters of {place}: {rung['name']}{why}.")
    found += statistics.noticed({}, result["threads"], result["machine"].get("idle_cores"))
    return found


def _kinds(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return list(dict.fromkeys(map(_kind, rows)))


def _kind(row: dict[str, Any]) -> tuple[str, str]:
    return row["operator"], row["direction"]


def _matrix(title: str, rows: list[dict[str, Any]], found: list[Read]) -> Table:
    """GB/s, or GFLOP/s where arithmetic is the limit, and the share of the roofline."""
    names = list(dict.fromkeys(row["contestant"] for row in rows))
    cells = {(c.row["contestant"], c.row["nbytes"]): c for c in found}
    arithmetic = any(cell.limit.why == "arithmetic" for cell in cells.values())
    unit = "GFLOP/s" if arithmetic else "GB/s"
    made = Figures(
        title=escape(f"{title}: {unit} and share of the roofline, hot | cold"),
        title_justify="left",
        least=[name for name in reversed(names) if not name.startswith("pareo")],
    )
    for head in ("size", *names):
        made.add_column(head, justify="right")
    for nbytes in dict.fromkeys(row["nbytes"] for row in rows):
        shares = []
        for name in names:
            cell = cells.get((name, nbytes))
            shares.append(_cell(cell, arithmetic) if cell else _state(rows, name, nbytes))
        made.add_row(shown(nbytes), *shares)
    return made


def _cell(cell: Read, arithmetic: bool) -> str:
    parts = []
    for figure in (cell.hot, cell.cold) if cell.row["cold"] else (cell.hot,):
        rate = figure.flops_rate if arithmetic else figure.byte_rate
        parts.append(f"{digits(rate / 1e9)} {figure.of_roofline:4.0%}")
    return " | ".join(parts)


def _state(rows: list[dict[str, Any]], name: str, nbytes: int) -> str:
    """Why there is no time, in a word; nothing while it is being taken."""
    own = (r["status"] for r in rows if r["contestant"] == name and r["nbytes"] == nbytes)
    return "".join(f"[dim]{status}[/]" for status in own if status != "ok")


def _cells(cells: list[Read]) -> Table:
    """Every figure of every cell."""
    least = ("FLOP/B", "limit", "95 % interval", "of peak", "GFLOP/s", "of bandwidth")
    title = "hot, then cold where a cache could hold it"
    made = Figures(title=title, title_justify="left", least=least)
    heads = ("size", "contestant", "us", "95 % interval", "GFLOP/s", "GB/s", "FLOP/B")
    for head in (*heads, "of peak", "of bandwidth", "of roofline", "limit"):
        left = head in ("contestant", "limit")
        made.add_column(head, justify="left" if left else "right")
    for cell in cells:
        both = (("", cell.hot), (" cold", cell.cold)) if cell.row["cold"] else (("", cell.hot),)
        for word, figure in both:
            made.add_row(
                shown(cell.row["nbytes"]),
                cell.row["contestant"] + word,
                digits(figure.seconds * 1e6),
                span(figure.low * 1e6, figure.high * 1e6),
                digits(figure.flops_rate / 1e9),
                digits(figure.byte_rate / 1e9),
                f"{figure.intensity:.3g}",
                f"{figure.of_peak:.2%}",
                f"{figure.of_bandwidth:.1%}",
                f"{figure.of_roofline:.1%}",
                cell.limit.why,
            )
    return made


def _worst(cells: list[Read]) -> Table:
    made = Table(
        title="worst offenders: pareo's cells furthest from the roofline, at their largest size",
        title_justify="left",
    )
    for head in ("operator", "device", "size", "of roofline", "us", "could be"):
        left = head in ("operator", "device")
        made.add_column(head, justify="left" if left else "right")
    for cell in cells:
        row = cell.row
        made.add_row(
            f"{row['operator']} {row['direction']}",
            row["contestant"].removeprefix("pareo-"),
            shown(row["nbytes"]),
            f"{cell.hot.of_roofline:.0%}",
            digits(cell.hot.seconds * 1e6),
            digits(cell.limit.floor(cold=False) * 1e6),
        )
    return made
