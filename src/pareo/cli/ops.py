"""`pareo ops`: single operators on every device and in the peers, each against its own limit."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from pareo.cli import ops_table
from pareo.cli.ceilings import measured
from pareo.device import Device, cores, names, why_unavailable
from pareo.errors import PareoError
from pareo.lab import records
from pareo.lab.counters import rung_of
from pareo.lab.ops.cases import PAPER, checked
from pareo.lab.ops.laboratory import READY, Laboratory
from pareo.lab.ops.peers import on_gpu
from pareo.lab.ops.sizes import sizes
from pareo.lab.ops.work import BACKWARD, FORWARD, Work

PEERS = ("numpy", "torch", "jax", "cupy")
DIRECTIONS = {"forward": [FORWARD], "backward": [BACKWARD], "both": [FORWARD, BACKWARD]}


def ops(
    operators: Annotated[
        str, typer.Option("--ops", help="Names, as in `pareo.op`: add,mul,conv. Or all.")
    ] = ",".join(PAPER),
    sizes_text: Annotated[
        str, typer.Option("--sizes", help="Bytes of all operands together, doubling.")
    ] = "2MB..256MB",
    devices: Annotated[
        str | None,
        typer.Option(help="pareo's, as in compiled,cuda.  [default: all here but sequential]"),
    ] = None,
    peers: Annotated[
        str, typer.Option(help=f"Of {', '.join(PEERS)}; none for nobody.")
    ] = "numpy,torch,jax",
    direction: Annotated[str, typer.Option(help="forward, backward or both.")] = "forward",
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads for everyone.  [default: all cores]")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.01, help="For the rounds of one operator at one size.")
    ] = 2.0,
    counters: Annotated[
        bool,
        typer.Option("--counters", help="Read hardware counters too: ncu or CUPTI, perf_event."),
    ] = False,
    cells: Annotated[
        bool, typer.Option("--cells", help="Show every figure of every cell.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write every sample, and where, to this file.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Keep the result for `pareo history`.")
    ] = False,
) -> None:
    """Time single operators, each against the roofline of this machine.

    Whose results do not agree with float64 gets no time. The exit status is 1 where one was
    refused or failed.
    """
    works = _works(operators, sizes_text, direction)
    chosen = _contestants(devices, peers)
    for path in (json_file, html):
        if path is not None and not path.absolute().parent.is_dir():
            raise PareoError(f"{path}: its folder is not there")
    count = threads or cores()
    limits = {}
    if not all(on_gpu(name) for name in chosen):
        limits["cpu"] = measured(Device("compiled", threads=count))
    if any(on_gpu(name) for name in chosen):
        limits["cuda"] = measured(Device("cuda"))
    rungs = {place: rung_of(place) for place in limits} if counters else {}
    with _live() as show:

        def watch(lab: Laboratory) -> None:
            show(lab)
            if json_file is not None and lab.doing.endswith(READY):
                _write(lab.result(), json_file)  # a run that is cut short leaves what it has

        result = Laboratory(works, chosen, limits, count, seconds, watch, rungs).run()
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)  # a file has no edge
    for part in ops_table.everything(result, cells):
        console.print(part)
    _keep(result, json_file, html, save)
    if any(row["status"] in ("refused", "failed") for row in result["rows"]):
        raise typer.Exit(1)


def _works(operators: str, sizes_text: str, direction: str) -> list[Work]:
    from pareo.lab.ops.cases import names as known

    if direction not in DIRECTIONS:
        raise PareoError(f"--direction expects one of {', '.join(DIRECTIONS)}; got {direction!r}")
    given = known() if operators == "all" else checked(operators.split(","))
    return [
        Work(name, way, nbytes)
        for name in given
        for way in DIRECTIONS[direction]
        for nbytes in sizes(sizes_text)
    ]


def _contestants(devices: str | None, peers: str) -> list[str]:
    """pareo's devices, and each peer on the CPU, on the GPU, or on both, where those are."""
    if devices is None:
        places = [name for name in names() if name != "sequential" and not why_unavailable(name)]
    else:
        places = [Device(name).name for name in devices.split(",")]
        for name in places:
            if reason := why_unavailable(name):
                raise PareoError(reason)
    given = [] if peers == "none" else peers.split(",")
    for name in given:
        if name not in PEERS:
            raise PareoError(f"--peers expects some of {', '.join(PEERS)}, or none; got {name!r}")
    found = [f"pareo-{name}" for name in places]
    for name in given:
        if name != "cupy" and any(place != "cuda" for place in places):
            found.append(name)
        if name != "numpy" and "cuda" in places:
            found.append("cupy" if name == "cupy" else f"{name}-cuda")
    return found


@contextmanager
def _live() -> Iterator[Callable[[Laboratory], None]]:
    """Shows on a terminal what is measured, and the figures so far."""
    if not sys.stderr.isatty():
        yield lambda lab: None
        return
    # Drawn between measurements only: a clock that moves would take time from whoever is running.
    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:
        yield lambda lab: live.update(ops_table.running(lab), refresh=True)


def _write(result: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(result, indent=1, allow_nan=False))


def _keep(result: dict[str, Any], json_file: Path | None, html: Path | None, save: bool) -> None:
    if json_file is not None:
        _write(result, json_file)
        print(f"result      {json_file}")
    if save:
        print(f"kept as     {records.save(result)}, see `pareo history`")
    if html is not None:
        from pareo.lab.report import ops as pages

        pages.write(result, html)
        print(f"report      {html.absolute()}")
