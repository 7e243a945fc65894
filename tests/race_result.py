"""A made-up result of a race, for tests of what reads one."""

from typing import Any

import numpy as np

from pareo.lab.experiment import results
from pareo.lab.race.result import RaceResult

# seconds per epoch, noise, peak memory in MiB
TIMES = {
    "pareo-compiled": (1.31, 0.01, 210),
    "torch": (2.74, 0.02, 640),
    "torch-default": (3.02, 0.02, 655),
    "jax": (3.9, 0.03, 720),
    "pareo-vectorized": (6.4, 0.02, 240),
    "pareo-sequential": (5200.0, 0.01, 190),
}


FLOOR = {
    "place": "cpu",
    "precision": "float32",
    "seconds_per_epoch": 0.42,
    "why": "arithmetic",
    "peak_flops": 83e9,
    "bandwidth": None,
}


def race(data: dict[str, Any] | None = None) -> RaceResult:
    """The result that a file with these data holds."""
    found = results.checked(made() if data is None else data, "a made-up race")
    assert isinstance(found, RaceResult)
    return found


def made(slowed: dict[str, float] | None = None, seed: int = 1, rounds: int = 20) -> dict[str, Any]:
    """A race on two cores, as a file has it; contestants in `slowed` take so many times as long."""
    draw = np.random.default_rng(seed)
    rows = []
    for name, (seconds, noise, mebibytes) in TIMES.items():
        seconds *= (slowed or {}).get(name, 1.0)
        samples = seconds * (1 + noise * draw.standard_normal(rounds))
        rows.append(row(name, [round(float(s), 6) for s in samples], mebibytes << 20))
    note = "the gradient of layers.0.bias differs by 1.0e-02 of its norm; 2.0e-05 is allowed"
    rows.append(row("wrong", [], None, "refused", note))
    rows.append(row("tensorflow", [], None, "missing", "install it with: pip install tensorflow"))
    return {
        "schema": 2,
        "kind": "race",
        "when": "2026-11-15T08:00:00+00:00",
        "machine": {
            "processor": "Arm Neoverse V2",
            "architecture": "aarch64",
            "cores": 2,
            "memory_bytes": 8 << 30,
            "python": "3.12.3",
            "cards": [],
        },
        "versions": {"pareo": "0.1.0", "numpy": "2.4.6", "torch": "2.13.0", "jax": "0.10.2"},
        "network": "papers-cnn",
        "data": "mnist",
        "batch": 128,
        "precision": "float32",
        "threads": 2,
        "images": 60_000,
        "flops": 75_000_000,
        "rows": rows,
    }


def header(kind: str, network: str) -> dict[str, Any]:
    """What a result of another kind begins with, as a file has it."""
    return {
        "schema": 1,
        "kind": kind,
        "when": "2026-11-15T10:00:00+00:00",
        "machine": {"processor": "Arm Neoverse N1", "cards": [], "idle_cores": 2.0},
        "versions": {"pareo": "0.1.0"},
        "network": network,
        "precision": "float32",
    }


def row(
    name: str, samples: list[float], peak: int | None, status: str = "ok", note: str = ""
) -> dict[str, Any]:
    """A contestant's row."""
    timed = bool(samples)
    share = 0.001 if name == "pareo-sequential" else 1.0
    whole = timed and share == 1
    return {
        "contestant": name,
        "status": status,
        "note": note,
        "samples": samples,
        "rounds": list(range(len(samples))),
        "slice": share,
        "first_call": 1.9 if timed else None,
        "floor": dict(FLOOR),
        "parity": {"loss": 3e-8, "parameter": 4e-7, "median": 8e-8, "steps": 2} if timed else {},
        "ledger": {
            "precision": "float32",
            "layout": "NCHW",
            "mode": "default",
            "threads": 2,
            "version": "2.13.0",
            "first_layer_data_gradient": False,
            "peak_memory_bytes": peak,
            "settings_tried": ["channels_last", "compile"],
        }
        if timed
        else {},
        "curve": curve(samples[0]) if whole else [],
    }


def curve(seconds: float, epochs: int = 10) -> list[dict[str, float]]:
    """Losses and accuracies by epoch, as a network that learns has them."""
    return [
        {
            "epoch": epoch,
            "seconds": round(seconds * epoch, 4),
            "loss": round(0.4 / epoch, 5),
            "accuracy": round(0.988 - 0.12 / epoch**1.5, 5),
        }
        for epoch in range(1, epochs + 1)
    ]
