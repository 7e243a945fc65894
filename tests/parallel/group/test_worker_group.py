"""Workers meet at barriers; when one fails or dies, all end and nothing is left behind."""

import gc
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from pareo.errors import PareoError
from pareo.parallel.group.errors import WorkerError
from pareo.parallel.group.shared_memory import SharedArrays
from pareo.parallel.group.worker_group import HOWS, WorkerGroup, run_workers
from pareo.spec import Spec

ONE_EACH = {"counts": Spec((2,), "int64")}


def count(group: WorkerGroup, shared: SharedArrays, rounds: int) -> list[int]:
    """In every round, all workers must see that all have counted before any of them continues."""
    seen = []
    for _ in range(rounds):
        shared["counts"][group.rank] += 1
        group.barrier()
        seen.append(int(shared["counts"].min()))
        group.barrier()
    group.report(group.rank)
    return seen


@pytest.mark.smoke
@pytest.mark.parametrize("how", HOWS)
def test_workers_meet_and_report_and_return(how: str) -> None:
    reports: list[int] = []
    results, shared = run_workers(count, 2, how, ONE_EACH, 50, report=reports.append)
    assert results == [list(range(1, 51))] * 2
    assert sorted(reports) == [0, 1]
    assert shared["counts"].tolist() == [50, 50]


def test_workers_ignore_an_interrupt_while_they_start(interrupted: list[int]) -> None:
    results, _ = run_workers(count, 2, "processes", ONE_EACH, 5)
    assert results == [list(range(1, 6))] * 2
    assert len(interrupted) == 2


def fails(group: WorkerGroup, shared: SharedArrays) -> None:
    if group.rank == 1:
        raise ValueError("no such thing")
    group.barrier()


def dies(group: WorkerGroup, shared: SharedArrays) -> None:
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    group.barrier()


@pytest.mark.parametrize("how", HOWS)
def test_an_error_in_one_ends_all_of_them(how: str) -> None:
    with pytest.raises(WorkerError, match=r"^worker 1 of 2 failed: ValueError: no such thing$"):
        run_workers(fails, 2, how, ONE_EACH)


def open_memory() -> int:
    gc.collect()
    links = []
    for file in Path("/proc/self/fd").iterdir():
        try:
            links.append(os.readlink(file))
        except FileNotFoundError:  # the one that lists the directory
            continue
    return sum("memfd:pareo" in link for link in links)


def test_a_worker_that_is_killed_is_named_and_leaves_nothing_behind() -> None:
    before = open_memory()
    began = time.monotonic()
    with pytest.raises(WorkerError, match="worker 1 of 2 failed: the process was ended by SIGKILL"):
        run_workers(dies, 2, "processes", ONE_EACH)
    assert time.monotonic() - began < 60, "no worker waited for ever"
    assert open_memory() == before


def waits(group: WorkerGroup, shared: SharedArrays, rounds: int) -> float:
    """Rank 0 is late; the others wait for it, and count the time."""
    for _ in range(rounds):
        if group.rank == 0:
            time.sleep(0.02)
        group.barrier()
    return group.idle


def test_waiting_is_counted_where_it_happens() -> None:
    idle, _ = run_workers(waits, 2, "threads", {}, 5)
    assert idle[1] > 0.05 > idle[0]


@pytest.mark.parametrize(
    ("workers", "how", "sentence"),
    [
        (2, "fibres", "workers are threads or processes; got 'fibres'"),
        (0, "threads", "expected a whole number of workers from 1; got 0"),
        (True, "threads", "expected a whole number of workers from 1; got True"),
        (2.0, "threads", "expected a whole number of workers from 1; got 2.0"),
    ],
)
def test_wrong_arguments_are_refused(workers: Any, how: str, sentence: str) -> None:
    with pytest.raises(PareoError, match=sentence):
        run_workers(count, workers, how, ONE_EACH, 1)
