"""The page of a report: text, tables and figures in one file, with plotly.js inlined once."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from pareo.lab.experiment.results import Result
from pareo.lab.experiment.statistics import far_samples, warned
from pareo.lab.formatting import counted

OTHER_TAGS = re.compile(r"<(?!/?(br|b|i|sup|sub|extra)>)")  # than those that pareo's figures use


def page(title: str, sections: Iterable[str], drawn: dict[str, Any]) -> str:
    """A whole page; each figure is drawn where a section has its name as an id."""
    # "<" would end the script element if a name holds "</script>".
    data = json.dumps(_texts(drawn), allow_nan=False).replace("<", "\\u003c")
    scripts = [_plotly(), _part("report.js")]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title><style>{_part('report.css')}</style></head><body><main>",
            *(section for section in sections if section),
            f'</main><script type="application/json" id="figures">{data}</script>',
            *(f"<script>{script}</script>" for script in scripts),
            "</body></html>\n",
        ]
    )


def _texts(drawn: Any) -> Any:
    """Figures of whose texts plotly makes no links: it reads a few tags of HTML.

    >>> _texts({"text": ["a<br>b", "<a href='x'>c</a>"]})
    {'text': ['a<br>b', "&lt;a href='x'>c&lt;/a>"]}
    """
    if isinstance(drawn, dict):
        return {key: _texts(inner) for key, inner in drawn.items()}
    if isinstance(drawn, (list, tuple)):
        return [_texts(inner) for inner in drawn]
    return OTHER_TAGS.sub("&lt;", drawn) if isinstance(drawn, str) else drawn


def head(
    result: Result,
    title: str,
    headline: str,
    threads: int | None = None,
    samples: Mapping[str, Sequence[float]] | None = None,
    more: str = "",
) -> str:
    """The beginning of a page: when and where, the main finding, and what to know of the samples.

    samples: by contestant, in seconds. more: what else is said after the machine.
    """
    used = "" if threads is None else counted(threads, "thread")
    where = ", ".join(part for part in (result.moment, result.machine.name, used, more) if part)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(where)}.</p>",
        f'<p class="headline">{escape(headline)}</p>' if headline else "",
        items(warned(samples or {}, threads or 0, result.machine.idle_cores), "noticed"),
        folded("Samples that lie far from the rest", items(far_samples(samples or {}))),
    ]
    return "\n".join(part for part in parts if part)


def items(sentences: Sequence[str], style: str = "") -> str:
    """Sentences as a list; nothing without any."""
    if not sentences:
        return ""
    inner = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'<ul class="{style}">{inner}</ul>' if style else f"<ul>{inner}</ul>"


def folded(title: str, inner: str) -> str:
    """HTML that is shown when its title is chosen; nothing without any.

    >>> folded("<b>", "<p>text</p>"), folded("empty", "")
    ('<details><summary>&lt;b&gt;</summary><p>text</p></details>', '')
    """
    return f"<details><summary>{escape(title)}</summary>{inner}</details>" if inner else ""


def _policy(scripts: list[str]) -> str:
    """A policy that allows no request, no form, no other base and no script but these."""
    hashes = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    allowed = " ".join(f"'sha256-{h}'" for h in hashes)
    return (
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; "
        f"img-src data: blob:; script-src {allowed}"
    )


@cache
def _plotly() -> str:
    return (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def _part(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
