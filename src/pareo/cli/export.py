"""`pareo export`: a trained network for other programs."""

import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from pareo.errors import PareoError, WriteError
from pareo.nn.onnx_export import to_onnx
from pareo.nn.torch_names import to_torch_arrays
from pareo.training.checkpoint import Checkpoint, load

NAMES = ("pareo", "torchvision")


def export(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint, or its directory.")],
    file: Annotated[Path, typer.Argument(help="The file to write: .onnx or .safetensors.")],
    names: Annotated[
        str,
        typer.Option(
            help="Names of the weights in a .safetensors file: pareo, or torchvision, whose dense "
            "layers are also transposed."
        ),
    ] = "pareo",
) -> None:
    """Write a trained network as an ONNX file, or its weights alone.

    The ONNX file is for inference, takes batches of any size, and is compared with the network
    before it is written.
    """
    if names not in NAMES:
        raise PareoError(f"--names expects one of {', '.join(NAMES)}; got '{names}'")
    if file.suffix not in (".onnx", ".safetensors"):
        raise PareoError(f"expected a file name that ends in .onnx or .safetensors; got '{file}'")
    if file.suffix == ".onnx" and names != "pareo":
        raise PareoError("--names is for .safetensors files")
    known = load(checkpoint)
    if file.suffix == ".onnx":
        to_onnx(known.network, known.weights, file)
        print(f"{file}: {known.network.name}, ONNX, checked against onnxruntime")
    else:
        arrays = _arrays(known, names)
        _write(file, arrays)
        print(f"{file}: {len(arrays)} tensors of {known.network.name}, by {names}'s names")


def _arrays(known: Checkpoint, names: str) -> dict[str, Any]:
    if names == "pareo":
        return {path: np.ascontiguousarray(array) for path, array in known.weights.items()}
    found = to_torch_arrays(known.network, known.weights)
    if len(found) != len(known.weights):
        raise PareoError(f"{known.network.name} has two parameters of one name in PyTorch")
    return found


def _write(file: Path, arrays: dict[str, Any]) -> None:
    """Write the tensors to a temporary file, and rename it to its path."""
    from safetensors.numpy import save_file

    beside = file.with_name(f".{file.name}.partial")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file(arrays, beside)
        os.replace(beside, file)
    except Exception as error:  # safetensors has one exception for everything that goes wrong
        said = getattr(error, "strerror", None) or str(error)
        raise WriteError(f"{file}: the file cannot be written: {said}") from error
