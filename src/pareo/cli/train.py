"""`pareo train`: train a network, with checkpoints, and print what it reached."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from pareo.cli import options
from pareo.cli.output import say_notes
from pareo.cli.tables.training import Lines, report
from pareo.data import Dataset
from pareo.device import Device
from pareo.errors import DataError, PareoError
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.nn.normalisation import Normalise
from pareo.nn.torch_names import TorchName
from pareo.training import checkpoint as files
from pareo.training.fit import Result, fit
from pareo.training.fitting import fitting
from pareo.training.own import check_name
from pareo.training.profile import profiled
from pareo.training.settings import Settings, from_plain
from pareo.training.weights import load_weights, matched

EPOCHS = 10
# Settings with which each network learns MNIST; for the large ones, those of their papers.
_FALLING: dict[str, Any] = {"momentum": 0.9, "schedule": "cosine-epochs"}
_OFTEN = (
    "mlp-small", "mlp-medium", "mlp-big", "resnet8", "resnet20", "resnet18", "resnet34",
    "resnet50", "vgg11-bn", "vgg16-bn", "mobilenet-v2", "densenet121",
)  # fmt: skip
USUAL: dict[str, dict[str, Any]] = {
    **{name: {"rate": 0.01, "momentum": 0.9} for name in networks.NETWORKS},
    **{name: {"rate": 0.05, **_FALLING} for name in _OFTEN},
    "papers-cnn": {"rate": 0.4, **_FALLING},
}
OWN: dict[str, Any] = {"rate": 0.01, "momentum": 0.9}  # of a network of the user's own
RATES = {"adam": 1e-3, "adamw": 1e-3, "lion": 1e-4}  # unless --rate says another
_STEP, _DATA, _RUN = "The step", "The data", "The run"


def train(
    network: Annotated[
        str | None, typer.Argument(help=options.NETWORK, show_default="that of --resume")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="Device to run on; `pareo devices` lists them.", show_default="compiled"),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the data.", show_default="10")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Images per step.", show_default="128")] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            help="Learning rate.", show_default="depends on the network and the optimizer"
        ),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            help="sgd, nesterov, adam, adamw or lion; numbers may follow: adam:0.9:0.98.",
            show_default="sgd", rich_help_panel=_STEP,
        ),
    ] = None,
    momentum: Annotated[
        float | None,
        typer.Option(
            help="Momentum of sgd and nesterov.", show_default="depends on the network",
            rich_help_panel=_STEP,
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="Schedule of the rate: constant, step:30:0.1, cosine, cosine-epochs, onecycle, or "
            "one of them after a linear rise, as in warmup:5+cosine.",
            show_default="depends on the network", rich_help_panel=_STEP,
        ),
    ] = None,
    decay: Annotated[
        float | None,
        typer.Option(
            help="Weight decay, of weights but not of biases and normalisations.",
            show_default="0", rich_help_panel=_STEP,
        ),
    ] = None,
    decay_biases: Annotated[
        bool | None,
        typer.Option(
            "--decay-biases/--no-decay-biases", help="Decay biases and normalisations, too.",
            show_default=False, rich_help_panel=_STEP,
        ),
    ] = None,
    clip: Annotated[
        float | None,
        typer.Option(
            help="Scale gradients down to this norm, that of all together.", rich_help_panel=_STEP
        ),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="cross-entropy; for targets squared-error or binary-cross-entropy.",
            show_default="cross-entropy", rich_help_panel=_STEP,
        ),
    ] = None,
    smoothing: Annotated[
        float | None,
        typer.Option(
            help="Spread this share of each label over all classes.", show_default="0",
            rich_help_panel=_STEP,
        ),
    ] = None,
    class_weights: Annotated[
        str | None,
        typer.Option(
            help="How much an image of each class counts: 1,2,0.5.", rich_help_panel=_STEP
        ),
    ] = None,
    average: Annotated[
        float | None,
        typer.Option(
            help="Test a moving average of the parameters, which keeps this share in each step, "
            "such as 0.999.",
            show_default="none", rich_help_panel=_STEP,
        ),
    ] = None,
    train_only: Annotated[
        str | None,
        typer.Option(
            help="Train only layers whose paths start so: fc,layer4.", rich_help_panel=_STEP
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help=f"Start from the weights in a file: {options.WEIGHTS} What does not fit is listed "
            "and not taken.",
            rich_help_panel=_STEP,
        ),
    ] = None,
    data: Annotated[
        str | None, options.data("mnist, or synthetic images for a network that it does not fit")
    ] = None,
    inputs: options.Input = None,
    augment: Annotated[
        str | None,
        typer.Option(
            help="Change training images at random: flip, crop:PIXELS and cutout:PIXELS, "
            "separated by commas.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    normalise: Annotated[
        bool,
        typer.Option(
            "--normalise",
            help="Begin the network with a layer that gives each channel the mean 0 and the "
            "deviation 1, by the statistics of the training images.",
            rich_help_panel=_DATA,
        ),
    ] = False,
    validation: Annotated[
        float | None,
        typer.Option(
            help="Set this share of the training images aside, and test with it after each epoch "
            "instead of the test set.",
            show_default="0", rich_help_panel=_DATA,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of weights, order, dropout and augmentation.", show_default="0",
            rich_help_panel=_RUN,
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            help="Stop after so many epochs without a better one.", rich_help_panel=_RUN
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Directory for last.safetensors, from which --resume continues, and "
            "best.safetensors.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Continue from a checkpoint with its settings, bit for bit. More --epochs extend "
            "a finished run.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="float32 or float64; on cuda also tf32 or bfloat16.", show_default="float32",
            rich_help_panel=_RUN,
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
) -> None:  # fmt: skip
    """Train a network, test it after every epoch, and print its accuracy and speed.

    Ctrl-C stops the run cleanly after the current steps; a second Ctrl-C stops it at once.
    """
    shape = options.shape(inputs)
    if network is not None:
        check_name(network)  # before the data is read
    elif resume is None:
        raise PareoError("train expects a network; only with --resume is it that of the run")
    else:
        network = str(files.located(resume))
    if workers is not None and on is None:
        raise PareoError("--workers needs --on ray; on this machine, use --threads")
    if checkpoint is not None and checkpoint.is_file():
        raise PareoError(f"{checkpoint}: --checkpoint expects a directory; got a file")
    if train_only == "":
        raise PareoError("--train-only expects the start of a path, such as fc; got nothing")
    usual, source = Settings(**USUAL.get(network, OWN)), data
    if resume is not None:
        known = files.load(resume)
        usual = from_plain(known.settings, files.located(resume))
        source = data or str(known.data.get("name"))
        checkpoint = checkpoint or files.located(resume)
        normalise = normalise or isinstance(known.network.layers[0], Normalise)
        if device is None:  # another device or number of threads would give other bits
            device = known.place.get("device")
            threads = known.place.get("threads") if threads is None else threads
    if threads is None and on is not None:
        threads = 1  # each worker's
    place = Device("compiled" if device is None else device, threads)
    given = {
        "batch_size": batch, "rate": rate, "optimizer": optimizer, "momentum": momentum,
        "schedule": schedule, "decay": decay, "decay_biases": decay_biases, "clip": clip,
        "loss": loss, "smoothing": smoothing, "class_weights": _numbers(class_weights),
        "average": average, "train_only": train_only, "augment": augment,
        "validation": validation, "seed": seed, "precision": precision,
    }  # fmt: skip
    changes = {name: value for name, value in given.items() if value is not None}
    settings = usual.changed(**changes)
    if resume is None and rate is None and settings.optimizer.name in RATES:
        settings = settings.changed(rate=RATES[settings.optimizer.name])
    epochs = epochs if epochs is not None else usual.epochs or EPOCHS
    found, loaded = fitting(network, source, shape)
    say_notes(network, found.notes)
    say_notes(loaded.name, loaded.notes)
    built = _normalised(found.network, loaded) if normalise else found.network
    start = None
    if resume is None:
        start = None if found.parameters is None else dict(found.parameters)
    if weights is not None:
        start = {**(start or {}), **_matching(weights, built, found.names)}

    def run() -> Result:
        if on is not None:
            from pareo.cli.train_ray import train_on

            if patience is not None or start is not None:
                what = "--patience, nor --weights and networks that bring their own"
                raise PareoError(f"--on ray does not take {what}")
            return train_on(
                on, workers or 2, built, loaded, place, checkpoint, resume, settings, epochs
            )
        return fit(
            built, loaded, settings, epochs=epochs, device=place, weights=start,
            patience=patience, checkpoint=checkpoint, resume=resume, callbacks=[Lines(epochs)],
        )  # fmt: skip

    if profile is None:
        result = run()
        report(result, loaded)
    else:
        result = _profiled(run, profile, loaded)
    if result.interrupted:
        where = f": continue with --resume {result.checkpoint}" if result.checkpoint else ""
        print(f"pareo: stopped by Ctrl-C{where}", file=sys.stderr)
        raise typer.Exit(130)


def _numbers(text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise PareoError(f"--class-weights expects numbers such as 1,2,0.5; got '{text}'") from None


def _matching(
    path: Path, network: Sequential, names: Mapping[str, TorchName] | None
) -> dict[str, Any]:
    """The weights of a file that fit a network; all others are listed."""
    found = matched(network, path, names)
    if not found.parameters:
        load_weights(network, path, names)  # raises an error that says so
    if not found.complete:
        print(f"pareo: {found}", file=sys.stderr)
    return found.parameters


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
    report(result, loaded)
    if unwritten is not None:
        raise unwritten
    return result


def _normalised(network: Sequential, data: Dataset) -> Sequential:
    """The network after a layer that normalises by the statistics of the data.

    >>> from pareo.data import load
    >>> _normalised(networks.lenet5(), load("mnist")).names[:2]
    ('normalise', 'c1')
    """
    found = data.channel_statistics()
    if not min(found.deviation) > 0:
        raise DataError(f"{data.name}: --normalise needs channels with more than one value")
    layers = zip(network.names, network.layers, strict=True)
    return Sequential(
        [("normalise", Normalise(*found)), *layers], network.input_shape, network.name
    )
