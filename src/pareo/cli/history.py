"""`pareo history`: the saved results, and what became faster or slower."""

import gc
import json
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pareo.cli import options
from pareo.cli.tables.narrow import TIGHT
from pareo.errors import PareoError
from pareo.lab.experiment import records, results
from pareo.lab.experiment.results import Result

LATEST = 40  # results that are listed
HEADS = ("", "when", "network", "batch", "precision", "fastest", "s/epoch")


def history(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every result, with its samples, as JSON.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help=f"List all results, not only the latest {LATEST}.")
    ] = False,
    steps: Annotated[
        bool, typer.Option("--steps", help="List when what became faster or slower, and whose.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with all lines over time to this file.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write all results to this file, one JSON object a line.")
    ] = None,
    import_from: Annotated[
        Path | None,
        typer.Option("--import", help="Add the results in such a file, of any machine."),
    ] = None,
) -> None:
    """List the results saved with --save, the latest last; or draw them over time."""
    if sum(bool(asked) for asked in (as_json, steps, html, export, import_from)) > 1:
        raise PareoError("history expects one of --json, --steps, --html, --export and --import")
    options.check_writable(html, export)
    if import_from is not None:
        from pareo.lab.history import lines_of_json

        added, known = lines_of_json.read(import_from, _best)
        print(f"{added:,} results added; {known:,} were here already")
    elif export is not None:
        from pareo.lab.history import lines_of_json

        print(f"{lines_of_json.write(export):,} results written to {export}")
    elif as_json:
        saved = records.everything()
        found = [{"number": number, **results.plain(result)} for number, result in saved]
        print(json.dumps(found, indent=1))
    elif not records.place().exists():
        place = escape(str(records.place()))
        Console().print(f"Nothing is saved in {place} yet.", soft_wrap=True)
    elif html is not None:
        _draw(html)
    elif steps:
        _list_steps()
    else:
        _list(every)


def _best(result: Result) -> tuple[str, str]:
    """What is best in a result; imported when a result is new, because it takes a while."""
    name, seconds = import_module("pareo.cli.tables.history").best(result)
    return str(name), str(seconds)


def _list(every: bool) -> None:
    from pareo.lab.history import index

    found, count = index.listed(_best, None if every else LATEST)
    table = Table(**TIGHT)
    for head in HEADS:
        right, long = head in ("", "batch", "s/epoch"), head in ("network", "fastest")
        table.add_column(head, justify="right" if right else "left", no_wrap=not long)
    for one in found:
        shown = (one.moment, one.network, one.batch, one.precision, one.best, one.seconds)
        table.add_row(str(one.number), *map(escape, shown))
    console = Console()
    if not found:
        console.print(f"Nothing is saved in {escape(str(records.place()))} yet.", soft_wrap=True)
        return
    console.print(table)
    if len(found) < count and not every:
        console.print(f"[dim]The latest {len(found)} of {count:,}; --all lists the others.[/]")
    console.print("[dim]pareo compare A B compares two races; pareo report A writes a report.[/]")


def _list_steps() -> None:
    from pareo.lab.history import groups, index, lines

    table = Table(**TIGHT)
    for head in ("from", "result", "change", "whose", "contestants", "why", "of"):
        table.add_column(
            head, no_wrap=head in ("from", "result", "whose", "contestants"), overflow="fold"
        )
    every = groups.every_group(lines.series(index.by_line(_best)))
    for one in reversed(every):
        names = "\n".join(one.changes)
        shown = (one.moment[:10], str(one.result), one.change, one.whose, names, one.because)
        table.add_row(*map(escape, (*shown, one.title)))
    console = Console()
    console.print(table if every else "No step was found: nothing became faster or slower.")


def _draw(html: Path) -> None:
    from pareo.lab.atomic_write import write_whole
    from pareo.lab.history import index, lines
    from pareo.lab.report import history as pages

    gc.disable()  # there is no garbage in hundreds of thousands of points, only to look at
    try:
        count = index.listed(_best, 0)[1]
        write_whole(html, pages.html(lines.series(index.by_line(_best)), count))
    finally:
        gc.enable()
    print(f"report      {html.absolute()}")
