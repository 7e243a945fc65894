"""Checkpoints: a training run in one safetensors file, written atomically.

The file holds the parameters with the state of layers, and under `optimizer.` the arrays of the
optimizer (`optimizer.velocity.` and so on) and the moving average of the parameters
(`optimizer.average.`). Its metadata are one JSON text `pareo` (network, position, settings,
history) and `sha256`, a digest of that text and all tensors. Any framework can read the tensors,
and nothing in the file is executed.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from pareo import strict_json
from pareo.errors import DataError, WriteError
from pareo.nn.layers import Parameter
from pareo.nn.network import Sequential
from pareo.regular_file import regular
from pareo.strict_json import shown
from pareo.training.definition import describe, rebuild
from pareo.training.history import History
from pareo.training.recipe import AVERAGE

FORMAT = 1
SLOT = "optimizer."
OLD_VELOCITY = "velocity."  # the prefix of velocities in files of earlier versions
NAME = "last.safetensors"
BEST = "best.safetensors"


@dataclass
class Checkpoint:
    """A network with its weights, and the state of its training.

    epoch and step: how many epochs are done, and how many steps of the present one
    settings:       those of `fit`, as values that JSON can represent
    partial:        the sum of losses and the seconds of the present epoch
    data:           name, class names and a fingerprint of the data it was trained on
    place:          the device and its threads, which the bits depend on
    """

    network: Sequential
    parameters: dict[str, Any]
    slots: dict[str, Any] = field(default_factory=dict)
    epoch: int = 0
    step: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    history: History = field(default_factory=History)
    partial: dict[str, float] = field(default_factory=lambda: {"loss": 0.0, "seconds": 0.0})
    data: dict[str, Any] = field(default_factory=dict)
    place: dict[str, Any] = field(default_factory=dict)

    @property
    def weights(self) -> dict[str, Any]:
        """What was tested: the moving average of the parameters, or else they themselves."""
        return averaged(self.parameters, self.slots)


def averaged(parameters: Mapping[str, Any], slots: Mapping[str, Any]) -> dict[str, Any]:
    """The moving average in the slots; the parameters if there is none.

    >>> averaged({"w": 1}, {"velocity.w": 2}), averaged({"w": 1}, {"average.w": 3})
    ({'w': 1}, {'w': 3})
    """
    return {path: slots.get(f"{AVERAGE}.{path}", a) for path, a in parameters.items()}


def save(
    path: str | os.PathLike[str],
    network: Sequential,
    parameters: Mapping[str, Any],
    **more: Any,
) -> None:
    """Write a network and its weights to a file; an existing file is replaced atomically.

    `more` is any other field of a `Checkpoint`.

    >>> import tempfile
    >>> from pareo.nn import networks
    >>> network = networks.papers_cnn()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Path(folder) / "cnn.safetensors", network, network.initialise(seed=0))
    ...     load(Path(folder) / "cnn.safetensors").network.name
    'papers-cnn'
    """
    write(path, Checkpoint(network, dict(parameters), **more))


def write(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write a checkpoint to a temporary file, sync it, and rename it to its path."""
    from safetensors.numpy import save_file

    path = Path(path)
    tensors = {name: np.asarray(a, order="C") for name, a in checkpoint.parameters.items()}
    for name, a in checkpoint.slots.items():
        tensors[SLOT + name] = np.asarray(a, order="C")
    text = json.dumps(
        {
            "format": FORMAT,
            "network": describe(checkpoint.network),
            "epoch": checkpoint.epoch,
            "step": checkpoint.step,
            "settings": checkpoint.settings,
            "history": checkpoint.history.plain(),
            "partial": checkpoint.partial,
            "data": checkpoint.data,
            "place": checkpoint.place,
        }
    )
    metadata = {"pareo": text, "sha256": _digest(text, tensors)}
    beside = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, beside, metadata)
        with beside.open("rb+") as stream:
            os.fsync(stream.fileno())
        os.replace(beside, path)
        _sync_directory(path.parent)
    except Exception as error:  # safetensors has one exception for everything that goes wrong
        with suppress(OSError):  # a part of a file would fill a disk that is full already
            beside.unlink(missing_ok=True)
        reason = getattr(error, "strerror", None) or str(error)
        raise unwritable(path, reason) from error


def keep(file: Path, name: str) -> None:
    """Keep a checkpoint as it is now, under another name beside it, atomically.

    The next checkpoint replaces `file` and does not change the one that is kept.
    """
    beside, kept = file.with_name(f".{name}.partial"), file.with_name(name)
    try:
        beside.unlink(missing_ok=True)
        try:
            os.link(file, beside)
        except OSError:  # a file system without hard links
            shutil.copyfile(file, beside)
        os.replace(beside, kept)
        _sync_directory(file.parent)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise unwritable(kept, error.strerror or str(error)) from error


def unwritable(path: Path, reason: str) -> DataError:
    """The error for a checkpoint that cannot be written."""
    return WriteError(f"{path}: the checkpoint cannot be written: {reason}")


