"""`pareo parallel`: task, data and model parallelism on this machine, beside one worker."""

import re
from typing import Annotated

import typer

from pareo.cli import live, options
from pareo.cli.output import end, finish, outputs, say_notes
from pareo.cli.tables import parallel as parallel_table
from pareo.device import cores
from pareo.errors import PareoError
from pareo.lab.parallel.measure import measure, measure_papers
from pareo.lab.parallel.result import ParallelResult
from pareo.training.own import find

MOST = 64  # workers on one machine; more is a mistake
SHARES = (8, 2)  # of --batch: the other batch sizes that are measured
PAPERS_IMAGES, PAPERS_ROUNDS = 12_000, 5


def parallel(
    network: Annotated[str | None, typer.Argument(help=options.NETWORK)] = None,
    workers: Annotated[
        str | None,
        typer.Option(help="Numbers of workers, as in 1..4 or 1,2.", show_default="1 to all cores"),
    ] = None,
    papers: Annotated[
        bool, typer.Option("--papers", help="Repeat the fourth paper's experiment with three MLPs.")
    ] = False,
    batch: Annotated[int, typer.Option(min=1, help="Images per step, over all workers.")] = 128,
    batches: Annotated[
        str | None,
        typer.Option(
            help="Other batch sizes to measure, as in 16,64; or none.",
            show_default="an eighth and a half of --batch",
        ),
    ] = None,
    inputs: options.Input = None,
    tasks: Annotated[
        int | None,
        typer.Option(
            min=1, help="Networks that task parallelism trains.", show_default="2 per worker"
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="Timed turns of each strategy.")
    ] = PAPERS_ROUNDS,
    turn: Annotated[
        float, typer.Option(min=0.01, help="Seconds of a turn of one worker; not for --papers.")
    ] = 1.0,
    images: Annotated[
        int, typer.Option(min=128, help="Images of MNIST to train on, for --papers.")
    ] = PAPERS_IMAGES,
    quick: Annotated[bool, options.quick("parallel")] = False,  # see options.QUICK
    json_file: options.JsonFile = None,
    html: options.Html = None,
    save: options.Save = False,
) -> None:
    """Train one network, or several, with every parallel strategy, and compare with one worker.

    Only strategies that learn the same as one worker are timed. The exit status is 1 if one was
    refused or failed.
    """
    if papers == (network is not None):
        raise PareoError("pareo parallel expects either a NETWORK or --papers")
    shape = options.shape(inputs)
    if papers and shape is not None:
        raise PareoError("--input is for a network of your own, not for --papers")
    counts = _workers(workers)
    options.check_writable(json_file, html)
    options.check_finite("--turn", turn)
    others = _batches(batches, batch)
    built = None
    if network is not None:
        found = find(network, shape)
        built = found.network
        say_notes(network, found.notes)
    live.say_if_busy(max(counts))
    with live.display(parallel_table.running, parallel_table.line) as watch:
        if built is None:
            result: ParallelResult = measure_papers(images, max(counts), rounds, watch)
        else:
            many = tasks or 2 * max(counts)
            result = measure(built, batch, counts, many, rounds, turn, others, watch)

    def show() -> None:
        console = live.console(150)
        for part in parallel_table.everything(result):
            console.print(
                part, soft_wrap=isinstance(part, str) and not console.is_terminal, highlight=False
            )

    written = finish(show, outputs(result, json_file, html, save))
    end(result.rows, written)


def _workers(text: str | None) -> list[int]:
    """The numbers of workers, always including 1.

    >>> _workers("1..3"), _workers("2,4")
    ([1, 2, 3], [1, 2, 4])
    """
    if text is None:
        return list(range(1, cores() + 1))
    between = re.fullmatch(r"(\d{1,3})\.\.(\d{1,3})", text.strip())
    if between:
        found = list(range(int(between[1]), int(between[2]) + 1))
    else:
        parts = [part.strip() for part in text.split(",")]
        found = [int(part) for part in parts if re.fullmatch(r"\d{1,3}", part)]
        found = found if len(found) == len(parts) else []
    if not found or min(found) < 1 or max(found) > MOST:
        raise PareoError(f"--workers expects numbers to {MOST}, as in 1..4 or 1,2; got {text!r}")
    return sorted({1, *found})


def _batches(text: str | None, batch: int) -> list[int]:
    """Other batch sizes; by default some shares of the given one.

    >>> _batches(None, 128), _batches("none", 128), _batches("256,32", 128)
    ([16, 64], [], [32, 256])
    """
    if text == "none":
        return []
    if text is None:
        return sorted({size for share in SHARES if (size := batch // share) > 0} - {batch})
    return sorted({*options.numbers("--batches", text)} - {batch})
