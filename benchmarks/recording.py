"""Run a module as `python -m` does, and keep the tables that it prints.

`python -m benchmarks.recording FILE MODULE ARGUMENTS...` writes them to FILE as JSON. They are
taken from Rich before it draws them, so no cell is wrapped or cut.
"""

import json
import runpy
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.table import Table as Drawn

from benchmarks.tables import Table, drawn


def record(found: list[Table]) -> None:
    """Add to `found` every table that is drawn from now on, once."""
    draw = Drawn.__rich_console__

    def drawing(table: Drawn, console: Console, options: ConsoleOptions) -> Any:
        one = drawn(table)
        if one is not None and one not in found:
            found.append(one)
        yield from draw(table, console, options)

    setattr(Drawn, "__rich_console__", drawing)  # noqa: B010


def main() -> None:
    """Run the module, and write its tables even if its exit status is not 0."""
    file, module, *words = sys.argv[1:]
    found: list[Table] = []
    record(found)
    sys.argv = [module, *words]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        Path(file).write_text(json.dumps([asdict(table) for table in found]), encoding="utf-8")


if __name__ == "__main__":
    main()
