"""`pareo history`: the saved results."""

import json
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pareo.lab.experiment import records
from pareo.lab.experiment.statistics import interval
from pareo.lab.sweep.advice import answer


def history(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every result, with its samples, as JSON.")
    ] = False,
) -> None:
    """List the results saved with --save, the latest last."""
    saved = records.everything()
    if as_json:
        print(json.dumps([{"number": number, **result} for number, result in saved], indent=1))
        return
    console = Console()
    if not saved:
        console.print(f"Nothing is saved in {escape(str(records.place()))} yet.", soft_wrap=True)
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in ("", "when", "network", "batch", "precision", "fastest", "s/epoch"):
        right, long = head in ("", "batch", "s/epoch"), head in ("network", "fastest")
        table.add_column(head, justify="right" if right else "left", no_wrap=not long)
    for number, result in saved:
        name, seconds = _fastest(result)
        batch = f"{result['batch']:g}" if "batch" in result else result["kind"]
        when, precision = result["when"][:16].replace("T", " "), result.get("precision", "")
        shown = (when, result["network"], batch, precision, name)
        table.add_row(str(number), *map(escape, shown), seconds)
    console.print(table)
    console.print("[dim]pareo compare A B compares two races; pareo report A writes a report.[/]")


def _fastest(result: dict[str, Any]) -> tuple[str, str]:
    if result["kind"] == "sweep":  # its times are per image, at many batch sizes
        best = answer(result)
        return (f"{best.contestant}, batch {best.batch}" if best else "nothing was timed"), ""
    if result["kind"] == "ops":  # which has no single fastest contestant
        return f"{sum(bool(row['hot']) for row in result['rows'])} cells timed", ""
    if result["kind"] == "tune":  # whose best is the most accurate trial
        for trial in result["trials"]:
            if trial["number"] == result["best"]:
                return f"trial {trial['number']}, {trial['accuracy']:.2%}", ""
        return "no trial finished", ""
    medians = _medians(result)
    if not medians:
        return "nothing was timed", ""
    name = min(medians, key=medians.__getitem__)
    return name, f"{medians[name]:.4g}"


def _medians(result: dict[str, Any]) -> dict[str, float]:
    """Median seconds of an epoch by contestant."""
    rows = result["rows"]
    if result["kind"] in ("parallel", "parallel-papers"):  # where several networks share the time
        return {
            f"{row['contestant']}: {row['name']} ({row['workers']})": row["seconds"]
            for row in rows
            if row["train"]
        }
    return {row["contestant"]: interval(row["samples"])[1] for row in rows if row["samples"]}
