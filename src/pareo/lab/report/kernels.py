"""The report of `pareo kernels`: totals by kind side by side, then each contestant's kernels."""

from html import escape

from pareo.lab.formatting import counted
from pareo.lab.kernels.events import KINDS, KernelTime
from pareo.lab.kernels.result import KernelsResult
from pareo.lab.kernels.summary import (
    HEADS,
    Section,
    accounts,
    by_weight,
    figures,
    finding,
    sections,
    total_rows,
    where,
)
from pareo.lab.report import charts, tables
from pareo.lab.report.page import folded, head, items, page

FIRST = 12  # rows of a contestant that are shown at once
MOST = 60  # rows in all: those left out take too little time to matter


def html(result: KernelsResult) -> str:
    """The report as one page."""
    found = list(sections(result))
    title = f"Kernels of {result.network}, batch {result.batch}, {result.precision}"
    return page(title, _sections(result, title, found), {"kinds": _kinds(found)} if found else {})


def _sections(result: KernelsResult, title: str, found: list[Section]) -> list[str]:
    spent = [where(one) for one in by_weight(found)] or [
        "No contestant's kernels could be profiled."
    ]
    parts = [head(result, title, spent[0], result.threads), items(spent[1:])]
    if found:
        rows = [
            ["" if number else one.title, *cells]
            for one in found
            for number, cells in enumerate(total_rows(result, one))
        ]
        parts += [
            charts.figure("kinds", "Milliseconds of one step by kind of kernel."),
            "<h2>Calls of products and convolutions</h2>",
            items(finding(result)),
            "<h2>Totals by kind</h2>",
            tables.table(["contestant", "kind", *HEADS], rows),
        ]
    for section in found:
        said_of_it = escape(accounts(section, result))
        parts += [f"<h2>{escape(section.title)}</h2>", f"<p>{said_of_it}</p>", _kernels(section)]
    parts += [tables.not_timed(result.rows), "<h2>Ledger</h2>", tables.ledger(result.rows)]
    return [*parts, "<h2>Machine</h2>", tables.machine(result, result.floors)]


def _kernels(section: Section) -> str:
    first, others = section.kernels[:FIRST], section.kernels[FIRST:MOST]
    left = len(section.kernels) - MOST
    more = f"<p>And {left} shorter ones.</p>" if left > 0 else ""
    said = counted(len(others), "shorter kernel")
    folded_away = folded(said, _table(others, section) + more) if others else ""
    return _table([*first, section.rest], section) + folded_away


def _table(kernels: list[KernelTime], section: Section) -> str:
    rows = [[row.name, row.kind, *figures(row, section), row.shape] for row in kernels]
    return tables.table(["kernel or routine", "kind", *HEADS, "shape"], rows)


def _kinds(found: list[Section]) -> charts.Figure:
    """A bar for each contestant, stacked by kind."""
    names = [section.title for section in found]
    totals = [section.totals for section in found]
    bars = [
        charts.bars(
            names,
            (by[kind].seconds * 1e3 if kind in by else 0.0 for by in totals),
            f"{kind}: %{{x:.4g}} ms<extra></extra>",
            name=kind,
            marker={"color": colour},
        )
        for kind, colour in zip(KINDS, charts.COLOURS, strict=False)
        if any(kind in by for by in totals)
    ]
    for one in bars:
        one["y"] = [name.replace(", ", "<br>", 1) for name in one["y"]]
    axes = charts.titled("milliseconds a step"), {"autorange": "reversed"}
    order = {"traceorder": "normal"}
    chart = charts.with_legend(bars, 140 + 50 * len(found), *axes, legend=order)
    chart["layout"]["barmode"] = "stack"
    return chart
