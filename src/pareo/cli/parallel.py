"""`pareo parallel`: task, data and model parallelism against one worker, on this machine."""

import re
from importlib.util import find_spec
from typing import Annotated

import typer

from pareo.cli import live, options
from pareo.cli.output import finish, outputs
from pareo.cli.tables import parallel as parallel_table
from pareo.device import cores
from pareo.errors import PareoError
from pareo.lab.parallel.measure import measure, measure_papers
from pareo.lab.parallel.result import Parallel
from pareo.nn import networks

MOST = 64  # workers: more than that on one machine is a mistake
SHARES = (8, 2)  # of the batch: the other sizes at which every strategy is tried
PAPERS_IMAGES, PAPERS_ROUNDS = 12_000, 5


def parallel(
    network: Annotated[
        str | None, typer.Argument(help="One of those that `pareo networks` lists.")
    ] = None,
    workers: Annotated[
        str | None, typer.Option(help="As in 1..4 or 1,2.", show_default="1 to the cores")
    ] = None,
    papers: Annotated[
        bool, typer.Option("--papers", help="The fourth paper's three MLPs, in its ways and ours.")
    ] = False,
    batch: Annotated[int, typer.Option(min=1, help="Images per step, of all workers.")] = 128,
    sizes: Annotated[
        str | None,
        typer.Option(
            help="Other batch sizes, as in 16,64, or none.", show_default="an eighth, a half"
        ),
    ] = None,
    tasks: Annotated[
        int | None,
        typer.Option(min=1, help="Networks of the task strategies.", show_default="2 a worker"),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each way.")] = PAPERS_ROUNDS,
    seconds: Annotated[
        float, typer.Option(min=0.01, help="Of one worker's turn, about; not for --papers.")
    ] = 1.0,
    images: Annotated[int, typer.Option(min=128, help="Of MNIST, for --papers.")] = PAPERS_IMAGES,
    json_file: options.JsonFile = None,
    html: options.Html = None,
    save: options.Save = False,
) -> None:
    """Train one network, or several, on all cores in every way, each against one worker.

    Who does not learn the same as one worker gets no time. The exit status is 1 where a way was
    refused or failed; one that is slower than one worker is shown as such.
    """
    if papers == (network is not None):
        raise PareoError("pareo parallel expects a NETWORK, or --papers, and not both")
    counts = _workers(workers)
    options.check_folders(json_file, html)
    options.check_finite("--seconds", seconds)
    with live.live(parallel_table.running) as watch:
        if papers:
            peer = find_spec("torch") is not None
            result: Parallel = measure_papers(images, max(counts), rounds, peer, watch)
        else:
            built = networks.by_name(network or "")
            others = _sizes(sizes, batch)
            many = tasks or 2 * max(counts)
            result = measure(built, batch, counts, many, rounds, seconds, others, watch)

    def show() -> None:
        console = live.console(150)
        for part in parallel_table.everything(result):
            console.print(part, soft_wrap=isinstance(part, str), highlight=False)

    written = finish(show, outputs(result, json_file, html, save))
    if not written or any(row.status != "ok" for row in result.rows):
        raise typer.Exit(1)


def _workers(text: str | None) -> list[int]:
    """Numbers of workers, one worker always among them.

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


def _sizes(text: str | None, batch: int) -> list[int]:
    """Other batch sizes; by default a share of the one asked for.

    >>> _sizes(None, 128), _sizes("none", 128), _sizes("256,32", 128)
    ([16, 64], [], [32, 256])
    """
    if text == "none":
        return []
    if text is None:
        return sorted({size for share in SHARES if (size := batch // share) > 0} - {batch})
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[1-9]\d{0,5}", part) for part in parts):
        raise PareoError(f"--sizes expects batch sizes as in 16,64, or none; got {text!r}")
    return sorted({int(part) for part in parts} - {batch})
