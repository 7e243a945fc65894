"""`pareo contestants`: everyone that a race, a sweep or an arena can name, and what each needs."""

import json
from typing import Any

from rich.markup import escape

from pareo.cli import live, options
from pareo.cli.tables.narrow import TIGHT, Figures
from pareo.lab.contestants import Contestant
from pareo.lab.contestants.registry import known

# Options of adapters, as their frameworks call them
WORDS = {
    "benchmark": "cuDNN benchmark", "compiled": "torch.compile", "cudnn": "cuDNN",
    "gpu": "the GPU", "graph": "a CUDA graph", "last": "channels last", "onednn": "oneDNN",
    "scan": "lax.scan", "xla": "XLA",
}  # fmt: skip


def contestants(as_json: options.PrintJson = False) -> None:
    """List the contestants of races, what each is, and whether it can run here."""
    rows = [_facts(name, one) for name, one in known().items()]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    heads = ("contestant", "what it is", "here")
    table = Figures(*heads, title="Contestants", left=heads, whole=("contestant",), **TIGHT)
    for row in rows:
        table.add_row(row["name"], row["what"], escape(row["missing"] or "ready"))
    console = live.console(100)
    console.print(table)
    console.print("[dim]pareo race --contestants NAME,NAME races some of them.[/]")


def _facts(name: str, one: Contestant) -> dict[str, Any]:
    return {
        "name": name,
        "what": what(one),
        "needs": one.needs,
        "gpu": one.gpu,
        "missing": one.missing(),
    }


def what(one: Contestant) -> str:
    """What a contestant is, in a few words.

    >>> what(known()["torch-channels-last"]), what(known()["jax-best"])
    ('torch with channels last', 'the fastest of jax, jax-scan, jax-channels-last')
    """
    if one.tries:
        return f"the fastest of {', '.join(one.tries)}"
    device = one.options.get("device")
    if device is not None:
        return f"pareo's device {device}"
    name = one.needs or one.module
    options = [
        WORDS.get(key, key) if value is True else f"{WORDS.get(key, key)} {value or 'off'}"
        for key, value in one.options.items()
    ]
    return f"{name} with {', '.join(options)}" if options else f"{name}, as it is by default"
