"""`pareo sweep`: time per image and memory by batch size, and the largest batch that fits."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Annotated

import typer

from pareo.cli import live, options
from pareo.cli.continued import run_to_end, show_parts
from pareo.cli.output import end, say_notes
from pareo.cli.tables import sweep as sweep_table
from pareo.device import PRECISIONS
from pareo.errors import PareoError, ShapeError
from pareo.lab.sweep.call import settings_for
from pareo.lab.sweep.engine import Sweep
from pareo.lab.sweep.result import SweepResult
from pareo.lab.sweep.settings import Settings


def sweep(
    network: options.AnyNetwork,
    batches: Annotated[
        str,
        typer.Option(help="Batch sizes: 1..512 doubles from 1 to 512; or a list such as 1,8,32."),
    ] = "1..512",
    contestants: Annotated[
        str | None,
        options.contestants("pareo-compiled,torch,jax", "pareo, torch, jax, tensorflow"),
    ] = None,
    precision: options.Precision = "float32",
    memory_limit: Annotated[
        str | None,
        typer.Option(help="Find the largest batch that fits in this much memory, such as 2GB."),
    ] = None,
    largest: Annotated[
        bool,
        typer.Option("--largest", help="Find the largest batch that fits in all the memory."),
    ] = False,
    within: Annotated[
        float,
        typer.Option(
            min=0, max=50, help="End the search for the largest batch within this many percent."
        ),
    ] = 0.0,
    data: Annotated[
        str | None, options.data("mnist, or synthetic images for networks of other sizes")
    ] = None,
    inputs: options.Input = None,
    epochs: options.Epochs = None,
    pixels: options.Pixels = None,
    seconds: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds for each batch size, after which no round starts."),
    ] = 60.0,
    patience: Annotated[
        float,
        typer.Option(min=1, help="Seconds to wait for a contestant, including its compilation."),
    ] = 600.0,
    interleave: Annotated[
        int, typer.Option(min=1, help="Batch sizes to measure at the same time, in turns.")
    ] = 1,
    threads: options.Threads = None,
    quick: Annotated[bool, options.quick("sweep")] = False,  # see options.QUICK
    json_file: options.JsonFile = None,
    html: options.Html = None,
    save: options.Save = False,
) -> None:
    """Measure time per image and memory of every contestant at every batch size.

    Each cell runs in its own process. To continue an interrupted sweep, run the same command again.
    The exit status is 1 if a cell was refused or failed, or if no contestant could run. Running out
    of memory is a result, not a failure.
    """
    options.check_choice("--precision", precision, PRECISIONS)
    options.check_writable(json_file, html)
    options.check_finite("--seconds", seconds)
    options.check_finite("--patience", patience)
    options.check_finite("--within", within)
    settings = settings_for(
        network, batches, options.named(contestants), precision, threads, pixels, data, epochs,
        memory_limit, seconds, patience, interleave, largest, options.shape(inputs), within,
    )  # fmt: skip
    with closing(_sweep_of(settings, pixels)) as under_way:
        say_notes(network, settings.task(1).notes)
        live.say_if_busy(settings.threads)
        result = run_to_end(
            under_way, _live(), _show, lambda result: any(cell.times for cell in result.cells),
            json_file, html, save,
        )  # fmt: skip
    if any(one.largest is None for one in result.limits):
        raise typer.Exit(1)
    end(result.cells)


def _sweep_of(settings: Settings, pixels: int | None) -> Sweep:
    """The sweep; an error about images that are too small names the option."""
    try:
        return Sweep(settings)
    except ShapeError as error:
        if pixels is None:
            raise
        raise PareoError(f"--pixels {pixels}: too small for {settings.network}: {error}") from None


def _show(result: SweepResult) -> None:
    show_parts([sweep_table.table(result), sweep_table.limits(result)], sweep_table.lines(result))


@contextmanager
def _live() -> Iterator[Callable[[Sweep], None]]:
    """On a terminal, the table as it grows; elsewhere, a line for each phase and finished cell."""
    if sys.stderr.isatty():
        with live.display(sweep_table.running, lambda sweep: sweep.doing) as show:
            yield show
        return
    printed, log = 0, live.Log()

    def show_finished(sweep: Sweep) -> None:
        nonlocal printed
        for key in sweep.finished[printed:]:
            printed += 1
            print(sweep_table.line(sweep.cells[key]), file=sys.stderr, flush=True)
        if not sweep.doing.endswith(": done"):
            log(sweep.doing)

    with log.alive():
        yield show_finished
