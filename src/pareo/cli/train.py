"""`pareo train`: train a network, with checkpoints, and print what it reached."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from pareo.cli import options
from pareo.data import Dataset, load
from pareo.device import Device
from pareo.errors import DataError, PareoError
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.program.text import amount
from pareo.training import checkpoint as files
from pareo.training.fit import Result, fit
from pareo.training.profile import profiled
from pareo.training.settings import from_plain

EPOCHS = 10
# Settings with which each network learns MNIST; for the large ones, those of their papers.
_FALLING: dict[str, Any] = {"momentum": 0.9, "schedule": "cosine"}
USUAL: dict[str, dict[str, Any]] = {
    "papers-cnn": {"rate": 0.4, **_FALLING},
    "mlp-small": {"rate": 0.05, **_FALLING},
    "mlp-medium": {"rate": 0.05, **_FALLING},
    "mlp-big": {"rate": 0.05, **_FALLING},
    "alexnet": {"rate": 0.01, "momentum": 0.9},
    "alexnet-original": {"rate": 0.01, "momentum": 0.9},
    "googlenet": {"rate": 0.01, "momentum": 0.9},
    "googlenet-auxiliary": {"rate": 0.01, "momentum": 0.9},
}


def train(
    network: options.Network,
    device: Annotated[
        str | None,
        typer.Option(help="Device to run on; `pareo devices` lists them.", show_default="compiled"),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the data.", show_default="10")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Images per step.", show_default="128")] = None,
    rate: Annotated[
        float | None, typer.Option(help="Learning rate.", show_default="depends on the network")
    ] = None,
    momentum: Annotated[
        float | None, typer.Option(help="Momentum.", show_default="depends on the network")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="Schedule of the rate: constant or cosine.", show_default="depends on the network"
        ),
    ] = None,
    decay: Annotated[float | None, typer.Option(help="Weight decay.", show_default="0")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of weights, order and dropout.", show_default="0")
    ] = None,
    data: Annotated[str | None, options.data("mnist")] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Directory for last.safetensors, from which --resume continues."),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Continue from a checkpoint with its settings, bit for bit."),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="float32 or float64; on cuda also tf32 or bfloat16.", show_default="float32"
        ),
    ] = None,
    threads: options.Threads = None,
    on: options.Cluster = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="With --on: workers that share a batch.", show_default="2"),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            help="Prefix NAME: write callgrind.out.NAME (KCachegrind) and NAME.speedscope.json, "
            "and show the time of each operator."
        ),
    ] = None,
) -> None:
    """Train a network, test it after every epoch, and print its accuracy and speed.

    Ctrl-C stops the run cleanly after the current steps; a second Ctrl-C stops it at once.
    """
    networks.by_name(network)  # reports a wrong name before the data is read
    if workers is not None and on is None:
        raise PareoError("--workers needs --on ray; on this machine, use --threads")
    usual, source = USUAL[network], "mnist"
    if resume is not None:
        known = files.load(resume)
        usual = from_plain(known.settings, files.located(resume)).plain()
        source = str(known.data.get("name"))
        checkpoint = checkpoint or files.located(resume)
        if device is None:  # another device or number of threads would give other bits
            device = known.place.get("device")
            threads = known.place.get("threads") if threads is None else threads
    if threads is None and on is not None:
        threads = 1  # each worker's
    place = Device(device or "compiled", threads)
    given = {
        "batch_size": batch, "rate": rate, "momentum": momentum, "decay": decay, "seed": seed,
        "precision": precision, "schedule": schedule, "epochs": epochs,
    }  # fmt: skip
    usual = {**usual, "epochs": usual.get("epochs") or EPOCHS}
    settings = usual | {name: value for name, value in given.items() if value is not None}
    loaded = load(data or source)
    built = build(network, loaded)

    def run() -> Result:
        if on is not None:
            from pareo.cli.train_ray import train_on

            return train_on(on, workers or 2, built, loaded, place, checkpoint, resume, settings)
        return fit(built, loaded, device=place, checkpoint=checkpoint, resume=resume, **settings)

    if profile is None:
        result = run()
        _report(result, loaded)
    else:
        result = _profiled(run, profile, loaded)
    if result.interrupted:
        where = f": continue with --resume {result.checkpoint}" if result.checkpoint else ""
        print(f"pareo: stopped by Ctrl-C{where}", file=sys.stderr)
        raise typer.Exit(130)


def _profiled(run: Callable[[], Result], profile: Path, loaded: Dataset) -> Result:
    """Train under the profiler and report, also where the profile cannot be written."""
    from pareo.cli.tables.operators import show

    result, unwritten = None, None
    try:
        with profiled(profile) as written:
            result = run()
    except DataError as error:
        if result is None:
            raise
        unwritten = error
    show(result, loaded)
    if unwritten is None:
        print(f"profile     {' and '.join(map(str, written))}")
    _report(result, loaded)
    if unwritten is not None:
        raise unwritten
    return result


def build(name: str, data: Dataset) -> Sequential:
    """The named network; a large one takes the image size and the classes of the data.

    >>> build("googlenet", load("synthetic:3x64x64:5:12")).input_shape
    (3, 64, 64)
    """
    return networks.sized(name, data.shape, data.classes)


def _report(result: Result, data: Dataset) -> None:
    settings, history = result.settings, result.history
    words = [f"batch {settings.batch_size}", f"rate {settings.rate:g}"]
    words += [settings.schedule] if settings.schedule != "constant" else []
    words += [f"momentum {settings.momentum:g}"] if settings.momentum else []
    words += [f"decay {settings.decay:g}"] if settings.decay else []
    words += [f"seed {settings.seed}", settings.precision]
    place, count = str(result.device), result.device.threads
    if result.device.name != "cuda":
        place += f", {count} thread{'s' if count > 1 else ''}"
    print(f"{result.network.name} on {place}: {', '.join(words)}")
    print(f"epochs      {len(history)} of {len(data.images):,} images")
    if history:
        if result.accuracy is not None:
            print(f"accuracy    {result.accuracy:.2%} of {len(data.test_images):,} test images")
        print(f"loss        {history[-1].loss:.4f}")
        print(f"seconds     {history.seconds:.2f} of training alone")
        print(f"images/s    {history.images:,.0f}")
        if history.floor is not None:
            limit = amount(history.flops / history.floor, "FLOP/s")
            reached = amount(history.flops, "FLOP/s")
            print(f"floor       {history.floor:.1%} ({reached} of {limit}, a large matrix product)")
    if result.checkpoint is not None:
        print(f"checkpoint  {result.checkpoint}")
