"""`pareo networks`: the networks that commands know by name, and what one image costs."""

import json
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from pareo.cli import options
from pareo.nn import networks as known
from pareo.program.text import amount
from pareo.training.step import step_program


def networks(
    as_json: options.PrintJson = False,
) -> None:
    """List the networks with their input, parameters and FLOPs for one image."""
    rows = [_facts(name) for name in known.NETWORKS]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(title="Networks", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in ("name", "input", "classes", "parameters", "forward", "training"):
        table.add_column(head, justify="left" if head == "name" else "right", no_wrap=True)
    for row in rows:
        table.add_row(
            row["name"],
            "x".join(map(str, row["input"])),
            str(row["classes"]),
            f"{row['parameters']:,}",
            amount(row["forward_flops"], "FLOP"),
            amount(row["training_flops"], "FLOP"),
        )
    console = Console()
    console.print(table)
    console.print("[dim]forward, training: for one image.[/]")


def _facts(name: str) -> dict[str, Any]:
    network = known.by_name(name)
    return {
        "name": name,
        "input": network.inputs,
        "classes": network.classes,
        "parameters": network.count(),
        "forward_flops": network.program().flops,
        "training_flops": step_program(network, batch=1).flops,
    }
