"""`pareo ops`: single operators on every device and in other frameworks, beside their limits."""

from contextlib import suppress
from typing import Annotated

import typer

from pareo.cli import live, options
from pareo.cli.ceilings import measured
from pareo.cli.output import end, finish, not_existing, outputs, write_json
from pareo.cli.tables import ops as ops_table
from pareo.device import Device, cores, names, why_unavailable
from pareo.errors import PareoError
from pareo.lab.machine.ceilings import Ceilings
from pareo.lab.machine.places import CPU, GPU, Place
from pareo.lab.ops.cases import PAPER, checked
from pareo.lab.ops.counters import rung_of
from pareo.lab.ops.engine import COUNTERS, READY, Benchmark
from pareo.lab.ops.peers import place_of
from pareo.lab.ops.sizes import sizes
from pareo.lab.ops.work import BACKWARD, FORWARD, Direction, Work

PEERS = ("numpy", "torch", "jax", "pytensor", "tinygrad", "cupy")
ON_CPU_ONLY = ("numpy", "pytensor", "tinygrad")
DIRECTIONS: dict[str, list[Direction]] = {
    "forward": [FORWARD],
    "backward": [BACKWARD],
    "both": [FORWARD, BACKWARD],
}


def ops(
    operators: Annotated[
        str, typer.Option("--ops", help="Operators of `pareo.op` separated by commas, or all.")
    ] = ",".join(PAPER),
    sizes_text: Annotated[
        str,
        typer.Option(
            "--sizes", help="Bytes of all operands together: 2MB..256MB doubles; or a list."
        ),
    ] = "2MB..256MB",
    devices: Annotated[
        str | None,
        typer.Option(
            help="Devices of pareo, as in compiled,cuda.", show_default="all but sequential"
        ),
    ] = None,
    peers: Annotated[
        str, typer.Option(help=f"Frameworks to compare with: some of {', '.join(PEERS)}; or none.")
    ] = "numpy,torch,jax",
    direction: Annotated[
        str, typer.Option(help="Pass to time: forward, backward or both.")
    ] = "forward",
    threads: options.Threads = None,
    seconds: Annotated[
        float,
        typer.Option(
            min=0.01, help="Seconds for each operator and size, after which no round starts."
        ),
    ] = 2.0,
    counters: Annotated[
        bool,
        typer.Option("--counters", help="Also read hardware counters: ncu, CUPTI or perf_event."),
    ] = False,
    cells: Annotated[bool, typer.Option("--cells", help="Show all figures of every cell.")] = False,
    quick: Annotated[bool, options.quick("ops")] = False,  # see options.QUICK
    json_file: options.JsonFile = None,
    html: options.Html = None,
    save: options.Save = False,
) -> None:
    """Time single operators, and compare them with the roofline of this machine.

    Only contestants whose results match float64 are timed. The exit status is 1 if one was refused
    or failed.
    """
    works = _works(operators, sizes_text, direction)
    chosen = _contestants(devices, peers)
    options.check_writable(json_file, html)
    options.check_finite("--seconds", seconds)
    count = threads or cores()
    live.say_if_busy(count)
    places = {place_of(name) for name in chosen}
    limits: dict[Place, Ceilings] = {}
    if CPU in places:
        limits[CPU] = measured(Device("compiled", threads=count))
    if GPU in places:
        limits[GPU] = measured(Device("cuda"))
    rungs = {place: rung_of(place) for place in limits} if counters else {}
    interrupted = False
    with live.display(ops_table.running, ops_table.line) as show:

        def watch(benchmark: Benchmark) -> None:
            show(benchmark)
            if json_file is not None and benchmark.doing.endswith((READY, COUNTERS)):
                # So that an interrupted run keeps its samples; `finish` reports errors.
                with suppress(PareoError):
                    write_json(benchmark.result(), json_file)

        under_way = Benchmark(works, chosen, limits, count, seconds, watch, rungs)
        try:
            result = under_way.run()
        except KeyboardInterrupt:
            result, interrupted = under_way.result(), True
    if interrupted:
        html = not_existing(html)[0] if any(cell.hot for cell in result.rows) else None

    def shown() -> None:
        console = live.console(160)
        for part in ops_table.everything(result, cells):
            console.print(part)

    if interrupted:
        finish(shown, outputs(result, None, html, False))
        print("Interrupted: this is what there was by then.")
        raise typer.Exit(130)
    end(result.rows, finish(shown, outputs(result, json_file, html, save)))


def _works(operators: str, sizes_text: str, direction: str) -> list[Work]:
    from pareo.lab.ops.cases import names as known

    options.check_choice("--direction", direction, DIRECTIONS)
    given = known() if operators == "all" else checked(operators.split(","))
    return [
        Work(name, way, nbytes)
        for name in given
        for way in DIRECTIONS[direction]
        for nbytes in sizes(sizes_text)
    ]


def _contestants(devices: str | None, peers: str) -> list[str]:
    """The devices of pareo, and each peer on the CPU, on the GPU, or on both."""
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
        if name not in ON_CPU_ONLY and "cuda" in places:
            found.append("cupy" if name == "cupy" else f"{name}-cuda")
    return found
