"""ONNX files as they are on the disk: read, checked, and bounded by their own size.

Nothing is executed. What a file declares is compared with the bytes that there are before memory
is allocated for it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pareo.errors import DataError, PareoError

OLDEST = 13  # opset; before it, the axes of some operators were attributes
MISSING = "ONNX files need the package onnx: pip install 'pareo[onnx]'"
LARGEST = 2**31 - 1  # bytes of a message of protobuf, which onnx's checker and onnxruntime take


def onnx_module(name: str = "onnx") -> Any:
    """The package onnx, or a module of it, which are imported when they are first needed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise PareoError(MISSING) from error


@dataclass(frozen=True)
class File:
    """An ONNX file whose tensors are all inside its `model`."""

    path: Path
    model: Any
    opset: int


def read_file(path: Path) -> File:
    """Read an ONNX file, and the files beside it that have its weights.

    Raises:
        DataError: it is missing, cut off, altered, or refers to files outside its folder.
    """
    onnx = onnx_module()
    try:
        if not path.is_file():
            raise DataError(f"{path}: there is no such file")
        size = path.stat().st_size
        if size > LARGEST:
            raise DataError(f"{path}: has {size:,} bytes; an ONNX file has less than 2 GiB")
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's, of several kinds
        raise DataError(f"{path}: expected an ONNX file; cannot read its {size:,} bytes") from error
    if not model.HasField("graph") or not model.graph.node:
        raise DataError(f"{path}: expected an ONNX file; it has no graph")
    _check_text(path, model)
    opset = _opset(path, model, onnx.defs.onnx_opset_version())
    _check_order(path, model.graph)
    _load_tensors(path, model)
    return check(File(path, model, opset))


def check(file: File) -> File:
    """The file, after onnx's checker."""
    onnx = onnx_module()
    try:
        onnx.checker.check_model(file.model)
    except onnx.checker.ValidationError as error:
        said = " ".join(str(error).strip().partition("\n")[0].split())
        raise DataError(f"{file.path}: is no valid ONNX file: {said}") from error
    except (ValueError, RuntimeError) as error:  # more than protobuf can write, or a bad name
        said = " ".join(str(error).strip().partition("\n")[0].split())
        raise DataError(f"{file.path}: cannot be checked: {said}") from error
    for node in file.model.graph.node:
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                raise DataError(
                    f"{file.path}: is no valid ONNX file: the attribute {attribute.name!r} of "
                    f"{node.op_type} refers to one of a function, and is in none"
                )
    return file


def _opset(path: Path, model: Any, newest: int) -> int:
    found = [one.version for one in model.opset_import if one.domain in ("", "ai.onnx")]
    if not found:
        raise DataError(f"{path}: does not declare ONNX's operators (its opset)")
    if not OLDEST <= found[0] <= newest:
        raise DataError(
            f"{path}: has the opset {found[0]}; pareo reads {OLDEST} to {newest} "
            "(onnx.version_converter makes one of the other)"
        )
    return int(found[0])


def _check_text(path: Path, model: Any) -> None:
    """Refuse names that are not text, which protobuf gives as bytes."""
    graph = model.graph
    every = [one.domain for one in model.opset_import]
    for node in graph.node:
        attributes = [one.name for one in node.attribute]
        every += [node.name, node.op_type, node.domain, *node.input, *node.output, *attributes]
    for one in (*graph.input, *graph.output, *tensors(model)):
        every.append(one.name)
    for tensor in tensors(model):
        every += [text for entry in tensor.external_data for text in (entry.key, entry.value)]
    if not all(isinstance(text, str) for text in every):
        raise DataError(f"{path}: has names that are not text in UTF-8")


def _check_order(path: Path, graph: Any) -> None:
    """Refuse a graph whose nodes read what comes after them, as in a cycle."""
    known = {"", *(one.name for one in graph.input), *(one.name for one in graph.initializer)}
    for node in graph.node:
        for name in node.input:
            if name not in known:
                raise DataError(
                    f"{path}: the node '{node.name or node.op_type}' reads '{name}', which nothing "
                    "before it makes: the graph has a cycle, is not in order, or is incomplete"
                )
        known.update(node.output)


