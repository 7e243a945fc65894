"""Several sweeps of one network as one: other batch sizes, other contestants, another day.

Cells of one sweep were interleaved and those of two were not. So every cell says of which it is
(`sweep`, a number), and who is ahead is told within each.
"""

from typing import Any

from pareo.errors import DataError


def together(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The sweeps as one result, by their age; the keys are where each is from, to be told."""
    (source, first), *others = results.items()
    for name, other in others:
        for what, told in _told(first).items():
            if _told(other)[what] != told:
                raise DataError(
                    f"{name}: expected {what} {told}, as in {source}; got {_told(other)[what]}"
                )
    every = sorted(results.values(), key=lambda one: str(one["when"]))
    timed = {_key(cell) for one in every for cell in one["cells"] if cell["seconds_per_batch"]}
    cells = [
        {**cell, "sweep": number, "note": cell["note"] or f"in the sweep of {_day(one)}"}
        for number, one in enumerate(every)
        for cell in one["cells"]
        if cell["seconds_per_batch"] or _key(cell) not in timed
    ]
    work = {entry["batch"]: entry for one in every for entry in one["work"]}
    idle = [one["machine"].get("idle_cores") for one in every]
    least = min((cores for cores in idle if cores is not None), default=None)
    return {
        **every[-1],
        "machine": {**every[-1]["machine"], "idle_cores": least},
        "settings": {**every[-1]["settings"], "batches": sorted(work)},
        "work": [work[batch] for batch in sorted(work)],
        "ceilings": _highest([entry for one in every for entry in one["ceilings"]]),
        "cells": sorted(cells, key=lambda cell: int(cell["batch"])),
        "limits": [entry for one in every for entry in one["limits"]],
    }


def _told(result: dict[str, Any]) -> dict[str, Any]:
    """What must be the same."""
    machine = result["machine"]
    cards = [str(card.get("name")) for card in machine.get("cards") or []]
    return {
        "network": result["network"],
        "precision": result["precision"],
        "data": result["data"],
        "pixels": result["settings"].get("size"),
        "threads": result["settings"]["threads"],
        "machine": ", ".join([str(machine.get("processor")), *cards]),
    }


def _key(cell: dict[str, Any]) -> tuple[str, int]:
    return cell["contestant"], cell["batch"]


def _day(result: dict[str, Any]) -> str:
    return str(result["when"])[:16].replace("T", " ")


def _highest(ceilings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The best that was measured in each place."""
    found: dict[str, dict[str, Any]] = {}
    for one in ceilings:
        best = found.setdefault(one["place"], dict(one))
        for name in ("peak_flops", "bandwidth"):
            best[name] = max(best[name] or 0.0, one[name] or 0.0) or None
    return list(found.values())
