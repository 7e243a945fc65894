"""Crews: workers meet, and when one fails or dies nobody waits for it and nothing is left."""

import gc
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from pareo.errors import PareoError
from pareo.parallel.group.shared_memory import Shared
from pareo.parallel.group.worker_group import HOWS, Member, WorkerError, together
from pareo.spec import Spec

ONE_EACH = {"counts": Spec((2,), "int64")}


def count(member: Member, shared: Shared, rounds: int) -> list[int]:
    """In every round all workers must see that all have counted, before anyone goes on."""
    seen = []
    for _ in range(rounds):
        shared["counts"][member.rank] += 1
        member.meet()
        seen.append(int(shared["counts"].min()))
        member.meet()
    member.report(member.rank)
    return seen


@pytest.mark.smoke
@pytest.mark.parametrize("how", HOWS)
def test_workers_meet_and_report_and_return(how: str) -> None:
    heard: list[int] = []
    results, shared = together(count, 2, how, ONE_EACH, 50, report=heard.append)
    assert results == [list(range(1, 51))] * 2
    assert sorted(heard) == [0, 1]
    assert shared["counts"].tolist() == [50, 50]


def test_workers_that_start_hear_no_interrupt(interrupted: list[int]) -> None:
    results, _ = together(count, 2, "processes", ONE_EACH, 5)
    assert results == [list(range(1, 6))] * 2
    assert len(interrupted) == 2


def fails(member: Member, shared: Shared) -> None:
    if member.rank == 1:
        raise ValueError("no such thing")
    member.meet()


def dies(member: Member, shared: Shared) -> None:
    if member.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    member.meet()


@pytest.mark.parametrize("how", HOWS)
def test_an_error_in_one_ends_all_of_them(how: str) -> None:
    with pytest.raises(WorkerError, match=r"^worker 1 of 2 failed: ValueError: no such thing$"):
        together(fails, 2, how, ONE_EACH)


def open_memory() -> int:
    gc.collect()
    links = []
    for file in Path("/proc/self/fd").iterdir():
        try:
            links.append(os.readlink(file))
        except FileNotFoundError:  # the one that lists the folder
            continue
    return sum("memfd:pareo" in link for link in links)


def test_a_worker_that_is_killed_is_named_and_leaves_nothing_behind() -> None:
    before = open_memory()
    began = time.monotonic()
    with pytest.raises(WorkerError, match="worker 1 of 2 failed: the process was ended by SIGKILL"):
        together(dies, 2, "processes", ONE_EACH)
    assert time.monotonic() - began < 60, "nobody waited for ever"
    assert open_memory() == before


def waits(member: Member, shared: Shared, rounds: int) -> float:
    """Rank 0 is late; the others wait for it, and say so."""
    for _ in range(rounds):
        if member.rank == 0:
            time.sleep(0.02)
        member.meet()
    return member.idle


def test_waiting_is_counted_where_it_happens() -> None:
    idle, _ = together(waits, 2, "threads", {}, 5)
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
def test_what_makes_no_crew_is_refused(workers: Any, how: str, sentence: str) -> None:
    with pytest.raises(PareoError, match=sentence):
        together(count, workers, how, ONE_EACH, 1)
