"""How many times as fast as one worker: speedups, Amdahl's law, and where a strategy pays."""

from collections.abc import Mapping, Sequence

from pareo.lab.parallel.names import ALONE, SERIAL, SERIAL_TASKS
from pareo.lab.parallel.result import BatchSpeedup, Row, Scaling

PAYS = 1.05  # times as fast as one worker, before another worker is worth its while


def base_of(row: Row, rows: Sequence[Row]) -> Row | None:
    """What a row is compared with: one worker on as many networks, of the same contestant."""
    for name in (ALONE, SERIAL_TASKS, SERIAL):
        for other in rows:
            alike = other.networks == row.networks and other.contestant == row.contestant
            if other.name == name and alike and other.train:
                return other
    return None


def compare_with_one_worker(rows: Sequence[Row]) -> None:
    """Set the speedups and the efficiency of each row; None where a time is missing."""
    for row in rows:
        base = base_of(row, rows)
        row.speedup = ratio(base.seconds if base else None, row.seconds)
        row.test_speedup = ratio(base.test_seconds if base else None, row.test_seconds)
        row.efficiency = ratio(row.speedup, row.workers)


def ratio(over: float | None, under: float | None) -> float | None:
    """The quotient of two numbers; None where one is not known."""
    return None if over is None or under is None else over / under


def amdahl(speedups: Mapping[int, float | None]) -> float | None:
    """The share of the work that more workers do not speed up, fitted to measured speedups.

    Amdahl: 1 / speedup = serial + (1 - serial) / workers. None where there is nothing to fit.

    >>> amdahl({2: 2.0}), round(amdahl({2: 4 / 3, 4: 1.6}), 3)
    (0.0, 0.5)
    """
    points = [(1 - 1 / n, 1 / s - 1 / n) for n, s in speedups.items() if n > 1 and s]
    if not points:
        return None
    lost = sum(x * y for x, y in points) / sum(x * x for x, _ in points)
    return min(1.0, max(0.0, lost))


def scalings(rows: Sequence[Row]) -> list[Scaling]:
    """The speedups of each strategy by workers, with Amdahl's law."""
    found = []
    for name in dict.fromkeys(row.name for row in rows if row.workers > 1):
        own = {row.workers: row.speedup for row in rows if row.name == name and row.train}
        serial = amdahl(own)
        found.append(
            Scaling(
                strategy=name,
                speedups={str(count): value for count, value in own.items()},
                serial_share=serial,
                limit=1 / serial if serial else None,
            )
        )
    return found


def at_batch(rows: Sequence[Row], batch: int, workers: int) -> list[BatchSpeedup]:
    """The speedups of the rows with so many workers, which were measured at one batch size."""
    return [
        BatchSpeedup(strategy=row.name, batch=batch, speedup=row.speedup)
        for row in rows
        if row.workers == workers
    ]


def pays_from(speedups: Sequence[BatchSpeedup]) -> dict[str, int | None]:
    """The batch size from which each strategy pays; None where it does not at the largest."""
    found: dict[str, int | None] = {}
    for name in dict.fromkeys(one.strategy for one in speedups):
        found[name] = None
        own = [one for one in speedups if one.strategy == name]
        for one in sorted(own, key=lambda one: -one.batch):
            if not one.speedup or one.speedup < PAYS:
                break
            found[name] = one.batch
    return found
