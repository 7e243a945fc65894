"""`to_onnx`: a network as an ONNX file, in the form of inference, for any batch size."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pareo.device import Device
from pareo.errors import PareoError, ShapeError, WriteError
from pareo.nn.network import Sequential
from pareo.nn.onnx_export.layers import WRITERS
from pareo.nn.onnx_export.writer import INPUT, OUTPUT, Tensor, Weight, Writer
from pareo.nn.onnx_import.file import LARGEST, onnx_module
from pareo.nn.onnx_import.gate import run

BATCHES = (1, 3)  # inputs at once, with which the file is compared with the network
# Of the norm of the outputs in float32, which both round; see `onnx_import.gate`.
TOLERANCE = 1e-4


def to_onnx(
    network: Sequential, parameters: Mapping[str, Any], path: str | os.PathLike[str]
) -> None:
    """Write a network and its weights to an ONNX file, which takes batches of any size.

    The file is in the form of inference: batch normalisation uses its running statistics, dropout
    does nothing, and auxiliary heads are left out. Its initialisers have the paths of the
    parameters as their names. Before it is written, onnx's checker has passed it, and onnxruntime
    has given the same outputs as the network.
    """
    path = Path(path)
    model = exported(network, parameters)
    data = model.SerializeToString()
    _compare(network, parameters, data, str(path))
    beside = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(data)
        os.replace(beside, path)
    except OSError as error:
        raise WriteError(f"{path}: the file cannot be written: {error.strerror}") from error


def exported(network: Sequential, parameters: Mapping[str, Any]) -> Any:
    """The network as a model of onnx, after onnx's checker."""
    onnx = onnx_module()
    wanted = network.parameters(network.inputs)
    wrong = sorted(set(wanted) ^ set(parameters)) or [
        p for p, one in wanted.items() if tuple(np.shape(parameters[p])) != one.shape
    ]
    if wrong:
        raise ShapeError(f"the parameters are not those of {network.name}: {', '.join(wrong[:3])}")
    dtypes = {np.asarray(array).dtype for array in parameters.values()} or {np.dtype("float32")}
    if len(dtypes) > 1 or str(next(iter(dtypes))) not in ("float32", "float64"):
        raise PareoError(f"to_onnx expects parameters of float32 or float64; got {dtypes}")
    if sum(np.asarray(array).nbytes for array in parameters.values()) > LARGEST:
        raise PareoError("to_onnx writes networks of less than 2 GiB of parameters")
    writer = Writer(dtypes.pop(), WRITERS)
    weights = {path: Weight(path, np.asarray(array)) for path, array in parameters.items()}
    result = network.run(weights, Tensor(INPUT, network.inputs), writer)
    model = writer.model(network, result)
    onnx.checker.check_model(model, full_check=True)
    return model


def _compare(network: Sequential, parameters: Mapping[str, Any], data: bytes, name: str) -> None:
    """Refuse a file of which onnxruntime computes something else."""
    random = np.random.default_rng(0)
    dtype = next((np.asarray(a).dtype for a in parameters.values()), np.dtype("float32"))
    for batch in BATCHES:
        images = random.standard_normal((batch, *network.inputs)).astype(dtype)
        (found,) = run(data, [OUTPUT], images, name, "written")
        with Device("vectorized"):
            expected = np.asarray(network(parameters, images))
        off = float(np.linalg.norm(found - expected))
        norm = float(np.linalg.norm(expected))
        if found.shape != expected.shape or not off <= TOLERANCE * norm:
            raise PareoError(
                f"{name} is not written, because onnxruntime's outputs for {batch} inputs differ "
                f"by {off / norm if norm else off:.1g} of their norm"
            )
