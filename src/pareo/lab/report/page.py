"""The page of a report: text, tables and figures in one file, with plotly.js inlined once."""

import base64
import hashlib
import json
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from pareo.lab.atomic_write import write_whole
from pareo.lab.experiment import results
from pareo.lab.experiment.statistics import MARGIN, noticed
from pareo.lab.report import tables
from pareo.lab.report.race_figures import figures
from pareo.lab.report.summary import floors, headline

CAPTIONS = {
    "times": "Seconds per epoch: median and 95 % interval. A dashed line is a floor.",
    "epochs": "Time by epoch: seconds of training at the end of each epoch.",
    "accuracy": "Time to accuracy: seconds until the test images were first classified so well.",
    "speedup": "Speedup: at the end of each epoch, how many times as fast as",
}


def write(result: dict[str, Any], path: Path) -> None:
    """Write the report of a result to a file."""
    text = html(results.checked(result, "this result"))
    write_whole(path, text)


def html(result: dict[str, Any]) -> str:
    """The report as one page."""
    drawn = figures(result)
    title = f"{result['network']}, batch {result['batch']:g}, {result['precision']}"
    return page(title, _body(result, title, drawn), drawn)


def page(title: str, body: str, drawn: dict[str, Any]) -> str:
    """A page of its own for any body; each figure is drawn where the body has its name as an id."""
    # "<" would end the script element if a name holds "</script>".
    data = json.dumps(drawn, allow_nan=False).replace("<", "\\u003c")
    scripts = [_plotly(), _part("report.js")]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title><style>{_part('report.css')}</style></head><body><main>",
            body,
            f'</main><script type="application/json" id="figures">{data}</script>',
            *(f"<script>{script}</script>" for script in scripts),
            "</body></html>\n",
        ]
    )


def _body(result: dict[str, Any], title: str, drawn: dict[str, Any]) -> str:
    samples = {row["contestant"]: row["samples"] for row in result["rows"]}
    noted = noticed(samples, result["threads"], result["machine"].get("idle_cores"))
    warnings = "".join(f"<li>{escape(sentence)}</li>" for sentence in noted)
    bound = {"arithmetic": "its arithmetic", "bandwidth": "the bytes it must move"}
    limits = [f"on {f.name} by {bound[f.why]}" for f in floors(result) if f.why in bound]
    floor = f", {' and '.join(limits)}," if limits else ""
    none = "" if "epochs" in drawn else "<p>No whole epoch was trained, so no figure by epoch.</p>"
    sections = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(_circumstances(result))}</p>",
        f'<p class="headline">{escape(headline(result))}</p>',
        f'<ul class="noticed">{warnings}</ul>' if warnings else "",
        "<h2>Times</h2>",
        _figure("times", drawn),
        tables.times(result),
        f"<p>The floor is the least time that this network needs on this machine{floor} at the "
        f"rate that was measured. A verdict is 99 % sure of a difference beyond {MARGIN:.0%}.</p>",
        tables.not_timed(result),
        f"<h2>Training</h2>{none}",
        *(_figure(name, drawn) for name in ("epochs", "accuracy", "speedup")),
        "<h2>Parity</h2><p>Distance of the first steps from float64, as a share. Who is too far "
        "gets no time.</p>",
        tables.parity(result),
        "<h2>Ledger</h2>",
        tables.ledger(result),
        "<h2>Machine</h2>",
        tables.machine(result),
    ]
    return "\n".join(section for section in sections if section)


def _circumstances(result: dict[str, Any]) -> str:
    place = result["machine"].get("processor", "an unknown processor")
    return (
        f"{result['when'][:16].replace('T', ' ')}, {place}, {result['threads']:g} threads, "
        f"{result['images']:,} images {_data(result)}an epoch."
    )


def _data(result: dict[str, Any]) -> str:
    return f"of {result['data']} " if result.get("data") else "that are made up "


def _figure(name: str, drawn: dict[str, Any]) -> str:
    if name not in drawn:
        return ""
    caption = escape(CAPTIONS[name])
    if name == "speedup":
        chosen = drawn[name]["base"]
        options = "".join(
            f"<option{' selected' if base == chosen else ''}>{escape(base)}</option>"
            for base in drawn[name]["bases"]
        )
        caption = f'<label>{caption} <select id="base">{options}</select></label>'
    return f'<figure><figcaption>{caption}</figcaption><div id="{name}"></div></figure>'


def _policy(scripts: list[str]) -> str:
    """No request to anywhere, and no script but these."""
    hashes = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    allowed = " ".join(f"'sha256-{h}'" for h in hashes)
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src {allowed}"
    )


@cache
def _plotly() -> str:
    return (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def _part(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
