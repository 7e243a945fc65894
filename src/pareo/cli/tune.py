"""`pareo tune`: search for the hyper-parameters with which a network learns best."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from pareo.cli import live as showing
from pareo.cli import options
from pareo.cli.output import finish, outputs
from pareo.cli.tables import tune as tune_table
from pareo.cli.train import USUAL
from pareo.data import Dataset, load
from pareo.data.dataset import divide
from pareo.device import Device, cores
from pareo.errors import DataError, PareoError
from pareo.nn import networks
from pareo.parallel.group import ray_cluster
from pareo.parallel.trials.on_ray import Tasks
from pareo.parallel.tuning import outcome, proposal, space
from pareo.parallel.tuning.local import Population, Threads
from pareo.parallel.tuning.search import Search, Workers
from pareo.parallel.tuning.study import PRUNERS, SAMPLERS, opened
from pareo.training import checkpoint as files
from pareo.training.evaluate import as_inputs
from pareo.training.resume import fingerprint

REDRAW_SECONDS = 0.2  # drawing reads the whole study, which takes time from those who train


def tune(
    network: options.Network,
    space_file: Annotated[
        Path, typer.Option("--space", help="TOML file: what is searched, and in which bounds.")
    ],
    trials: Annotated[int, typer.Option(min=1, help="How many there shall be in all.")] = 100,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data in each trial.")] = 5,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Trials at once.", show_default="as many as there are cores or GPUs"
        ),
    ] = None,
    population: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Trials that begin together, those of one shape as one program.",
            show_default="16 where all are of one shape and that is expected to be faster, else 1",
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(help="Many machines: ray, or ray://HOST:PORT.", show_default="this one"),
    ] = None,
    data: Annotated[str, typer.Option(help="What to train on; see `pareo train --help`.")] = (
        "mnist"
    ),
    device: Annotated[str, typer.Option(help="Where; see `pareo devices`.")] = "compiled",
    sampler: Annotated[str, typer.Option(help="Who proposes: tpe or random.")] = "tpe",
    pruner: Annotated[
        str, typer.Option(help="Who ends trials early: median, hyperband or none.")
    ] = "median",
    seed: Annotated[int, typer.Option(min=0, help="Of the sampler.")] = 0,
    storage: Annotated[
        str | None,
        typer.Option(help="File or URL that Optuna keeps it in.", show_default="space.sqlite"),
    ] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(help="Folder for networks under way.", show_default="space.checkpoints"),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write the best network to this .safetensors file.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write every trial to this file.")
    ] = None,
    html: options.Html = None,
    to_history: Annotated[
        bool, typer.Option("--keep", help="Keep the result for `pareo history`.")
    ] = False,
) -> None:
    """Search for the hyper-parameters with which a network learns best.

    A sixth of the training images judges the trials; the test images judge the best one, once.
    The same command goes on with a search that was interrupted, however it ended.
    """
    base = networks.by_name(network)  # a wrong name is told before the data is read
    if on is not None:
        ray_cluster.check(on)
    options.check_choice("--sampler", sampler, SAMPLERS)
    options.check_choice("--pruner", pruner, PRUNERS)
    searched = space.read(space_file)
    proposal.check(searched, base, str(space_file))
    options.check_folders(save, json_file, html)
    place = Device(device)
    loaded = load(data)
    built = networks.sized(network, loaded.shape, loaded.classes)
    if not searched.shaped:
        as_inputs(built, loaded.images[:1], "float32")
    made = proposal.Maker(built, loaded, epochs, USUAL[network])
    about = {"network": network, "data": data, "epochs": epochs, "space": searched.plain()}
    searching = {**about, "fingerprint of the data": fingerprint(loaded)[:16]}
    kept = storage or str(space_file.with_suffix(".sqlite"))
    beside = space_file if "://" in kept else Path(kept)
    folder = checkpoints or beside.with_suffix(".checkpoints") / network
    judged = _judged(loaded)
    if population is None:
        alone = on is not None or workers is not None
        population = 1 if alone else proposal.population(made, searched, place)
    with (
        _crew(on, judged, place, workers, population) as crew,
        opened(kept, network, searching, sampler, pruner, seed) as study,
        _live() as watch,
    ):
        search = Search(study, searched, made, crew, trials, folder, watch)
        search.run()
        result = outcome.collected(search, loaded, place, about)
    wanted = outputs(result, json_file, html, to_history and not search.interrupted)
    if save is not None and search.best is not None:
        wanted.insert(0, partial(_save, search.file(search.best), save))
    written = finish(lambda: _show(result, search, kept), wanted)
    if search.interrupted:
        print("pareo: stopped by Ctrl-C: the same command goes on", file=sys.stderr)
        raise typer.Exit(130)
    if result["best"] is None:
        raise PareoError("no trial came to its end")
    if not written:
        raise typer.Exit(1)


@contextmanager
def _crew(
    on: str | None, data: Dataset, device: Device, workers: int | None, population: int
) -> Iterator[Workers]:
    """Who trains: a population or threads here, or tasks on a Ray cluster."""
    if on is None and population > 1:
        yield Population(data, device, population)
        return
    if on is None:
        yield Threads(data, device, workers or (1 if device.name == "cuda" else cores()))
        return
    with ray_cluster.connected(on) as ray:
        yield Tasks(ray, data, device, workers)


def _judged(data: Dataset) -> Dataset:
    """The training images alone, a sixth of which is for judging: test images stay unseen."""
    parts = divide(data.name, data.images, data.labels, data.class_names)
    if not len(parts.test_images):
        raise DataError(f"{data.name}: expected two images of a class to judge with; got fewer")
    return parts


@contextmanager
def _live() -> Iterator[Callable[[Search], None]]:
    """Shows on a terminal the best so far, and what is being trained."""
    if not sys.stderr.isatty():
        yield lambda search: None
        return
    shown = 0.0
    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:

        def watch(search: Search) -> None:
            nonlocal shown
            if time.monotonic() - shown > REDRAW_SECONDS:
                live.update(tune_table.running(search), refresh=True)
                shown = time.monotonic()

        yield watch


def _show(result: dict[str, Any], search: Search, kept: str) -> None:
    console = showing.console(140)
    names = search.space.searched
    console.print(tune_table.table(result["trials"], names, result["wanted"]))
    for error, count in Counter(t["error"] for t in result["trials"] if t["error"]).items():
        console.print(f"failed      {count} times: {error}", markup=False, soft_wrap=True)
    if result["best"] is not None:
        best = next(trial for trial in result["trials"] if trial["number"] == result["best"])
        values = ", ".join(f"{name} {tune_table.shown(best['parameters'][name])}" for name in names)
        print(f"best        trial {best['number']}: {values}")
        print(f"validation  {best['accuracy']:.2%}, which chose it")
        if result["test_accuracy"] is not None:
            print(f"test        {result['test_accuracy']:.2%} of images that no trial has seen")
    if len(result["importances"]) > 1:
        shares = (f"{name} {share:.0%}" for name, share in result["importances"].items())
        print(f"importance  {', '.join(shares)}")
    print(f"study       {kept}")


def _save(best: Path, to: Path) -> str:
    kept = files.load(best)
    files.save(to, kept.network, kept.parameters, data=kept.data)
    return f"network     {to}"
