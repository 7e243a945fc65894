"""A made-up result of a sweep, for tests of what reads one."""

from typing import Any

from race_result import header

from pareo.lab.experiment import results
from pareo.lab.experiment.results import plain
from pareo.lab.sweep.result import Cell, Memory, SweepResult

PEAK, BANDWIDTH = 70e9, 20e9
FLOPS, PARAMETERS = 4.2e9, 244e6  # of an image; bytes


def sweep(data: dict[str, Any] | None = None) -> SweepResult:
    """The result that a file with these data holds."""
    found = results.checked(made() if data is None else data, "a made-up sweep")
    assert isinstance(found, SweepResult)
    return found


def made(
    seconds: dict[str, dict[int, float]] | None = None,
    short: tuple[tuple[str, int], ...] = (),
    flops: float = FLOPS,
) -> dict[str, Any]:
    """A sweep, as a file has it, with seconds per image by contestant and batch.

    Cells in `short` had too little memory.
    """
    seconds = seconds or {
        "pareo-compiled": {1: 0.12, 2: 0.08, 4: 0.0615, 8: 0.0610},
        "torch": {1: 0.15, 2: 0.12, 4: 0.11, 8: 0.105},
    }
    cells = []
    for name, times in seconds.items():
        for batch, each in times.items():
            cell = Cell(name, batch, status="ok", rounds=list(range(8)),
                        seconds_per_batch=[each * batch] * 8)  # fmt: skip
            cell.parity = {"loss": 1e-7, "parameter": 2e-6, "median": 1e-7}
            cell.memory = Memory(used=600_000_000 + batch, reserved=10**9)
            if cell.ours:
                cell.memory.before, cell.memory.data = 2 * 10**8, 10**8
                cell.memory.program = 3 * 10**8
            cells.append(cell)
    for name, batch in short:
        cell = Cell(name, batch)
        cell.end("memory", "more than 2 GB")
        cells.append(cell)
    batches = sorted({cell.batch for cell in cells})
    return {
        **header("sweep", "alexnet"),
        "data": "made-up images",
        "settings": {
            "network": "alexnet", "batches": batches, "contestants": list(seconds),
            "threads": 2, "data": None, "memory_limit": 2 * 10**9,
        },
        "work": [
            {
                "batch": batch,
                "flops": round(flops * batch),
                "least_bytes": round(2 * PARAMETERS + 6e5 * batch),
                "moved_bytes": round(4 * PARAMETERS + 3e7 * batch),
            }
            for batch in batches
        ],
        "ceilings": [{"place": "cpu", "peak_flops": PEAK, "bandwidth": BANDWIDTH}],
        "cells": plain(cells),
        "limits": [
            {
                "contestant": "torch", "limit": 2 * 10**9, "largest": 28, "used": 1_990_000_000,
                "predicted": None, "note": "", "probes": [],
            }
        ],
    }  # fmt: skip
