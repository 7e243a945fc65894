"""A sweep's result from outside: checked before anything uses it."""

from typing import Any

from pareo.lab.experiment.results import Check
from pareo.lab.sweep.cells import STATUSES

SCHEMA = 1
MEMORY = ("used", "reserved", "before", "data", "program")


def checked(result: Any, source: str) -> dict[str, Any]:
    """The result, if it is a sweep's; otherwise a DataError says which field is wrong."""
    check = Check(source)
    check.field(result, "", dict, "an object")
    if result.get("kind") != "sweep" or result.get("schema") != SCHEMA:
        check.wrong("schema", f"a sweep's result with schema {SCHEMA}", result.get("schema"))
    for name in ("when", "network", "data", "precision"):
        check.field(result.get(name), name, str, "text")
    check.machine(result.get("machine"))
    for name in ("versions", "settings"):
        check.field(result.get(name), name, dict, "an object")
    check.number(result["settings"].get("threads"), "settings.threads", least=1)
    check.number_or_none(result["settings"].get("memory_limit"), "settings.memory_limit")
    for name in ("work", "ceilings", "cells", "limits"):
        check.field(result.get(name), name, list, "a list")
        for number, one in enumerate(result[name]):
            check.field(one, f"{name}[{number}]", dict, "an object")
    _work(check, result)
    for number, cell in enumerate(result["cells"]):
        _cell(check, cell, f"cells[{number}]", {one["batch"] for one in result["work"]})
    for number, one in enumerate(result["limits"]):
        place = f"limits[{number}]"
        check.field(one.get("contestant"), f"{place}.contestant", str, "text")
        check.field(one.get("note"), f"{place}.note", str, "text")
        check.field(one.get("probes"), f"{place}.probes", list, "a list")
        check.number(one.get("limit"), f"{place}.limit", least=0)
        check.numbers_or_none(one, place, ("largest", "used", "predicted"))
    return dict(result)


def _work(check: Check, result: dict[str, Any]) -> None:
    for number, one in enumerate(result["work"]):
        for name in ("batch", "flops", "least_bytes", "moved_bytes"):
            check.number(one.get(name), f"work[{number}].{name}", above=0)
    for number, one in enumerate(result["ceilings"]):
        check.field(one.get("place"), f"ceilings[{number}].place", str, "text")
        check.numbers_or_none(one, f"ceilings[{number}]", ("peak_flops", "bandwidth"))


def _cell(check: Check, cell: dict[str, Any], place: str, batches: set[int]) -> None:
    for name in ("contestant", "note", "place"):
        check.field(cell.get(name), f"{place}.{name}", str, "text")
    if cell.get("status") not in STATUSES:
        check.wrong(f"{place}.status", f"one of {', '.join(STATUSES)}", cell.get("status"))
    check.number(cell.get("batch"), f"{place}.batch", least=1)
    if cell["batch"] not in batches:
        check.wrong(f"{place}.batch", "a batch size that `work` has", cell["batch"])
    check.field(cell.get("began", ""), f"{place}.began", str, "text")
    check.turn(cell.get("turn", {}), f"{place}.turn")
    for name in ("seconds_per_batch", "rounds"):
        check.field(cell.get(name), f"{place}.{name}", list, "a list")
    for number, seconds in enumerate(cell["seconds_per_batch"]):
        check.number(seconds, f"{place}.seconds_per_batch[{number}]", above=0)
    for name in ("memory", "parity", "ledger"):
        check.field(cell.get(name), f"{place}.{name}", dict, "an object")
    for name in MEMORY:
        check.number_or_none(cell["memory"].get(name), f"{place}.memory.{name}")
