"""`from_onnx`: an ONNX file as a network of pareo, with its weights."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pareo.errors import PareoError
from pareo.nn.layers import Conv, Shape
from pareo.nn.normalisation import BatchNorm, LayerNorm
from pareo.nn.onnx_import import gate
from pareo.nn.onnx_import.file import File, read_file
from pareo.nn.onnx_import.operators import OPERATORS
from pareo.nn.onnx_import.reader import OnnxReader
from pareo.nn.torch_import.imported import Imported
from pareo.nn.torch_names import TorchName

LONGEST = 10_000  # characters of an error
SHOWN = 3  # names that a note lists
FOLDED = (
    "the file has no batch normalisation: where the network had any, it is folded into the "
    "convolutions, which train without it"
)


def from_onnx(path: str | os.PathLike[str], shape: Shape | None = None) -> Imported:
    """The network in an ONNX file, after a check that it computes what onnxruntime does.

    Args:
        path: a file of opset 13 or later. Weights in files beside it are read, too.
        shape: that of one input, such as (3, 224, 224), where the file leaves it open.

    Nothing in the file is executed. A file with operators that pareo does not have is refused, with
    a list of all of them.
    """
    with _in_one_line():
        return _imported(Path(path), shape)


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Let errors be one sentence, whatever the names in a file are."""
    try:
        yield
    except PareoError as error:
        said = " ".join(str(error).split())
        if said == str(error) and len(said) <= LONGEST:
            raise
        raise type(error)(f"{said[:LONGEST]}{'...' if len(said) > LONGEST else ''}") from error


def _imported(path: Path, shape: Shape | None) -> Imported:
    file = read_file(path)
    name = file.path.stem
    reader = read_network(file, shape)
    result = reader.result
    assert result is not None
    if len(result.shape) != 1:
        raise PareoError(
            f"{file.path}: expected a result of shape (N, classes); got {('N', *result.seen)}"
        )
    gate.check(reader, lambda drawn: read_network(drawn, shape), name)
    network = reader.network(name)
    wanted = network.parameters(network.inputs)
    parameters = {place: reader.parameters[place] for place in wanted}
    names = {place: reader.names[place] for place in wanted}
    return Imported(network, parameters, names, _unused(reader, names), _notes(reader))


def read_network(file: File, shape: Shape | None = None) -> OnnxReader:
    """The reader of a file after it has read the whole graph; it is not compared with anything."""
    reader = OnnxReader(file, shape)
    reader.read_graph(OPERATORS)
    reader.check(str(file.path))
    reader.result_of()
    return reader


def _unused(reader: OnnxReader, names: dict[str, TorchName]) -> tuple[str, ...]:
    """Initialisers that nothing reads."""
    known = {reader.root(name.name) for name in names.values()}
    every = [one.name for one in reader.graph.initializer]
    return tuple(name for name in every if name not in known and not reader.uses[name])


def _notes(reader: OnnxReader) -> tuple[str, ...]:
    """What a user should know of the network, each as one sentence without a full stop."""
    notes = list(dict.fromkeys(reader.notes))
    used = [made.what for made in reader.needed().values()]
    convolves = any(isinstance(layer, Conv) for layer in used)
    if convolves and not any(isinstance(layer, BatchNorm | LayerNorm) for layer in used):
        notes.append(FOLDED)
    count = Counter(name.name for name in reader.names.values())
    shared = [name for name, uses in count.items() if uses > 1 and name]
    if shared:
        several = f"{', '.join(shared[:SHOWN])}{' and more' if len(shared) > SHOWN else ''}"
        notes.append(
            f"the file has some weights once that are several here and train apart: {several}"
        )
    return tuple(notes)
