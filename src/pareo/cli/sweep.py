"""`pareo sweep`: time per image and memory against the batch size, and where the limit lies."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Any

import typer

from pareo.cli import live, options
from pareo.cli.output import end, finish, left_alone, outputs
from pareo.cli.tables import sweep as sweep_table
from pareo.device import PRECISIONS, cores
from pareo.errors import PareoError, ShapeError
from pareo.lab.contestants.registry import chosen
from pareo.lab.machine import memory
from pareo.lab.race.engine import LARGE
from pareo.lab.sweep.admission import CARD_TURN
from pareo.lab.sweep.engine import Sweep
from pareo.lab.sweep.journal import NotWritten
from pareo.lab.sweep.settings import Settings, batch_sizes
from pareo.machine import gpus

USUAL = ("pareo-compiled", "torch", "torch-onednn-off", "jax", "tensorflow")
USUAL_ON_GPU = ("pareo-cuda", "torch-cuda", "torch-cudagraph", "jax-cuda")
TURN = 0.5  # seconds of a sample
PIXELS = 224


def sweep(
    network: options.Network,
    batches: Annotated[
        str, typer.Option(help="Doubled from one size up to another, or sizes as in 1,8,32.")
    ] = "1..512",
    contestants: Annotated[
        str | None,
        typer.Option(help="Names, as in pareo-compiled,torch,jax.", show_default="the usual ones"),
    ] = None,
    precision: options.Precision = "float32",
    memory_limit: Annotated[
        str | None,
        typer.Option(help="Search the largest batch of each under so much memory: 2GB."),
    ] = None,
    largest: Annotated[
        bool,
        typer.Option("--largest", help="Search it in all the memory there is, of a GPU its own."),
    ] = False,
    data: Annotated[
        str | None, typer.Option(help="A folder of images, say.", show_default="made-up images")
    ] = None,
    epochs: options.Epochs = None,
    size: Annotated[
        int | None,
        typer.Option(
            min=16, help="Pixels of made-up images for AlexNet and GoogLeNet.", show_default="224"
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="For the rounds of one batch size, about.")
    ] = 60.0,
    patience: Annotated[
        float, typer.Option(min=1, help="Seconds that one answer may take, compiling included.")
    ] = 600.0,
    abreast: Annotated[
        int, typer.Option(min=1, help="Batch sizes that stand at once and take turns.")
    ] = 1,
    threads: options.Threads = None,
    json_file: options.JsonFile = None,
    html: options.Html = None,
    save: options.Save = False,
) -> None:
    """Time every contestant at every batch size, each cell in its own process, with its memory.

    A sweep that was interrupted goes on where it stopped when the same command is given again. The
    exit status is 1 where a cell was refused or failed, or nobody could be tried; too little memory
    is a result.
    """
    options.check_choice("--precision", precision, PRECISIONS)
    options.check_folders(json_file, html)
    options.check_finite("--seconds", seconds)
    options.check_finite("--patience", patience)
    _check_size(size, network, data)
    names = _names(contestants)
    settings = Settings(
        network, batch_sizes(batches), names, precision, threads or cores(), size or PIXELS, data,
        epochs, _limit(memory_limit, names), CARD_TURN if _on_card(names) else TURN, seconds,
        patience, abreast, largest,
    )  # fmt: skip
    with closing(_begun(settings, size)) as under_way:
        result, ended = _run(under_way)
        timed = any(cell["seconds_per_batch"] for cell in result["cells"])
        if ended:
            json_file, html = left_alone(json_file, html) if timed else (None, None)
        wanted = outputs(result, json_file, html, save and not ended)
        written = finish(lambda: _show(result), wanted)
        if isinstance(ended, KeyboardInterrupt):
            print("Interrupted: the same command goes on where this one stopped.")
            raise typer.Exit(130)
        if ended:
            raise ended
        if not written:  # the journal stays: the same command tries to write it again
            raise typer.Exit(1)
        under_way.finish()
    if any(one["largest"] is None for one in result["limits"]):
        raise typer.Exit(1)
    end(result["cells"])


def _check_size(size: int | None, network: str, data: str | None) -> None:
    if size is not None and (data is not None or network not in LARGE):
        got = network if data is None else f"images of {data}, which have a size"
        raise PareoError(f"--size expects made-up images for one of {', '.join(LARGE)}; got {got}")


def _begun(settings: Settings, size: int | None) -> Sweep:
    """The sweep; what does not fit into images of a size is told with that size."""
    try:
        return Sweep(settings)
    except ShapeError as error:
        if size is None:
            raise
        raise PareoError(f"--size {size}: too small for {settings.network}: {error}") from None


def _run(under_way: Sweep) -> tuple[dict[str, Any], BaseException | None]:
    """The result, or what there is of it, and what ended it before its time."""
    try:
        with _live() as watch:
            return under_way.run(watch), None
    except (KeyboardInterrupt, NotWritten) as ended:
        return under_way.result(), ended


def _show(result: dict[str, Any]) -> None:
    console = live.console(170)
    console.print(sweep_table.table(result))
    largest = sweep_table.limits(result)
    if largest is not None:
        console.print(largest)
    for line in sweep_table.lines(result):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _names(contestants: str | None) -> tuple[str, ...]:
    """Who takes part; a framework's best is each of its settings here, for batch sizes differ."""
    usual = USUAL_ON_GPU if gpus() else USUAL
    found: list[str] = []
    for name, one in chosen(options.named(contestants) or list(usual)).items():
        found += [*(one.tries or (name,))]
    return tuple(dict.fromkeys(found))


def _on_card(names: tuple[str, ...]) -> bool:
    return all(one.gpu for one in chosen(list(names)).values())


def _limit(text: str | None, names: tuple[str, ...]) -> int | None:
    """Bytes, no more than are free wherever somebody computes."""
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
            f"--memory-limit expects no more than is free, {least / 1e9:.1f} GB; got {text}"
        )
    return asked


@contextmanager
def _live() -> Iterator[Callable[[Sweep], None]]:
    """On a terminal the table as it grows; else a line for each cell that is done."""
    if sys.stderr.isatty():
        with live.live(sweep_table.running) as show:
            yield show
        return
    told = 0

    def tell(sweep: Sweep) -> None:
        nonlocal told
        for key in sweep.finished[told:]:
            told += 1
            print(sweep_table.line(sweep.cells[key]), file=sys.stderr, flush=True)

    yield tell
