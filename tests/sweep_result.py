"""A sweep's result, made up, for tests of what is done with one."""

from typing import Any

from pareo.lab.sweep.cells import MEMORY, OK, Cell

PEAK, BANDWIDTH = 70e9, 20e9
FLOPS, PARAMETERS = 4.2e9, 244e6  # of an image; bytes


def made(
    seconds: dict[str, dict[int, float]] | None = None,
    short: tuple[tuple[str, int], ...] = (),
    flops: float = FLOPS,
) -> dict[str, Any]:
    """Seconds per image by contestant and batch; cells in `short` had too little memory."""
    seconds = seconds or {
        "pareo-compiled": {1: 0.12, 2: 0.08, 4: 0.0615, 8: 0.0610},
        "torch": {1: 0.15, 2: 0.12, 4: 0.11, 8: 0.105},
    }
    cells = []
    for name, times in seconds.items():
        for batch, each in times.items():
            cell = Cell(name, batch, OK, seconds_per_batch=[each * batch] * 8)
            cell.rounds = list(range(8))
            cell.parity = {"loss": 1e-7, "parameter": 2e-6, "median": 1e-7}
            cell.memory = {"used": 600_000_000 + batch, "reserved": 10**9}
            if name.startswith("pareo"):
                cell.memory |= {"before": 2 * 10**8, "data": 10**8, "program": 3 * 10**8}
            cells.append(cell)
    for name, batch in short:
        cell = Cell(name, batch)
        cell.end(MEMORY, "more than 2 GB")
        cells.append(cell)
    batches = sorted({cell.batch for cell in cells})
    return {
        "schema": 1,
        "kind": "sweep",
        "when": "2026-11-15T10:00:00+00:00",
        "machine": {"processor": "Arm Neoverse N1", "cards": [], "idle_cores": 2.0},
        "versions": {"pareo": "0.1.0"},
        "network": "alexnet",
        "data": "made-up images",
        "precision": "float32",
        "settings": {
            "network": "alexnet", "batches": batches, "contestants": list(seconds),
            "threads": 2, "data": None, "memory_limit": 2 * 10**9,
        },
        "work": [
            {
                "batch": batch,
                "flops": flops * batch,
                "least_bytes": 2 * PARAMETERS + 6e5 * batch,
                "moved_bytes": 4 * PARAMETERS + 3e7 * batch,
            }
            for batch in batches
        ],
        "ceilings": [{"place": "cpu", "peak_flops": PEAK, "bandwidth": BANDWIDTH}],
        "cells": [{**cell.as_dict(), "place": "cpu"} for cell in cells],
        "limits": [
            {
                "contestant": "torch", "limit": 2 * 10**9, "largest": 28, "used": 1_990_000_000,
                "predicted": None, "note": "", "probes": [],
            }
        ],
    }  # fmt: skip
