"""`pareo arena`: races on networks that are drawn at random, and the distribution of ratios."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Annotated

import typer

from pareo.cli import live, options
from pareo.cli.continued import run_to_end, show_parts
from pareo.cli.tables import arena as arena_table
from pareo.device import PRECISIONS, cores, why_unavailable
from pareo.device import names as devices
from pareo.errors import PareoError
from pareo.lab.arena.draw import KINDS, Batches, kinds_of
from pareo.lab.arena.engine import Arena
from pareo.lab.arena.result import ArenaResult
from pareo.lab.arena.settings import Settings, entered

MOST = 2**31 - 1  # of a seed or an index


def arena(
    seed: Annotated[int, typer.Option(min=0, max=MOST, help="Seed of the drawing.")] = 0,
    count: Annotated[int, typer.Option(min=1, max=100_000, help="Networks to draw.")] = 20,
    index: Annotated[
        int | None,
        typer.Option(min=0, max=MOST, help="Race only on the network with this index."),
    ] = None,
    kinds: Annotated[
        str, typer.Option(help="Kinds of networks: some of mlp, cnn (small) and mid (mid-size).")
    ] = ",".join(KINDS),
    batch: Annotated[
        str, typer.Option(help="Images per step: drawn from 1..512, or from a list such as 1,8,32.")
    ] = "1..512",
    device: Annotated[
        str | None,
        typer.Option(help="pareo's device.", show_default="cuda if there is a GPU, else compiled"),
    ] = None,
    contestants: Annotated[
        str | None,
        options.contestants(
            "torch-best,jax-best. torch-best does not try torch-compile, which "
            "takes long to build: name it to race it",
            "torch-best and jax-best, on a GPU torch-cuda, torch-cudagraph, jax-cuda and "
            "jax-cuda-scan",
        ),
    ] = None,
    precision: options.Precision = "float32",
    seconds: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds for the rounds of each network."),
    ] = 10.0,
    patience: Annotated[
        float,
        typer.Option(min=1, help="Seconds to wait for a contestant, including its compilation."),
    ] = 120.0,
    threads: options.Threads = None,
    show: Annotated[
        bool, typer.Option("--list", help="Print the networks, and race on none of them.")
    ] = False,
    quick: Annotated[bool, options.quick("arena")] = False,  # see options.QUICK
    json_file: options.JsonFile = None,
    html: options.Html = None,
    save: options.Save = False,
) -> None:
    """Race on networks that nobody chose: drawn at random, the same for the same seed.

    Prints the distribution of best peer / pareo: above 1, pareo is faster. To continue an
    interrupted arena, run the same command again. The exit status is 1 if pareo was refused or
    failed on a network, or if nothing could be compared.
    """
    options.check_choice("--precision", precision, PRECISIONS)
    options.check_finite("--seconds", seconds)
    options.check_finite("--patience", patience)
    if device is not None:
        options.check_choice("--device", device, devices())
        if reason := why_unavailable(device):
            raise PareoError(reason)
    options.check_writable(json_file, html)
    Batches.parsed(batch)
    settings = Settings(
        seed, index or 0, count if index is None else 1, kinds_of(kinds), batch,
        entered(options.named(contestants), device), precision, threads or cores(), seconds,
        patience,
    )  # fmt: skip
    if show:
        _list(settings)
        return
    live.say_if_busy(settings.threads)
    with closing(Arena(settings)) as under_way:
        result = run_to_end(
            under_way, _live(), _show, lambda result: bool(result.bouts), json_file, html, save
        )
    if not result.compared or any(row.ours for bout in result.bouts for row in bout.missed):
        raise typer.Exit(1)


def _list(settings: Settings) -> None:
    """Print the networks; one alone as a table of its layers."""
    for number in settings.indices:
        one = settings.drawn(number)
        print(f"{number} {one.kind}: {one}")
        if settings.count == 1:
            print(one.network.summary())


def _show(result: ArenaResult) -> None:
    tables = [arena_table.table(result), arena_table.worst_table(result)]
    show_parts(tables, arena_table.drawn_lines(result))


@contextmanager
def _live() -> Iterator[Callable[[Arena], None]]:
    """On a terminal, the table as it grows; elsewhere, a line for each phase and network."""
    if sys.stderr.isatty():
        with live.display(arena_table.running, lambda arena: arena.doing, every=0.5) as show:
            yield show
        return
    printed: set[int] | None = None
    log = live.Log()

    def show_finished(arena: Arena) -> None:
        nonlocal printed
        printed = set(arena.bouts) if printed is None else printed
        for number in arena.bouts.keys() - printed:
            printed.add(number)
            print(arena_table.line(arena.bouts[number]), file=sys.stderr, flush=True)
        if not arena.doing.endswith(": done"):
            log(arena.doing)

    with log.alive():
        yield show_finished