def _sync_directory(directory: Path) -> None:
    """Make the rename durable, too."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load(path: str | os.PathLike[str]) -> Checkpoint:
    """Return the checkpoint in a file, or the last one in a directory; see `save`.

    Raises:
        DataError: the file is missing, truncated, altered, or was not written by pareo.
    """
    path = located(path)
    tensors, metadata = _read(path)
    text = metadata.get("pareo")
    if text is None:
        raise DataError(f"{path}: is a safetensors file, but not a checkpoint of pareo")
    if metadata.get("sha256") != _digest(text, tensors):
        raise DataError(f"{path}: was altered: its SHA-256 does not match the one in the file")
    try:
        return _parsed(strict_json.loads(text, allow_nan=True), tensors)
    except (
        DataError, KeyError, TypeError, ValueError, ArithmeticError, RecursionError, MemoryError,
    ) as error:  # fmt: skip  # the last ones from layers whose numbers make no sense
        reason = f"no {error}" if isinstance(error, KeyError) else str(error) or "no sense"
        reason = " ".join(reason.split())[:300]
        raise DataError(f"{path}: expected a checkpoint of pareo; got: {reason}") from error


def located(path: str | os.PathLike[str]) -> Path:
    """The file at a path, or the last checkpoint in the directory at a path."""
    path = Path(path)
    return path / NAME if path.is_dir() else path


def _read(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        regular(path).open("rb").close()  # safetensors does not report why a file cannot be read
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118
    except OSError as error:
        raise DataError(f"{path}: expected a checkpoint; got: {error.strerror}") from error
    except MemoryError as error:
        raise DataError(f"{path}: does not fit in memory") from error
    except (SafetensorError, ValueError, TypeError, AttributeError, KeyError) as error:
        size = path.stat().st_size
        raise DataError(
            f"{path}: expected a complete safetensors file; cannot read its {size:,} bytes: {error}"
        ) from error


def _digest(text: str, tensors: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\0{name}\0{array.dtype}\0{array.shape}\0".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _parsed(found: Any, tensors: Mapping[str, Any]) -> Checkpoint:
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        version = found.get("format") if isinstance(found, dict) else None
        raise DataError(f"its format is {shown(version)}; this version of pareo reads {FORMAT}")
    network = rebuild(found["network"])
    if not isinstance(network, Sequential) or network.input_shape is None:
        raise DataError("its network has no input_shape")
    wanted = network.parameters(network.inputs)
    if not any(path.startswith((SLOT, OLD_VELOCITY)) for path in wanted):
        tensors = {
            SLOT + name if name.startswith(OLD_VELOCITY) else name: a for name, a in tensors.items()
        }
    kept = [name for name in tensors if name.startswith(SLOT) and name not in wanted]
    slots = {name[len(SLOT) :]: tensors[name] for name in kept}
    ordered = _in_order(network, {p: a for p, a in tensors.items() if p not in kept})
    _check_slots(wanted, slots, ordered)
    epoch, step = found["epoch"], found["step"]
    if not all(type(number) is int and number >= 0 for number in (epoch, step)):
        raise DataError(f"its epoch and step are {shown(epoch)} and {shown(step)}")
    partial = found["partial"]
    if (
        not isinstance(partial, dict)
        or set(partial) != {"loss", "seconds"}
        or not all(type(value) in (int, float) for value in partial.values())
    ):
        raise DataError(f"its sums are {shown(partial)}")
    for name in ("settings", "data", "place"):
        if not isinstance(found[name], dict):
            raise DataError(f"its {name} are {shown(found[name])}")
    try:
        msgspec.convert(found["data"], _Data)
    except msgspec.ValidationError as error:
        raise DataError(f"its data: {error}") from error
    history = History.from_plain(found["history"])
    return Checkpoint(
        network, ordered, slots, epoch, step, found["settings"], history, partial,
        found["data"], found["place"],
    )  # fmt: skip


@dataclass
class _Data:
    """What is known of the data, by `resume.identity`; a file with weights alone has nothing."""

    name: str = ""
    images: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)] = 0
    fingerprint: str | None = None
    sha256: str | None = None
    class_names: list[str] | None = None


def _check_slots(
    wanted: Mapping[str, Parameter], slots: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Raise an error for slots that belong to no parameter; `resumed` checks which there are."""
    for name, array in slots.items():
        _, _, path = name.partition(".")
        if (
            path not in wanted
            or array.shape != wanted[path].shape
            or array.dtype != arrays[path].dtype
        ):
            raise DataError(f"its tensor {SLOT}{name} does not match the network's")
    average = [path for path in wanted if f"{AVERAGE}.{path}" in slots]
    if average and len(average) < len(wanted):
        raise DataError("its moving average lacks some of the parameters")


def _in_order(network: Sequential, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays in the order of the network's parameters, if they match these."""
    wanted = network.parameters(network.inputs)
    if set(wanted) != set(arrays):
        wrong = sorted(set(wanted) ^ set(arrays))
        raise DataError(f"its tensors do not match the network's: {', '.join(wrong[:3])}")
    dtypes = {array.dtype for array in arrays.values()}
    if len(dtypes) > 1 or not all(np.issubdtype(kind, np.floating) for kind in dtypes):
        raise DataError(f"its tensors have the dtypes {', '.join(sorted(map(str, dtypes)))}")
    for path, parameter in wanted.items():
        if arrays[path].shape != parameter.shape:
            raise DataError(
                f"its tensor {path} has the shape {arrays[path].shape}; "
                f"the network expects {parameter.shape}"
            )
    return {path: arrays[path] for path in wanted}
