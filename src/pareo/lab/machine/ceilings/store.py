"""Ceilings on disk: one file for each machine, set of versions and number of threads."""

import hashlib
import json
import os
from pathlib import Path

from pareo import machine
from pareo.cache import cache_folder, write
from pareo.device import Device
from pareo.errors import DataError
from pareo.lab.experiment import results
from pareo.lab.machine.ceilings.model import Ceilings, Key

PROBES = 3  # raised when other things are measured, or in another way


def key_of(device: Device) -> Key:
    """What a measurement of this device holds for."""
    gpus = machine.gpus() if device.name == "cuda" else []
    return Key(
        probes=PROBES,
        device=str(device) if device.name == "cuda" else "cpu",
        processor=machine.processor(),
        cores=os.cpu_count(),
        memory_bytes=machine.memory(),
        threads=device.threads,
        cards=[(gpu.name, gpu.driver) for gpu in gpus],
        libraries=machine.libraries(),
    )


def load(key: Key) -> Ceilings | None:
    """The ceilings that are kept for a key; None if there are none, or if the file is damaged."""
    try:
        text = cache_folder().joinpath(*_place(key)).read_text(encoding="utf-8")
        found = results.convert(json.loads(text), Ceilings, "ceilings")
    except (DataError, OSError, ValueError, RecursionError):
        return None
    return found if found.key == key else None


def save(ceilings: Ceilings) -> Path | None:
    """Keep ceilings; None if no directory can be written: they are measured again next time.

    Those that they replace stay in a file beside it, for `changes`.
    """
    folder, name = _place(ceilings.key)
    before = load(ceilings.key)
    if before is not None and before.when != ceilings.when:
        write(results.to_json(before).encode(), folder, f"before-{name}")
    return write(results.to_json(ceilings).encode(), folder, name)


def _place(key: Key) -> tuple[str, str]:
    """The file of a key, in the cache directory."""
    text = json.dumps(results.plain(key), sort_keys=True)
    return "ceilings", f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
