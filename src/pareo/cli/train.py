"""`pareo train`: train one of the papers' networks, with checkpoints, and say what it reached."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

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
# With these each network learns MNIST; for the large ones, what their papers used.
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
    network: Annotated[str, typer.Argument(help="One of those that `pareo networks` lists.")],
    device: Annotated[
        str | None, typer.Option(help="Where; see `pareo devices`.", show_default="compiled")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the data, in all.", show_default="10")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Images per step.", show_default="128")] = None,
    rate: Annotated[
        float | None, typer.Option(help="Learning rate.", show_default="one that suits the network")
    ] = None,
    momentum: Annotated[
        float | None, typer.Option(help="Momentum.", show_default="one that suits the network")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help="Of the rate: constant or cosine.", show_default="as suits the network"),
    ] = None,
    decay: Annotated[float | None, typer.Option(help="Weight decay.", show_default="0")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Decides weights, order and dropout.", show_default="0")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="mnist, synthetic:CxHxW[:CLASSES[:COUNT]], a folder of IDX files or of images, "
            "or an .npz file.",
            show_default="mnist",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder for last.safetensors, which --resume goes on from.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on from a checkpoint, with its settings, to the bits of one run."),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="float32 or float64; on cuda also tf32 or bfloat16.", show_default="float32"
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads to use.", show_default="all cores")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(help="Many machines: ray, or ray://HOST:PORT.", show_default="this one"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="With --on: how many share a batch.", show_default="2")
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            help="Write callgrind.out.NAME (KCachegrind) and NAME.speedscope.json for this prefix, "
            "and show the time of each operator."
        ),
    ] = None,
) -> None:
    """Train a network, test it after every epoch, and say what it reached.

    Ctrl-C ends the run cleanly after the present steps; a second one ends it at once.
    """
    networks.by_name(network)  # a wrong name is told before the data is read
    if workers is not None and on is None:
        raise PareoError("--workers is for --on ray; on this machine --threads says how many cores")
    usual, source = USUAL[network], "mnist"
    if resume is not None:
        known = files.load(resume)
        usual = from_plain(known.settings, files.located(resume)).plain()
        source = str(known.data.get("name"))
        checkpoint = checkpoint or files.located(resume)
        if device is None:  # another device, or other threads, would not give the same bits
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
        where = f": go on with --resume {result.checkpoint}" if result.checkpoint else ""
        print(f"pareo: stopped by Ctrl-C{where}", file=sys.stderr)
        raise typer.Exit(130)


def _profiled(run: Callable[[], Result], profile: Path, loaded: Dataset) -> Result:
    """Train under the profiler and report; a profile that cannot be written takes nothing else."""
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
    """The network of a name; the large ones take the size and the classes of the data.

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
