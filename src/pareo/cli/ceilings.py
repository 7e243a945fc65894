"""`pareo ceilings`: the limits of this machine, measured once and saved."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pareo.cli import live, options
from pareo.cli.output import Output, finish
from pareo.device import Device, cores, why_unavailable
from pareo.errors import PareoError
from pareo.lab.atomic_write import write_whole
from pareo.lab.experiment import results, statistics
from pareo.lab.machine.ceilings import Ceilings, Limit, ceilings_of
from pareo.lab.machine.ceilings.measuring import Watch, limits
from pareo.lab.ops.sizes import shown

BAR = 30
STREAMS = ("copy", "triad", "read")


def ceilings(
    again: Annotated[
        bool, typer.Option("--again", help="Measure again; takes about a minute.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="Only this one: cpu or cuda.", show_default="all available")
    ] = None,
    threads: options.Threads = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure only the peak and the bandwidth, in seconds.")
    ] = False,
    json_file: options.JsonFile = None,
    html: options.Html = None,
) -> None:
    """Show the limits of this machine: matrix products, bandwidth of each level, overheads.

    They are measured once for each set of library versions, and saved. Every "share of the limit"
    that pareo reports refers to them. What changed by more than its interval since the last
    measurement of this machine is listed below the tables.
    """
    options.check_writable(json_file, html)
    devices = _devices(device, threads or cores())
    if quick and (json_file or html):
        raise PareoError("--quick is not kept: it has no --json and no --html")
    live.say_if_busy(threads or cores())
    if quick:
        for each in devices:
            _say_limits(each)
        return
    found = [measured(each, again) for each in devices]
    wanted: list[Output] = []
    if json_file is not None:
        wanted.append(partial(_written, found, json_file))
    if html is not None:
        wanted.append(partial(_drawn, found, html))

    def show() -> None:
        console = live.console(120)
        for one in found:
            console.print(picture(one))
            for line in since_last_time(one):
                console.print(line, markup=False, highlight=False, soft_wrap=True)

    if not finish(show, wanted):
        raise typer.Exit(1)


def _say_limits(device: Device) -> None:
    """Print the two limits that floors are computed from, measured briefly."""
    found = limits(device, again=True)
    print(f"{device}, {device.threads} threads: {found.peak.value / 1e9:,.3g} GFLOP/s in a large")
    print(f"matrix product, {found.bandwidth.value / 1e9:,.3g} GB/s in a large copy; not kept")


def _written(found: list[Ceilings], file: Path) -> str:
    write_whole(file, results.to_json(found))
    return f"result      {file}"


def _drawn(found: list[Ceilings], file: Path) -> str:
    from pareo.lab.report import ceilings as pages

    pages.write(found, file)
    return f"report      {file.absolute()}"


def _devices(only: str | None, threads: int) -> list[Device]:
    if only not in (None, "cpu", "cuda"):
        raise PareoError(f"--device expects cpu or cuda; got {only!r}")
    reason = why_unavailable("cuda")
    if only == "cuda" and reason:
        raise PareoError(reason)
    found = [] if only == "cuda" else [Device("compiled", threads=threads)]
    return found + ([Device("cuda")] if only != "cpu" and not reason else [])


def measured(device: Device, again: bool = False) -> Ceilings:
    """The ceilings of a device, with a bar while they are measured."""
    name = str(device) if device.name == "cuda" else "this processor"
    with _bar(f"measuring {name}, once") as watch:
        return ceilings_of(device, again, watch)


@contextmanager
def _bar(title: str) -> Iterator[Watch]:
    """A progress bar on a terminal, drawn between measurements only; lines elsewhere."""
    if not sys.stderr.isatty():
        log = live.Log()
        yield lambda done, of, what: log(f"{title}: {done} of {of} measurements")
        return
    columns = (TextColumn(title), BarColumn(), TextColumn("{task.description}"))
    progress = Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True,
        auto_refresh=False,
    )  # fmt: skip
    line = progress.add_task("")

    def watch(done: int, of: int, what: str) -> None:
        if done == 0:
            progress.start()
        progress.update(line, completed=done, total=of, description=escape(what), refresh=True)

    try:
        yield watch
    finally:
        progress.stop()


def picture(found: Ceilings) -> Group:
    """Tables of the hierarchy, from arithmetic to memory, and of the overheads of calls."""
    counts = sorted({1, found.threads})
    when = found.when[:16].replace("T", " ")
    parts = [_products(found, counts, f"{found.name}, measured {when}")]
    parts += [_hierarchy(found, count) for count in counts]
    lines = [f"Data sheet: {found.datasheet.source}."]
    if found.busy:
        lines += statistics.noticed({}, found.threads, found.idle_cores)
    return Group(*parts, _overheads(found), *map(escape, lines))


def _products(found: Ceilings, counts: list[int], title: str) -> Table:
    table = Table(title=escape(title), title_justify="left")
    heads = ("matrix product", "GFLOP/s", "interval", "reached by", "data sheet")
    for head in heads:
        table.add_column(head, justify="right" if head in ("GFLOP/s", "interval") else "left")
    for dtype in dict.fromkeys(p.name for p in found.samples if p.kind == "product"):
        for count in counts:
            peak = found.peak(dtype, count)
            sheet = found.datasheet.flops.get(dtype) if count == found.threads else None
            specified = (
                f"{sheet / 1e9:,.0f} ({peak.value / sheet:.0%} of it)" if sheet else "unknown"
            )
            name = _with_threads(found, dtype, count)
            table.add_row(name, *_rate(peak), escape(peak.how), specified)
    return table


def _hierarchy(found: Ceilings, count: int) -> Table:
    """A row for each level, with a bar for the bandwidth of its copy."""
    title = _with_threads(found, "bandwidth in GB/s, read and written", count)
    table = Table(title=title, title_justify="left")
    for head in ("level", "size", "stream of", *STREAMS, "interval of the copy", ""):
        left = head in ("level", "")
        table.add_column(head, justify="left" if left else "right")
    levels = found.hierarchy(count)
    fastest = max((found.stream("copy", nbytes, count).value for *_, nbytes in levels), default=1)
    for name, size, nbytes in levels:
        rates = [found.stream(stream, nbytes, count) for stream in STREAMS]
        bar = "█" * max(1, round(BAR * rates[0].value / fastest))
        sheet = found.datasheet.bandwidth if name == "memory" else None
        note = f" data sheet {sheet / 1e9:,.0f}" if sheet else ""
        table.add_row(
            name,
            shown(size) if size else "",
            shown(nbytes),
            *(_rate(rate)[0] for rate in rates),
            _rate(rates[0])[1],
            f"[cyan]{bar}[/]{note}",
        )
    return table


def _overheads(found: Ceilings) -> Table:
    table = Table(title="overhead of a call", title_justify="left")
    for head in ("call", "us", "interval"):
        table.add_column(head, justify="left" if head == "call" else "right")
    for name, limit in found.overheads():
        low, middle, high = (f"{s * 1e6:.3g}" for s in (limit.low, limit.value, limit.high))
        table.add_row(escape(name), middle, f"{low} to {high}")
    return table


def _with_threads(found: Ceilings, what: str, count: int) -> str:
    if found.device != "cpu":
        return what
    return f"{what}, {count} thread{'' if count == 1 else 's'}"


def _rate(limit: Limit) -> tuple[str, str]:
    """A rate and its interval in billions.

    >>> _rate(Limit(73.81e9, 73.4e9, 73.81e9, ""))
    ('73.8', '73.4 to 73.8')
    """
    low, best, high = (_number(value / 1e9) for value in (limit.low, limit.value, limit.high))
    return best, f"{low} to {high}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def since_last_time(found: Ceilings) -> list[str]:
    """What changed by more than its interval since this machine was measured before."""
    from pareo.lab.machine.ceilings.changes import changes, earlier

    last = earlier(found)
    return [] if last is None else changes(last, found)
