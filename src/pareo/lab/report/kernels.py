"""The report of `pareo kernels`: kinds side by side, then every contestant's own table."""

from html import escape
from pathlib import Path
from typing import Any

from pareo.lab.atomic_write import write_whole
from pareo.lab.experiment import results
from pareo.lab.kernels.events import KINDS
from pareo.lab.kernels.summary import (
    HEADS,
    Section,
    accounts,
    figures,
    finding,
    sections,
    total_rows,
)
from pareo.lab.report import tables
from pareo.lab.report.page import page
from pareo.lab.report.race_figures import COLOURS

MOST = 60  # rows of a contestant: what is left out is less than can be seen


def write(result: dict[str, Any], path: Path) -> None:
    """Write the report of a study to a file."""
    text = html(results.checked(result, "this result"))
    write_whole(path, text)


def html(result: dict[str, Any]) -> str:
    """The report as one page."""
    found = list(sections(result))
    title = f"Kernels of {result['network']}, batch {result['batch']:g}, {result['precision']}"
    return page(title, _body(result, title, found), {"kinds": _kinds(found)} if found else {})


def _body(result: dict[str, Any], title: str, found: list[Section]) -> str:
    place = result["machine"].get("processor", "an unknown processor")
    said = finding(result) if found else ["Nobody's kernels could be looked at."]
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(result['when'][:16].replace('T', ' '))}, {escape(place)}, "
        f"{result['threads']:g} threads.</p>",
        f'<p class="headline">{escape(said[0])}</p>',
        f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in said[1:])}</ul>",
    ]
    if found:
        parts.append(
            "<figure><figcaption>Milliseconds of one step by kind of kernel.</figcaption>"
            '<div id="kinds"></div></figure>'
        )
        parts.append("<h2>Totals by kind</h2>")
        rows = [
            ["" if number else one.title, *cells]
            for one in found
            for number, cells in enumerate(total_rows(result, one))
        ]
        parts.append(tables.table(["contestant", "kind", *HEADS], rows))
    for section in found:
        parts += [
            f"<h2>{escape(section.title)}</h2>",
            f"<p>{escape(accounts(section, result))}</p>",
        ]
        parts.append(_kernels(section))
    parts += [tables.not_timed(result), "<h2>Ledger</h2>", tables.ledger(result)]
    parts += ["<h2>Machine</h2>", tables.machine(result)]
    return "\n".join(part for part in parts if part)


def _kernels(section: Section) -> str:
    shown = [*section.kernels[:MOST], section.rows[-1]]
    rows = [[row.name, row.kind, *figures(row, section), row.shape] for row in shown]
    left = len(section.rows) - len(shown)
    more = f"<p>And {left} shorter ones.</p>" if left else ""
    return tables.table(["kernel or routine", "kind", *HEADS, "shape"], rows) + more


def _kinds(found: list[Section]) -> dict[str, Any]:
    """A bar for each contestant, stacked by kind."""
    names = [escape(section.title, quote=False) for section in found]
    totals = [section.totals for section in found]
    bars = [
        {
            "type": "bar",
            "orientation": "h",
            "name": kind,
            "y": names,
            "x": [by[kind].seconds * 1e3 if kind in by else 0.0 for by in totals],
            "marker": {"color": COLOURS[number]},
            "hovertemplate": f"{kind}: %{{x:.4g}} ms<extra></extra>",
        }
        for number, kind in enumerate(KINDS)
        if any(kind in by for by in totals)
    ]
    layout = {
        "height": 140 + 50 * len(found),
        "barmode": "stack",
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "xaxis": {"title": {"text": "milliseconds a step"}},
        "yaxis": {"autorange": "reversed", "automargin": True},
    }
    return {"data": bars, "layout": layout}
