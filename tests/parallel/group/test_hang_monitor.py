"""A worker that is stopped or hangs is ended; one that computes or waits for others is not."""

import multiprocessing
import os
import signal
import time
from typing import Any

import pytest

from pareo import Device
from pareo.data import load
from pareo.errors import PareoError
from pareo.nn import networks
from pareo.parallel import Trial, train_many
from pareo.parallel.group import hang_monitor
from pareo.parallel.group.errors import WorkerError
from pareo.parallel.group.shared_memory import SharedArrays
from pareo.parallel.group.worker_group import WorkerGroup, run_workers


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are given seconds, not minutes."""
    monkeypatch.setenv(hang_monitor.VARIABLE, "1")
    monkeypatch.setattr(hang_monitor, "POLL", 0.1)


def misbehaves(group: WorkerGroup, shared: SharedArrays, how: str) -> int:
    """Worker 1 stops or hangs; worker 0 waits for it."""
    if group.rank == 1:
        match how:
            case "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "asleep":
                time.sleep(600)
            case "forgotten":
                group.wait_for(0)
            case "slow":
                end = time.process_time() + 1.5
                while time.process_time() < end:
                    pass
    group.barrier()
    return group.rank


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("stopped", r"^worker 1 of 2 failed: the process was stopped \(SIGSTOP\) for \d+ s and"),
        ("asleep", r"^worker 1 of 2 failed: the process did nothing for 1 s and was ended"),
        pytest.param(
            "forgotten",
            r"^worker \d of 2 failed: the process did nothing for 1 s and was ended",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_worker_that_others_wait_for_in_vain_is_ended(how: str, sentence: str) -> None:
    with pytest.raises(WorkerError, match=sentence):
        run_workers(misbehaves, 2, "processes", {}, how)


def test_a_worker_that_computes_is_waited_for() -> None:
    assert run_workers(misbehaves, 2, "processes", {}, "slow")[0] == [0, 1]


def reports(group: WorkerGroup, shared: SharedArrays) -> int:
    if group.rank == 0:
        group.report(bytes(1 << 20))  # more than a pipe holds
    group.barrier()
    return group.rank


@pytest.mark.slow
def test_a_caller_may_take_any_time() -> None:
    seen: list[Any] = []

    def listen(report: Any) -> None:
        time.sleep(2)
        seen.append(report)

    assert run_workers(reports, 2, "processes", {}, report=listen)[0] == [0, 1]
    assert len(seen) == 1


@pytest.mark.slow
def test_a_process_of_train_many_that_is_stopped_is_a_result_and_is_replaced() -> None:
    stopped: list[int] = []

    def stop(number: int, epoch: Any) -> bool:
        if not stopped:
            stopped.extend(child.pid or 0 for child in multiprocessing.active_children())
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
        return False

    trials = [
        Trial(networks.mlp([16, 5, 3]), batch_size=20, seed=seed, epochs=3) for seed in (0, 1)
    ]
    data = load("synthetic:16:3:240")
    found = train_many(trials, data, "processes", device=Device("vectorized", 1), report=stop)
    assert "the process was stopped (SIGSTOP)" in str(found[0].error or found[1].error)
    assert [result.error for result in found].count(None) == 1


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_limit_that_is_no_number_of_seconds_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(hang_monitor.VARIABLE, text)
    with pytest.raises(PareoError, match="PAREO_WORKER_TIMEOUT is a number of seconds"):
        run_workers(misbehaves, 2, "processes", {}, "well")
    monkeypatch.setenv(hang_monitor.VARIABLE, "")
    assert hang_monitor.timeout() == hang_monitor.TIMEOUT