def tensors(model: Any) -> Iterator[Any]:
    """Every tensor of a model: initialisers, and attributes of nodes."""
    yield from model.graph.initializer
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def _load_tensors(path: Path, model: Any) -> None:
    """Check the size of every tensor, and bring those of other files in."""
    external = onnx_module().TensorProto.EXTERNAL
    taken: dict[Path, int] = {}
    if model.graph.sparse_initializer:
        raise DataError(f"{path}: has sparse initialisers, which pareo does not read")
    for tensor in tensors(model):
        if min(tensor.dims, default=0) < 0:
            raise DataError(f"{path}: the tensor '{tensor.name}' has the shape {[*tensor.dims]}")
        if tensor.data_location == external:
            _load_external(path, tensor, taken)
        elif tensor.HasField("raw_data"):
            expected, found = _bytes(path, tensor), len(tensor.raw_data)
            if expected != found:
                raise _wrong_size(path, tensor, expected, found)


def _bytes(path: Path, tensor: Any) -> int:
    """The bytes that a tensor's shape and type ask for; 4-bit types are packed."""
    helper = onnx_module("onnx.helper")
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except (KeyError, ValueError, TypeError):
        raise DataError(
            f"{path}: the tensor '{tensor.name}' has the unknown type {tensor.data_type}"
        ) from None
    count = math.prod(tensor.dims)
    packed = str(dtype) in ("int4", "uint4", "float4_e2m1fn", "int2", "uint2")
    if packed:
        each = 4 if "2" in str(dtype)[-1:] else 2
        return -(-count // each)
    return int(count * dtype.itemsize)


def _wrong_size(path: Path, tensor: Any, expected: int, found: int) -> DataError:
    return DataError(
        f"{path}: the tensor '{tensor.name}' of shape {[*tensor.dims]} takes {expected:,} bytes, "
        f"but the file has {found:,} for it"
    )


def _load_external(path: Path, tensor: Any, taken: dict[Path, int]) -> None:
    """Read a tensor from a file beside the model's, which must be inside the same folder."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    place = _inside(path, tensor.name, entries.get("location", ""))
    expected = _bytes(path, tensor)
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", expected))
    except ValueError:
        raise DataError(f"{path}: the place of the tensor '{tensor.name}' is no number") from None
    size = place.stat().st_size
    if length != expected or offset < 0 or offset + length > size:
        raise _wrong_size(path, tensor, expected, max(0, min(length, size - offset)))
    taken[place] = taken.get(place, 0) + length
    if taken[place] > size:  # many tensors in the same bytes would take any amount of memory
        raise DataError(f"{path}: its tensors take more bytes than {place.name} has")
    try:
        with place.open("rb") as stream:
            stream.seek(offset)
            data = stream.read(length)
    except OSError as error:
        raise DataError(f"{place}: cannot be read: {error.strerror}") from error
    tensor.raw_data = data
    del tensor.external_data[:]
    tensor.ClearField("data_location")


def _inside(path: Path, name: str, location: str) -> Path:
    """The file at a location, which is relative to the model's folder and does not leave it."""
    folder = path.absolute().parent.resolve()
    try:
        place = (folder / location).resolve()
        found = place.is_file()
    except (OSError, ValueError, RuntimeError):  # too long, with NUL, or links in a circle
        raise DataError(f"{path}: the tensor '{name}' is in a file of no valid name") from None
    if Path(location).is_absolute() or not place.is_relative_to(folder):
        raise DataError(
            f"{path}: the tensor '{name}' is in '{location}', outside the folder of the file"
        )
    if not found:
        raise DataError(f"{path}: the tensor '{name}' is in '{location}', which is no file")
    return place
