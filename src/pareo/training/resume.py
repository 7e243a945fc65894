"""Whether a checkpoint is of the run that wants to go on from it."""

import hashlib
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from pareo.data import Dataset
from pareo.errors import DataError
from pareo.nn.network import Sequential
from pareo.training import checkpoint as files
from pareo.training.checkpoint import Checkpoint
from pareo.training.definition import describe
from pareo.training.settings import Settings, from_plain

BLOCK = 1 << 20  # bytes


def identity(data: Dataset) -> dict[str, Any]:
    """What tells one set of data from another: its name, and a fingerprint of all of it."""
    return {
        "name": data.name,
        "images": len(data.images),
        "fingerprint": fingerprint(data),
        "class_names": list(data.class_names),
    }


def fingerprint(data: Dataset) -> str:
    """A digest of every image and label, those for testing included.

    CRC-32 of each block, and SHA-256 of those: against other data, not against a forger, and so
    fast that MNIST takes some hundredths of a second.

    >>> from pareo.data import load
    >>> data = load("synthetic:16:3:120")
    >>> one = fingerprint(data)
    >>> data.images[17, 3] += 1
    >>> one == fingerprint(data)
    False
    """
    digest = hashlib.sha256()
    for array in (data.images, data.labels, data.test_images, data.test_labels):
        digest.update(f"{array.dtype.str} {array.shape}\0".encode())
        rows = max(1, BLOCK // max(1, array[:1].nbytes))
        for start in range(0, len(array), rows):
            block = np.ascontiguousarray(array[start : start + rows])
            digest.update(zlib.crc32(block.data).to_bytes(4, "little"))
    return digest.hexdigest()


def _sampled(data: Dataset) -> str:
    """What checkpoints held before there was a fingerprint: labels and some of the images."""
    digest = hashlib.sha256(data.labels.tobytes())
    for position in range(0, len(data.images), max(1, len(data.images) // 256)):
        digest.update(data.images[position].tobytes())
    return digest.hexdigest()


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
    given, known = identity(data), found.data
    if "fingerprint" in known:
        same = known["fingerprint"] == given["fingerprint"]
    else:
        same = known.get("sha256") == _sampled(data)
    if not same:
        name = known.get("name", "unknown")
        raise DataError(f"{file}: was trained on other data ('{name}') than '{data.name}'")
    if any(a.dtype != settings.dtype for a in found.parameters.values()):
        raise DataError(f"{file}: its tensors are not {settings.dtype}")
    if bool(found.velocities) != (settings.momentum > 0):
        raise DataError(f"{file}: its velocities do not go with momentum {settings.momentum}")
    steps = -(-found.data.get("images", 0) // settings.batch_size)
    if found.step >= max(1, steps) or len(found.history) != found.epoch:
        raise DataError(f"{file}: its epoch, step and history do not go together")
    found.data = given  # with its fingerprint, which an old checkpoint lacks
    return found


def target(path: Any, resume: Any) -> Path:
    """The file to write: never one that holds another run."""
    path = Path(path)
    file = path if path.suffix == ".safetensors" and not path.is_dir() else path / files.NAME
    going_on = resume is not None and files.located(resume).resolve() == file.resolve()
    if file.exists() and not going_on:
        raise DataError(f"{file}: holds a run already; resume from it, or choose another place")
    return file
