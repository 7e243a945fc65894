"""Whether a checkpoint is of the run that wants to go on from it."""

import hashlib
from pathlib import Path
from typing import Any

from pareo.data import Dataset
from pareo.errors import DataError
from pareo.nn.network import Sequential
from pareo.training import checkpoint as files
from pareo.training.checkpoint import Checkpoint
from pareo.training.definition import describe
from pareo.training.settings import Settings, from_plain


def identity(data: Dataset) -> dict[str, Any]:
    """What tells one set of data from another, without reading all of it."""
    digest = hashlib.sha256(data.labels.tobytes())
    for position in range(0, len(data.images), max(1, len(data.images) // 256)):
        digest.update(data.images[position].tobytes())
    return {
        "name": data.name,
        "images": len(data.images),
        "sha256": digest.hexdigest(),
        "class_names": list(data.class_names),
    }


def resumed(path: Any, network: Sequential, data: Dataset, settings: Settings) -> Checkpoint:
    """The checkpoint to go on from; one of another run is refused."""
    found, file = files.load(path), files.located(path)
    if describe(found.network) != describe(network):
        raise DataError(f"{file}: is of the network {found.network.name}, not of this one")
    from_plain(found.settings, file)
    for name, value in settings.plain().items():
        if found.settings.get(name) != value:
            raise DataError(
                f"{file}: was trained with {name} {found.settings.get(name)}; got {value}"
            )
    if found.data.get("sha256") != identity(data)["sha256"]:
        known = found.data.get("name", "unknown")
        raise DataError(f"{file}: was trained on other data ('{known}') than '{data.name}'")
    if any(a.dtype != settings.dtype for a in found.parameters.values()):
        raise DataError(f"{file}: its tensors are not {settings.dtype}")
    if bool(found.velocities) != (settings.momentum > 0):
        raise DataError(f"{file}: its velocities do not go with momentum {settings.momentum}")
    steps = -(-found.data.get("images", 0) // settings.batch_size)
    if found.step >= max(1, steps) or len(found.history) != found.epoch:
        raise DataError(f"{file}: its epoch, step and history do not go together")
    return found


def target(path: Any, resume: Any) -> Path:
    """The file to write: never one that holds another run."""
    path = Path(path)
    file = path if path.suffix == ".safetensors" and not path.is_dir() else path / files.NAME
    going_on = resume is not None and files.located(resume).resolve() == file.resolve()
    if file.exists() and not going_on:
        raise DataError(f"{file}: holds a run already; resume from it, or choose another place")
    return file
