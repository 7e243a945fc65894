"""`pareo tune`: search for the hyper-parameters with which a network learns best."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer

from pareo.cli import live, options
from pareo.cli.output import finish, outputs, say_notes
from pareo.cli.tables import tune as tune_table
from pareo.cli.train import OWN, RATES, USUAL
from pareo.data import Dataset
from pareo.data.dataset import divide
from pareo.device import Device, cores
from pareo.errors import DataError, RunError
from pareo.lab.tune.collect import collected
from pareo.lab.tune.result import TuneResult
from pareo.lab.tune.summary import shown as shown_value
from pareo.parallel.group import ray_cluster
from pareo.parallel.trials.on_ray import Tasks
from pareo.parallel.tuning import proposal, space
from pareo.parallel.tuning.local import Population, Threads
from pareo.parallel.tuning.search import Search, Workers
from pareo.parallel.tuning.study import PRUNERS, SAMPLERS, open_study
from pareo.training import checkpoint as files
from pareo.training.evaluate import as_inputs
from pareo.training.fitting import fitting
from pareo.training.own import check_name, find, is_own, shown
from pareo.training.resume import fingerprint

REDRAW_SECONDS = 0.2  # drawing reads the whole study, which takes time from training


def tune(
    network: options.AnyNetwork,
    space_file: Annotated[
        Path,
        typer.Option("--space", help="TOML file with the parameters to search and their bounds."),
    ],
    trials: Annotated[int, typer.Option(min=1, help="Number of trials in all.")] = 100,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data in each trial.")] = 5,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Trials to run at the same time.", show_default="all cores, or one on a GPU"
        ),
    ] = None,
    population: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Trials to start together; those of one shape run as one program.",
            show_default="16 if all have one shape and it should be faster, else 1",
        ),
    ] = None,
    on: options.Cluster = None,
    data: Annotated[str, options.data("mnist")] = "mnist",
    inputs: options.Input = None,
    device: Annotated[str, options.DEVICE] = "compiled",
    sampler: Annotated[str, typer.Option(help="Sampler that proposes trials: tpe or random.")] = (
        "tpe"
    ),
    pruner: Annotated[
        str, typer.Option(help="Pruner that stops trials early: median, hyperband or none.")
    ] = "median",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampler.")] = 0,
    storage: Annotated[
        str | None,
        typer.Option(help="File or URL of Optuna's storage.", show_default="space.sqlite"),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Directory for checkpoints of the trials.", show_default="space.checkpoints"
        ),
    ] = None,
    best_file: Annotated[
        Path | None,
        typer.Option("--best", help="Write the best network to this .safetensors file."),
    ] = None,
    quick: Annotated[bool, options.quick("tune")] = False,  # see options.QUICK
    json_file: options.JsonFile = None,
    html: options.Html = None,
    save: options.Save = False,
) -> None:
    """Search for the hyper-parameters with which a network learns best.

    A sixth of the training images validates the trials; the test images are used once, for the best
    trial. All trials start from new weights. To continue an interrupted search, run the same
    command again.
    """
    check_name(network)  # before the data is read
    shape = options.shape(inputs)
    if on is not None:
        ray_cluster.check(on)
    options.check_choice("--sampler", sampler, SAMPLERS)
    options.check_choice("--pruner", pruner, PRUNERS)
    searched = space.read(space_file)
    if not is_own(network):
        proposal.check(searched, find(network, shape).network, str(space_file))
    options.check_writable(best_file, json_file, html)
    place = Device(device)
    found, loaded = fitting(network, data, shape)
    built = found.network
    say_notes(network, found.notes)
    say_notes(loaded.name, loaded.notes)
    proposal.check(searched, built, str(space_file))
    if not searched.shaped:
        as_inputs(built, loaded.images[:1], "float32")
    made = proposal.Maker(built, loaded, epochs, USUAL.get(network, OWN), RATES)
    name = shown(network)
    about = {"network": name, "data": data, "epochs": epochs, "space": searched.plain()}
    searching = {**about, "fingerprint of the data": fingerprint(loaded)[:16]}
    if is_own(network):
        searching["fingerprint of the network"] = sha256(repr(built).encode()).hexdigest()[:16]
    storage_path = storage or str(space_file.with_suffix(".sqlite"))
    base_path = space_file if "://" in storage_path else Path(storage_path)
    directory = checkpoint or base_path.with_suffix(".checkpoints") / name
    divided = _divided(loaded)
    if population is None:
        alone = on is not None or workers is not None
        population = 1 if alone else proposal.population(made, searched, place)
    live.say_if_busy(workers or (1 if place.name == "cuda" else cores()))
    with (
        _workers(on, divided, place, workers, population) as crew,
        open_study(storage_path, name, searching, sampler, pruner, seed) as study,
        live.display(tune_table.running, tune_table.line, REDRAW_SECONDS) as watch,
    ):
        search = Search(study, searched, made, crew, trials, directory, watch)
        search.run()
        result = collected(search, loaded, place, about)
    wanted = outputs(result, json_file, html, save and not search.interrupted)
    if best_file is not None and search.best is not None:
        wanted.insert(0, partial(_write_best, search.file(search.best), best_file))
    written = finish(lambda: _show(result, storage_path), wanted)
    if search.interrupted:
        print("pareo: stopped by Ctrl-C: run the same command again to continue", file=sys.stderr)
        raise typer.Exit(130)
    if result.best is None:
        raise RunError("no trial finished")
    if not written:
        raise typer.Exit(1)


@contextmanager
def _workers(
    on: str | None, data: Dataset, device: Device, workers: int | None, population: int
) -> Iterator[Workers]:
    """What trains: a population or threads on this machine, or tasks on a Ray cluster."""
    if on is None and population > 1:
        yield Population(data, device, population)
        return
    if on is None:
        yield Threads(data, device, workers or (1 if device.name == "cuda" else cores()))
        return
    with ray_cluster.connected(on) as ray:
        yield Tasks(ray, data, device, workers)


def _divided(data: Dataset) -> Dataset:
    """The training images, a sixth of them for validation; test images are not used."""
    parts = divide(data.name, data.images, data.labels, data.class_names)
    if not len(parts.test_images):
        raise DataError(
            f"{data.name}: expected at least two images of a class, for validation; got fewer"
        )
    return parts


def _show(result: TuneResult, storage_path: str) -> None:
    console = live.console(140)
    names = result.parsed_space.searched
    console.print(tune_table.table(result.trials, names, result.wanted))
    for error, count in Counter(trial.error for trial in result.trials if trial.error).items():
        console.print(f"failed      {count} times: {error}", markup=False, soft_wrap=True)
    best = result.best_trial
    if best is not None:
        values = ", ".join(f"{name} {shown_value(best.parameters[name])}" for name in names)
        print(f"best        trial {best.number}: {values}")
        print(f"validation  {best.accuracy:.2%}")
        if result.test_accuracy is not None:
            print(f"test        {result.test_accuracy:.2%} of images that no trial used")
    if len(result.importances) > 1:
        shares = (f"{name} {share:.0%}" for name, share in result.importances.items())
        print(f"importance  {', '.join(shares)}")
    print(f"study       {storage_path}")


def _write_best(best: Path, to: Path) -> str:
    kept = files.load(best)
    files.save(to, kept.network, kept.parameters, data=kept.data)
    return f"network     {to}"
