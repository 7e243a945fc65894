"""Resuming: whether a checkpoint belongs to the run that is to be continued."""

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
from pareo.training.step import slot_specs

BLOCK = 1 << 20  # bytes


def identity(data: Dataset) -> dict[str, Any]:
    """What identifies a dataset: its name, and a fingerprint of all of it."""
    return {
        "name": data.name,
        "images": len(data.images),
        "fingerprint": fingerprint(data),
        "class_names": list(data.class_names),
    }


def fingerprint(data: Dataset) -> str:
    """A digest of every image and label, those for testing included.

    SHA-256 of the CRC-32 of each block: it detects other data, not forgery, and takes a few
    hundredths of a second for MNIST.

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
    """The digest in checkpoints of earlier versions: labels and some of the images."""
    digest = hashlib.sha256(data.labels.tobytes())
    for position in range(0, len(data.images), max(1, len(data.images) // 256)):
        digest.update(data.images[position].tobytes())
    return digest.hexdigest()


def resumed(path: Any, network: Sequential, data: Dataset, settings: Settings) -> Checkpoint:
    """The checkpoint to resume from; one of another run raises `DataError`."""
    found, file = files.load(path), files.located(path)
    if describe(found.network) != describe(network):
        raise DataError(f"{file}: belongs to the network {found.network.name}, not to this one")
    known_settings = from_plain(found.settings, file).plain()
    for name, value in settings.plain().items():
        finished = not found.step and found.epoch == known_settings["epochs"]
        if name == "epochs" and finished and is_more(value, known_settings[name]):
            continue  # the run is extended
        if known_settings[name] != value:
            raise DataError(f"{file}: was trained with {name} {known_settings[name]}; got {value}")
    found.settings = settings.plain()  # as this version writes them
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
    wanted = slot_specs(network, settings.recipe, settings.dtype)
    if found.slots.keys() != wanted.keys():
        raise DataError(f"{file}: its tensors of the optimizer do not match the settings")
    found.slots = {name: found.slots[name] for name in wanted}
    steps = -(-found.data.get("images", 0) // settings.batch_size)
    if found.step >= max(1, steps) or len(found.history) != found.epoch:
        raise DataError(f"{file}: its epoch, step and history do not match")
    found.data = given  # with the fingerprint, which an old checkpoint lacks
    return found


def is_more(epochs: Any, known: Any) -> bool:
    """Whether a run is to have more epochs than it was begun with.

    >>> is_more(80, 40), is_more(20, 40), is_more(None, 40)
    (True, False, False)
    """
    return isinstance(epochs, int) and isinstance(known, int) and epochs > known


def target(path: Any, resume: Any) -> Path:
    """The file to write; one that holds another run raises `DataError`."""
    path = Path(path)
    file = path if path.suffix == ".safetensors" and not path.is_dir() else path / files.NAME
    going_on = resume is not None and files.located(resume).resolve() == file.resolve()
    if file.exists() and not going_on:
        raise DataError(f"{file}: already holds a run; resume from it, or choose another path")
    return file
