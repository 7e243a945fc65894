"""`pareo sweep`: time per image and memory by batch size, and the largest batch that fits."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Annotated

import typer

from pareo.cli import live, options
from pareo.cli.output import end, finish, not_existing, outputs
from pareo.cli.tables import sweep as sweep_table
from pareo.device import PRECISIONS, cores
from pareo.errors import PareoError, ShapeError
from pareo.lab.contestants.registry import chosen
from pareo.lab.experiment.tasks import LARGE, task_for
from pareo.lab.machine import memory
from pareo.lab.sweep.admission import GPU_TURN
from pareo.lab.sweep.engine import Sweep
from pareo.lab.sweep.journal import NotWritten
from pareo.lab.sweep.result import SweepResult
from pareo.lab.sweep.settings import Settings, batch_sizes
from pareo.machine import gpus
from pareo.nn.layers import Shape
from pareo.training.own import find, is_own

USUAL = ("pareo-compiled", "torch", "torch-onednn-off", "jax", "tensorflow")
USUAL_ON_GPU = ("pareo-cuda", "torch-cuda", "torch-cudagraph", "jax-cuda")
TURN = 0.5  # seconds of a sample


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
    data: Annotated[
        str | None, options.data("mnist, or synthetic images for networks of other sizes")
    ] = None,
    inputs: options.Input = None,
    epochs: options.Epochs = None,
    pixels: Annotated[
        int | None,
        typer.Option(
            min=16,
            help="Width and height of synthetic images, for a network that takes any size.",
            show_default="the network's own",
        ),
    ] = None,
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
    _check_pixels(pixels, network, data)
    names, shape = _names(contestants), options.shape(inputs)
    size = pixels or _inputs(network, data, shape)[-1]
    settings = Settings(
        network, batch_sizes(batches), names, precision, threads or cores(), size, data,
        epochs, _limit(memory_limit, names), GPU_TURN if _on_gpu(names) else TURN, seconds,
        patience, interleave, largest, shape,
    )  # fmt: skip
    with closing(_sweep_of(settings, pixels)) as under_way:
        result, ended = _run(under_way)
        timed = any(cell.times for cell in result.cells)
        if ended:
            json_file, html = not_existing(json_file, html) if timed else (None, None)
        wanted = outputs(result, json_file, html, save and not ended)
        written = finish(lambda: _show(result), wanted)
        if isinstance(ended, KeyboardInterrupt):
            print("Interrupted: run the same command again to continue.")
            raise typer.Exit(130)
        if ended:
            raise ended
        if not written:  # the journal stays: the same command will write it again
            raise typer.Exit(1)
        under_way.finish()
    if any(one.largest is None for one in result.limits):
        raise typer.Exit(1)
    end(result.cells)


def _inputs(network: str, data: str | None, shape: Shape | None) -> Shape:
    """The shape of one input."""
    if is_own(network):
        return task_for(network, 1, 1, source=data, shape=shape).network.inputs
    return find(network, shape).network.inputs


def _check_pixels(pixels: int | None, network: str, data: str | None) -> None:
    if pixels is not None and (data is not None or network not in LARGE):
        got = network if data is None else f"--data {data}"
        known = ", ".join(LARGE)
        raise PareoError(f"--pixels expects synthetic images for one of {known}; got {got}")


def _sweep_of(settings: Settings, pixels: int | None) -> Sweep:
    """The sweep; an error about images that are too small names the option."""
    try:
        return Sweep(settings)
    except ShapeError as error:
        if pixels is None:
            raise
        raise PareoError(f"--pixels {pixels}: too small for {settings.network}: {error}") from None


def _run(under_way: Sweep) -> tuple[SweepResult, BaseException | None]:
    """The result, or the finished part of it, and what interrupted it."""
    try:
        with _live() as watch:
            return under_way.run(watch), None
    except (KeyboardInterrupt, NotWritten) as ended:
        return under_way.result(), ended


def _show(result: SweepResult) -> None:
    console = live.console(170)
    console.print(sweep_table.table(result))
    largest = sweep_table.limits(result)
    if largest is not None:
        console.print(largest)
    for line in sweep_table.lines(result):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _names(contestants: str | None) -> tuple[str, ...]:
    """The contestants; each setting of a framework is one, as the best one depends on the batch."""
    usual = USUAL_ON_GPU if gpus() else USUAL
    found: list[str] = []
    for name, one in chosen(options.named(contestants) or list(usual)).items():
        found += [*(one.tries or (name,))]
    return tuple(dict.fromkeys(found))


def _on_gpu(names: tuple[str, ...]) -> bool:
    return all(one.gpu for one in chosen(list(names)).values())


def _limit(text: str | None, names: tuple[str, ...]) -> int | None:
    """The limit in bytes, at most what is free wherever a contestant computes."""
    if text is None:
        return None
    try:
        asked = memory.parsed(text)
    except PareoError as error:
        raise PareoError(f"--memory-limit: {error}") from None
    on_gpu = {one.gpu for one in chosen(list(names)).values()}
    free = [memory.free()] if False in on_gpu else []
    free += [card.free for card in gpus()[:1]] if True in on_gpu else []
    least = min((size for size in free if size), default=None)
    if least is not None and asked > least:
        raise PareoError(
            f"--memory-limit expects at most the free memory, {least / 1e9:.1f} GB; got {text}"
        )
    return asked


@contextmanager
def _live() -> Iterator[Callable[[Sweep], None]]:
    """On a terminal, the table as it grows; elsewhere, a line for each finished cell."""
    if sys.stderr.isatty():
        with live.display(sweep_table.running) as show:
            yield show
        return
    printed = 0

    def show_finished(sweep: Sweep) -> None:
        nonlocal printed
        for key in sweep.finished[printed:]:
            printed += 1
            print(sweep_table.line(sweep.cells[key]), file=sys.stderr, flush=True)

    yield show_finished
