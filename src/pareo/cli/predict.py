"""`pareo predict`: classify images with a trained network."""

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from pareo.cli import options
from pareo.data import images
from pareo.device import Device
from pareo.errors import DataError, PareoError, ShapeError
from pareo.nn.network import Sequential
from pareo.training.checkpoint import Checkpoint, load
from pareo.training.evaluate import Evaluator, as_inputs, probabilities


def predict(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint, or its directory.")],
    image: Annotated[
        list[Path],
        typer.Argument(help="PNG, JPEG or similar files, or .npy files with one or more images."),
    ],
    device: Annotated[str, options.DEVICE] = "vectorized",
) -> None:
    """Print the class of each image and its probability."""
    known = load(checkpoint)
    dtype = str(next(iter(known.parameters.values())).dtype)
    forward = Evaluator(known.network, Device(device), batch=1, dtype=dtype)
    failed = False
    for path in image:
        try:
            pixels = as_inputs(known.network, _read(path, known.network), dtype)
        except PareoError as error:
            named = str(error) if str(path) in str(error) else f"{path}: {error}"
            print(f"pareo: {named}", file=sys.stderr)
            failed = True
            continue
        chances = probabilities(forward.logits(known.weights, pixels))
        for number, row in enumerate(chances):
            place = f"{path}[{number}]" if len(chances) > 1 else str(path)
            best = int(row.argmax())
            print(f"{place}: {_name(known, best)} ({row[best]:.1%})")
    if failed:
        raise typer.Exit(1)


def _name(known: Checkpoint, number: int) -> str:
    names = known.data.get("class_names") or ()
    return str(names[number]) if number < len(names) else str(number)


def _read(path: Path, network: Sequential) -> Any:
    """The images in a file, with as many channels as the network has."""
    pixels = _array(path, network) if path.suffix == ".npy" else images.read(path)[None]
    channels = network.inputs[0] if len(network.inputs) == 3 else 1
    if path.suffix != ".npy" and pixels.shape[1] != channels:
        if channels == 1:  # ITU-R 601: luma of red, green and blue
            grey = np.einsum("nchw,c->nhw", pixels, [0.299, 0.587, 0.114])
            pixels = np.round(grey)[:, None].astype(np.uint8)
        else:
            pixels = np.repeat(pixels, channels, axis=1)
    return pixels


def _array(path: Path, network: Sequential) -> Any:
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise DataError(f"{path}: expected a file to read; got: {error.strerror}") from error
    except (ValueError, EOFError) as error:
        raise DataError(f"{path}: expected a .npy file; got: {error}") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "uif":
        raise DataError(f"{path}: expected an array of numbers")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DataError(f"{path}: expected finite numbers; got NaN or infinity")
    if array.size == int(np.prod(network.inputs)):
        array = array[None]  # one image, with or without axes of length 1
    if array.ndim < 2:
        raise ShapeError(
            f"{path}: expected images of shape {network.inputs}; got an array {array.shape}"
        )
    return array
