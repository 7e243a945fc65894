"""An earlier result of a paper, from which `pareo paper --resume` goes on."""

from pathlib import Path
from typing import Any

from pareo.errors import DataError
from pareo.lab.experiment.experiment import surroundings
from pareo.lab.experiment.results import Machine, read, versions
from pareo.lab.replication.result import PaperResult


def earlier(path: Path, name: str, quick: bool) -> PaperResult:
    """The result in a file, of the same paper on this machine; DataError says what differs."""
    found = read(path)
    if not isinstance(found, PaperResult):
        raise DataError(f"{path}: expected a result of `pareo paper`; got one of {found.kind}")
    if found.paper != name:
        raise DataError(f"{path}: expected a result of {name}; got one of {found.paper}")
    if found.quick != quick:
        words = {True: "with --quick", False: "without --quick"}
        raise DataError(f"{path}: expected a result {words[quick]}; got one {words[found.quick]}")
    here = surroundings(Machine.here(), versions())
    if differs := different(here, surroundings(found.machine, found.versions)):
        raise DataError(f"{path}: expected a result of this machine and versions; {differs}")
    return found


def different(here: dict[str, Any], there: dict[str, Any]) -> str:
    """What first differs between two surroundings, in words; empty where nothing does.

    >>> old = {"versions": {"torch": "2.10"}, "machine": ["a processor", 2], "cards": []}
    >>> different({**old, "versions": {"torch": None}}, old)
    'torch is not installed here, 2.10 there'
    >>> different({**old, "cards": [["NVIDIA H200", "580.1"]]}, old)
    'GPU is NVIDIA H200 with driver 580.1 here, none there'
    """
    pairs = [
        (name, *(one["versions"].get(name) or "not installed" for one in (here, there)))
        for name in {**here["versions"], **there["versions"]}
    ]
    for name, words in (("processor", _processor), ("GPU", _gpus)):
        pairs.append((name, words(here), words(there)))
    return next((f"{name} is {a} here, {b} there" for name, a, b in pairs if a != b), "")


def _processor(found: dict[str, Any]) -> str:
    name, cores = found["machine"]
    return f"{name or 'unknown'} with {cores} cores"


def _gpus(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} with driver {driver}" for name, driver in found["cards"]) or "none"
