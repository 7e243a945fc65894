"""What a result of `pareo parallel` says, in sentences."""

from itertools import product

from pareo.lab.experiment.statistics import noticed
from pareo.lab.formatting import percent, times
from pareo.lab.parallel.names import (
    ALL_CORES,
    PROCESSES,
    SCHEDULED_PROCESSES,
    SCHEDULED_THREADS,
    SERIAL,
    THREADS,
)
from pareo.lab.parallel.result import OneNetworkResult, PapersResult, ParallelResult, Row
from pareo.lab.parallel.speedup import PAYS, ratio

FRAMEWORKS = {"torch": "PyTorch", "tensorflow": "Keras on TensorFlow"}
# Strategies of pareo's, each with the one of a framework that it is compared with.
PEERS = {
    **{name: name for name in (SERIAL, ALL_CORES, THREADS, PROCESSES)},
    SCHEDULED_THREADS: THREADS,
    SCHEDULED_PROCESSES: PROCESSES,
}


def title(result: ParallelResult) -> str:
    """What was trained, on how many images."""
    return (
        f"{result.network}, batch {result.batch}: {result.images:,} images to train on, "
        f"{result.test_images:,} to test"
    )


def lines(result: ParallelResult) -> list[str]:
    """The answer, and what a reader must know."""
    found = _papers(result) if isinstance(result, PapersResult) else _network(result)
    timed = {
        f"{row.contestant}, {row.name}, {row.workers}": row.train
        for row in result.rows
        if row.train
    }
    return [*found, *noticed(timed, result.most_workers, result.machine.idle_cores)]


def _network(result: ParallelResult) -> list[str]:
    rows = [row for row in result.rows if row.speedup is not None and row.workers > 1]
    found = []
    if rows and all((row.speedup or 0.0) < PAYS for row in rows):
        found.append(f"Nothing pays here: no strategy is {PAYS} times as fast as one worker.")
    for what, several in (("For one network", False), ("For several", True)):
        own = [row for row in rows if (row.networks > 1) == several]
        if own:
            best = max(own, key=lambda row: row.speedup or 0.0)
            who, speed = f"{best.name} with {best.workers} workers", times(best.speedup)
            found.append(
                f"{what} the fastest is {who}: {speed} times as fast as one."
                if (best.speedup or 0.0) >= PAYS
                else f"{what} nothing pays: the fastest, {who}, is {speed} times as fast as one."
            )
    losing = [f"{row.name} ({row.workers})" for row in rows if (row.speedup or 0.0) < 1]
    if losing:
        found.append(f"Slower than one worker: {', '.join(losing)}.")
    if isinstance(result, OneNetworkResult) and result.prediction is not None:
        found.append(f"Predicted for several: {result.prediction.words}.")
    return found


def _papers(result: PapersResult) -> list[str]:
    by = {(row.contestant, row.name): row for row in result.rows if row.train}
    found = []
    ours, alone, all_cores = (
        by.get(("pareo", name)) for name in (SCHEDULED_THREADS, SERIAL, ALL_CORES)
    )
    if ours and alone and all_cores:
        found.append(
            f"Scheduled threads are {_faster(ours, alone)} times as fast as one after another "
            f"with one thread each, {_faster(ours, all_cores)} times as with all cores each, at "
            f"{percent(ours.of_peak)} of the sgemm peak ({result.sgemm_peak / 1e9:.1f} GFLOP/s)."
        )
    for (contestant, framework), (mine, theirs) in product(FRAMEWORKS.items(), PEERS.items()):
        here, there = by.get(("pareo", mine)), by.get((contestant, theirs))
        if here and there:
            tests = times(ratio(there.test_seconds, here.test_seconds))
            found.append(
                f"{mine}: pareo trains {_faster(here, there)} times as fast as {framework} "
                f"({theirs}), tests {tests}."
            )
    apart, single = (result.published.seconds[name] for name in ("separate threads", "one thread"))
    found.append(
        f"The paper's Table 2: {single[0] / apart[0]:.2f} times as fast in separate threads, "
        f"{single[1] / apart[1]:.2f} in testing."
    )
    return found


def _faster(row: Row, base: Row) -> str:
    """How many times as fast a row trains as another."""
    return times(ratio(base.seconds, row.seconds))
