"""What `pareo parallel` measures, put together as one result: plain data, as JSON holds it."""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from pareo import __version__, machine
from pareo.device import Device
from pareo.lab.papers import costa_banevicius as paper
from pareo.lab.parallel.engine import Row, Watch, amdahl, race
from pareo.lab.parallel.papers import SERIAL, flops, papers_data, pareo_ways, torch_ways
from pareo.lab.parallel.strategies import AFTER, ALONE, data_for, ways
from pareo.nn.network import Sequential
from pareo.parallel.trials.prediction import predict
from pareo.parallel.trials.trial import Trial
from pareo.training.floor import matrix_peak

SCHEMA = 1
PAYS = 1.05  # times as fast as one worker, before another worker is worth its while


def measure(
    network: Sequential,
    batch: int,
    workers: Sequence[int],
    tasks: int,
    rounds: int,
    seconds: float,
    sizes: Sequence[int],
    watch: Watch,
) -> dict[str, Any]:
    """Every strategy with every number of workers, then each at other batch sizes.

    The task strategies train `tasks` networks, with other weights and orders each.
    """
    most = max(workers)
    about = _about("parallel", f"{network.name}", batch)
    with ExitStack() as stack:
        data = data_for(network, batch, seconds)
        rows = race(ways(network, data, batch, workers, tasks, stack), rounds, watch)
    other: list[dict[str, Any]] = []
    for size in sizes:
        if most == 1:
            break
        with ExitStack() as stack:
            few = data_for(network, size, seconds / 2)
            entered = ways(network, few, size, [most], tasks, stack)
            found = race(entered, max(1, rounds // 2), watch)
        for row in found:
            speed = speedup(row, found)
            if row.workers > 1:
                other.append({"strategy": row.name, "batch": size, "speedup": finite(speed)})
    trials = [Trial(network, batch_size=batch, seed=seed) for seed in range(tasks)]
    expected = predict(trials, data, Device("compiled", most))
    return {
        **about,
        "images": len(data.images),
        "test_images": len(data.test_images),
        "workers": list(workers),
        "rows": [_plain(row, rows) for row in rows],
        "strategies": strategies(rows),
        "sizes": other,
        "pays_from": pays_from(other, batch, rows),
        "prediction": {"how": expected.how, "seconds": expected.seconds, "words": str(expected)},
    }


def measure_papers(images: int, cores: int, rounds: int, torch: bool, watch: Watch) -> Any:
    """The fourth paper's experiment, and ours beside it."""
    about = _about("parallel-papers", "mlp-small, mlp-medium, mlp-big", paper.BATCH)
    data = papers_data(images)
    peak = matrix_peak(cores)
    with ExitStack() as stack:
        entered = pareo_ways(data, cores, stack)
        entered += torch_ways(data, cores, stack) if torch else []
        rows = race(entered, rounds, watch)
    work = flops(data)
    best = max((work / (3 * row.each) for row in rows if row.train), default=0.0)
    peak = matrix_peak(cores, reached=best)
    plain = [_plain(row, rows) for row in rows]
    for row, found in zip(rows, plain, strict=True):
        found["of_peak"] = finite(work / (row.networks * row.each) / peak)
    return {
        **about,
        "images": len(data.images),
        "test_images": len(data.test_images),
        "workers": [cores],
        "flops": work,
        "sgemm_peak": peak,
        "rows": plain,
        "published": {
            "epochs": paper.EPOCHS,
            "seconds": {name: list(times) for name, times in paper.PUBLISHED.items()},
        },
    }


def _about(kind: str, network: str, batch: int) -> dict[str, Any]:
    idle = machine.idle_cores()
    return {
        "schema": SCHEMA,
        "kind": kind,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {**machine.describe(), "idle_cores": idle},
        "versions": {"pareo": __version__, **machine.libraries()},
        "network": network,
        "batch": batch,
    }


def base_of(row: Row, rows: Sequence[Row]) -> Row | None:
    """Whom a way is held against: one worker on as many networks, of the same contestant."""
    for name in (ALONE, AFTER, SERIAL):
        for other in rows:
            alike = other.networks == row.networks and other.contestant == row.contestant
            if other.name == name and alike and other.train:
                return other
    return None


def speedup(row: Row, rows: Sequence[Row], test: bool = False) -> float:
    """Times as fast as one worker; NaN where either has no time."""
    base = base_of(row, rows)
    if base is None or not (row.test if test else row.train):
        return math.nan
    return base.each_test / row.each_test if test else base.each / row.each


def _plain(row: Row, rows: Sequence[Row]) -> dict[str, Any]:
    faster = speedup(row, rows)
    return {
        **asdict(row),
        "seconds": finite(row.each),
        "test_seconds": finite(row.each_test),
        "speedup": finite(faster),
        "efficiency": finite(faster / row.workers),
        "test_speedup": finite(speedup(row, rows, test=True)),
    }


def finite(value: float) -> float | None:
    """A number as JSON may hold it."""
    return value if math.isfinite(value) else None


def strategies(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For each strategy its speedups by workers, and what Amdahl's law makes of them."""
    found = []
    for name in dict.fromkeys(row.name for row in rows if row.workers > 1):
        own = {row.workers: speedup(row, rows) for row in rows if row.name == name and row.train}
        serial = amdahl(own)
        found.append(
            {
                "strategy": name,
                "speedups": {str(count): finite(value) for count, value in own.items()},
                "serial_share": serial,
                "limit": None if not serial else 1 / serial,
            }
        )
    return found


def pays_from(
    other: Sequence[dict[str, Any]], batch: int, rows: Sequence[Row]
) -> dict[str, int | None]:
    """The batch size from which on each strategy pays; None where the largest does not."""
    most = max(row.workers for row in rows)
    seen = [*other]
    for row in rows:
        if row.workers == most > 1:
            faster = finite(speedup(row, rows))
            seen.append({"strategy": row.name, "batch": batch, "speedup": faster})
    found: dict[str, int | None] = {}
    for name in dict.fromkeys(entry["strategy"] for entry in seen):
        found[name] = None
        for entry in sorted((e for e in seen if e["strategy"] == name), key=lambda e: -e["batch"]):
            if not entry["speedup"] or entry["speedup"] < PAYS:
                break
            found[name] = entry["batch"]
    return found
