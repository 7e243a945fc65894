"""Ceilings on disk: one file for each machine, set of versions and number of threads."""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pareo import machine
from pareo.cache import cache_folder, write
from pareo.device import Device
from pareo.errors import DataError
from pareo.lab.experiment.results import Check
from pareo.lab.machine.ceilings.model import KINDS, Ceilings, Level, Probe

SCHEMA = 1
PROBES = 3  # grows when more is measured, or otherwise, so that it is


def key_of(device: Device) -> dict[str, Any]:
    """What a measurement holds for: with another of these it is made anew."""
    cards = machine.gpus() if device.name == "cuda" else []
    return {
        "probes": PROBES,
        "device": str(device) if device.name == "cuda" else "cpu",
        "processor": machine.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": machine.memory(),
        "threads": device.threads,
        "cards": [[card.name, card.driver] for card in cards],
        "libraries": machine.libraries(),
    }


def place_of(key: Mapping[str, Any]) -> tuple[str, str]:
    """The file of a key, in the cache folder."""
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return "ceilings", f"{digest[:16]}.json"


def load(key: Mapping[str, Any]) -> Ceilings | None:
    """What is kept for a key; None where nothing is, or where it is damaged."""
    try:
        path = cache_folder().joinpath(*place_of(key))
        found = from_plain(json.loads(path.read_text(encoding="utf-8")), "ceilings")
    except (OSError, ValueError, RecursionError):
        return None
    return found if found.key == key else None


def save(ceilings: Ceilings) -> Path | None:
    """Keep ceilings; None where no folder can be written: they are measured again next time."""
    return write(json.dumps(to_plain(ceilings), indent=1).encode(), *place_of(ceilings.key))


def to_plain(ceilings: Ceilings) -> dict[str, Any]:
    """Ceilings as JSON has them, with every sample."""
    return {
        "schema": SCHEMA,
        "device": ceilings.device,
        "key": dict(ceilings.key),
        "when": ceilings.when,
        "levels": [asdict(level) for level in ceilings.levels],
        "samples": [
            {**asdict(probe), "samples": list(samples)}
            for probe, samples in ceilings.samples.items()
        ],
        "datasheet": dict(ceilings.datasheet),
        "idle_cores": ceilings.idle_cores,
    }


def from_plain(found: Any, source: str) -> Ceilings:
    """The opposite; a DataError where the data is not what it should be."""
    check = Check(source)
    try:
        levels = tuple(Level(**level) for level in found["levels"])
        for number, level in enumerate(levels):
            check.field(level.name, f"levels[{number}].name", str, "text")
            check.number(level.nbytes, f"levels[{number}].nbytes", above=0)
            check.number(level.shared_by, f"levels[{number}].shared_by", above=0)
        samples = {}
        for row in found["samples"]:
            taken = tuple(float(value) for value in row["samples"])
            probe = Probe(**{name: value for name, value in row.items() if name != "samples"})
            if probe.kind not in KINDS or not taken:
                raise ValueError(f"a sample of {probe.kind!r:.40}")
            if not all(math.isfinite(value) and value > 0 for value in taken):
                raise ValueError("a sample that is no positive number")
            for name in ("name", "by"):
                check.field(getattr(probe, name), f"a sample's {name}", str, "text")
            for name in ("threads", "size"):
                check.number(getattr(probe, name), f"a sample's {name}", least=0)
            samples[probe] = taken
        if found["schema"] != SCHEMA:
            raise ValueError(f"schema {found['schema']!r:.40}")
        device, when = str(found["device"]), str(found["when"])
        sheet = {name: found["datasheet"][name] for name in ("flops", "bandwidth", "source")}
        check.field(sheet["source"], "datasheet.source", str, "text")
        check.number_or_none(sheet["bandwidth"], "datasheet.bandwidth")
        for name, flops in sheet["flops"].items():
            check.number_or_none(flops, f"datasheet.flops.{name}")
        idle = None if found["idle_cores"] is None else float(found["idle_cores"])
        check.field(found["key"], "key", dict, "an object")
        check.number_or_none(found["key"].get("memory_bytes"), "key.memory_bytes", 0)
        return Ceilings(device, found["key"], when, levels, samples, sheet, idle)
    except DataError:
        raise
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise DataError(f"{source}: expected this machine's ceilings; got: {error}") from error
