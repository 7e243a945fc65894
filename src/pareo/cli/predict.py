"""`pareo predict`: classify images with a trained network."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from pareo.cli import options
from pareo.data import images, npy
from pareo.device import Device
from pareo.errors import DataError, PareoError, ShapeError
from pareo.nn import networks
from pareo.nn.layers import Shape
from pareo.nn.network import Sequential
from pareo.training.checkpoint import Checkpoint
from pareo.training.evaluate import Evaluator, as_inputs, probabilities
from pareo.training.own import find, is_own
from pareo.training.own import load as load_own
from pareo.training.weights import load_weights


def predict(
    network: options.AnyNetwork,
    image: Annotated[
        list[Path],
        typer.Argument(help="PNG, JPEG or similar files, or .npy files with one or more images."),
    ],
    weights: Annotated[
        Path | None,
        typer.Option(
            help=f"Weights of the network: {options.WEIGHTS} All of them must fit.",
            show_default="those that the network comes with",
        ),
    ] = None,
    inputs: options.Input = None,
    device: Annotated[str, options.DEVICE] = "vectorized",
) -> None:
    """Print the class of each image and its probability.

    The network is usually a checkpoint of `pareo train`, or its directory. The exit status is 1 if
    some images could not be read, 2 if none could.
    """
    known, names = _known(network, weights, options.shape(inputs))
    dtype = str(next((a.dtype for a in known.parameters.values()), "float32"))
    forward = Evaluator(known.network, Device(device), batch=1, dtype=dtype)
    failed, shown = False, 0
    for path in image:
        try:
            chances = _chances(forward, known, _read(path, known.network), dtype)
        except PareoError as error:
            named = str(error) if str(path) in str(error) else f"{path}: {error}"
            print(f"pareo: {named}", file=sys.stderr)
            failed = True
            continue
        for number, row in enumerate(chances):
            place = f"{path}[{number}]" if len(chances) > 1 else str(path)
            best = int(row.argmax())
            print(f"{place}: {_name(names, best)} ({row[best]:.1%})")
            shown += 1
    if failed:
        raise typer.Exit(1 if shown else 2)


def _chances(forward: Evaluator, known: "Known", images: Any, dtype: str) -> Any:
    """The probabilities of each image; an error where they are no numbers."""
    with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is checked
        pixels = as_inputs(known.network, images, dtype)
        outputs = forward.logits(known.parameters, pixels)
    if not np.isfinite(outputs).all():
        raise DataError(
            "expected pixels that the network can compute with; its outputs are not finite"
        )
    return probabilities(outputs)


class Known(NamedTuple):
    """A network that can predict."""

    network: Sequential
    parameters: Mapping[str, Any]


def _known(name: str, file: Path | None, shape: Shape | None) -> tuple[Known, Sequence[str]]:
    """The network with its weights, and the names of its classes, where they are known."""
    if not is_own(name) and name not in networks.NETWORKS:
        raise DataError(f"{name}: expected a checkpoint or another network; there is no such file")
    found = find(name, shape)
    source = load_own(name) if is_own(name) and not name.endswith(".onnx") else None
    classes = source.data.get("class_names") if isinstance(source, Checkpoint) else None
    parameters = found.parameters
    if file is not None:
        parameters = load_weights(found.network, file, found.names)
    if parameters is None:
        raise PareoError(f"{name} has no weights of its own: give --weights, or a checkpoint")
    if not all(np.isfinite(a).all() for a in parameters.values()):
        raise DataError(f"{file or name}: its weights are not all finite, so it cannot predict")
    return Known(found.network, parameters), classes or ()


def _name(names: Sequence[str], number: int) -> str:
    return str(names[number]) if number < len(names) else str(number)


def _read(path: Path, network: Sequential) -> Any:
    """The images in a file, of the size and with as many channels as the network takes."""
    if path.suffix == ".npy":
        return _array(path, network)
    inputs = network.inputs
    if len(inputs) != 3 or inputs[0] not in (1, 3):
        return images.read(path)[None]
    pixels = images.read(path, inputs)[None]
    height, width = images.read_size(path)
    if (height, width) != inputs[1:]:
        said = f"{path}: resized from {width}x{height} to {inputs[2]}x{inputs[1]}"
        print(f"pareo: {said}", file=sys.stderr)
    return pixels


def _array(path: Path, network: Sequential) -> Any:
    array = npy.read(path)
    if array.dtype.kind not in "uif":
        raise DataError(f"{path}: expected an array of numbers; got {array.dtype.name}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DataError(f"{path}: expected finite numbers; got NaN or infinity")
    if array.size == int(np.prod(network.inputs)):
        array = array[None]  # one image, with or without axes of length 1
    if array.ndim < 2:
        raise ShapeError(
            f"{path}: expected images of shape {network.inputs}; got an array {array.shape}"
        )
    return array
