"""The tables of sweeps that lie in one file: pareo's time by batch size, and its peers beside it.

    python -m benchmarks.sweeps docs/results/sweep-h200.jsonl
    python -m benchmarks.sweeps docs/results/sweep-h200.jsonl --network googlenet --precision tf32 \
        --html googlenet-tf32.html

The file has one sweep a line, as `pareo history --export` writes it. The time of a contestant is
that of the latest sweep that has its cell; it is compared with pareo's in the same sweep.
"""

from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from benchmarks.tables import Table
from pareo.cli import run
from pareo.cli.output import write_report
from pareo.cli.tables.sweep import megabytes
from pareo.errors import DataError
from pareo.lab.formatting import digits
from pareo.lab.history.lines_of_json import results_in
from pareo.lab.sweep.join import together
from pareo.lab.sweep.result import Cell, SweepResult

Work = tuple[str, str]  # network and precision


def by_work(file: Path) -> dict[Work, SweepResult]:
    """The sweeps of each network and precision, joined."""
    found: dict[Work, dict[str, SweepResult]] = {}
    for number, result in results_in(file):
        if not isinstance(result, SweepResult):
            raise DataError(f"{file}, line {number}: expected a sweep; got a {result.kind}")
        work = result.network, result.precision
        found.setdefault(work, {})[f"{file}, line {number}"] = result
    return {work: together(sweeps) for work, sweeps in found.items()}


def ratio(joined: SweepResult, cell: Cell) -> float | None:
    """The time of a cell over pareo's at the same batch size in the same sweep."""
    ours = [
        one.median
        for one in joined.cells
        if one.sweep == cell.sweep and one.batch == cell.batch and one.ours and one.times
    ]
    return cell.median / ours[0] if ours else None


def peers(joined: SweepResult) -> list[str]:
    """The other contestants, the fastest first."""
    shares: dict[str, list[float]] = {}
    for cell in joined.latest:
        share = None if cell.ours or not cell.times else ratio(joined, cell)
        if share is not None:
            shares.setdefault(cell.contestant, []).append(share)
    return sorted(shares, key=lambda name: median(shares[name]))


def table(joined: SweepResult) -> Table:
    """A row for each batch size."""
    others = peers(joined)
    cells = {cell.key: cell for cell in joined.latest if cell.times}
    rows = []
    for ours in sorted((c for c in cells.values() if c.ours), key=lambda cell: cell.batch):
        step = ours.median * ours.batch
        least = joined.floor(ours.place, ours.batch)
        share = f"{least / step:.0%}" if least else "unknown"
        beside = [_beside(joined, cells.get((name, ours.batch))) for name in others]
        row = [str(ours.batch), digits(ours.median * 1e3), digits(step * 1e3), share, *beside]
        rows.append(row)
    heads = ["batch", "pareo, ms per image", "ms per batch", "of the floor"]
    return Table(
        [*heads, *(f"`{name}`" for name in others)],
        [True] * (len(heads) + len(others)),
        rows,
        f"{joined.network}, {joined.precision}",
    )


def _beside(joined: SweepResult, cell: Cell | None) -> str:
    if cell is None:
        return ""
    share = ratio(joined, cell)
    beside = "" if share is None else f" ({share:.2f})"
    return digits(cell.median * cell.batch * 1e3) + beside


def ranges(every: dict[Work, SweepResult]) -> Table:
    """How many times as fast pareo is, from the least to the most of all cells of all sweeps."""
    names = list(dict.fromkeys(name for joined in every.values() for name in peers(joined)))
    rows = []
    for name in names:
        row = [f"`{name}`"]
        for joined in every.values():
            cells = [c for c in joined.cells if c.contestant == name and c.times]
            found = [share for cell in cells if (share := ratio(joined, cell)) is not None]
            row.append(f"{min(found):.3g} to {max(found):.3g}" if found else "")
        rows.append(row)
    heads = [f"{network}, {precision}" for network, precision in every]
    return Table(["times as fast as", *heads], [False] + [True] * len(heads), rows)


def limits(joined: SweepResult) -> Table:
    """The largest batch of each contestant under a limit of memory."""
    heads = ["contestant", "under MB", "largest batch", "used MB there", "predicted", "probes"]
    rows = [
        [
            f"`{one.contestant}`",
            megabytes(one.limit),
            one.words,
            megabytes(one.used),
            "" if one.predicted is None else str(one.predicted),
            str(len(one.probes)),
        ]
        for one in sorted(joined.limits, key=lambda one: -(one.largest or 0))
    ]
    right = [False] + [True] * (len(heads) - 1)
    return Table(heads, right, rows, f"{joined.network}, {joined.precision}: the largest batch")


def main(
    file: Annotated[Path, typer.Argument(help="Sweeps, one JSON object a line.")],
    network: Annotated[str, typer.Option(help="Only this network.")] = "",
    precision: Annotated[str, typer.Option(help="Only this precision.")] = "",
    html: Annotated[
        Path | None, typer.Option(help="Write the report of one network and precision.")
    ] = None,
) -> None:
    """Print the tables of sweeps, or write their report."""
    every = {
        work: joined
        for work, joined in by_work(file).items()
        if network in ("", work[0]) and precision in ("", work[1])
    }
    if html is not None:
        if len(every) != 1:
            raise DataError(f"--html expects one network and precision; {file} has {len(every)}")
        print(write_report(next(iter(every.values())), html))
        return
    tables = [ranges(every), *map(table, every.values())]
    tables += [limits(joined) for joined in every.values() if joined.limits]
    print("\n".join(one.markdown() for one in tables))


if __name__ == "__main__":
    run(lambda: typer.run(main))
