"""Many networks: each trains as it would alone, and a failure is a result."""

import multiprocessing
import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

from pareo.data import Dataset, load
from pareo.device import Device
from pareo.errors import PareoError
from pareo.interrupt import ImmediateInterrupt
from pareo.nn import networks
from pareo.parallel import Result, Trial, predict, score_many, train_many
from pareo.parallel.trials.processes import Processes
from pareo.parallel.trials.schedule import Cores
from pareo.parallel.trials.scoring import score_with
from pareo.training import Settings, fit
from pareo.training.history import Epoch

DATA = load("synthetic:16:3:200")
NETWORK = networks.mlp([16, 12, 3])
TRIALS = [
    Trial(NETWORK, rate=0.1, batch_size=32, epochs=2, seed=1),
    Trial(networks.mlp([16, 9, 7, 3]), rate=0.05, momentum=0.9, batch_size=16, epochs=3, order=5),
    Trial(NETWORK, rate=0.2, decay=0.01, batch_size=32, epochs=1, seed=2),
]
HOWS = ("serial", "threads", "processes", "population")


def alone(trial: Trial, data: Dataset = DATA) -> Result:
    fitted = fit(
        trial.built, data, trial.settings(), epochs=trial.epochs, device="compiled", progress=False
    )
    return Result(trial, "alone", fitted.history, fitted.parameters)


@pytest.mark.parametrize("how", HOWS)
def test_each_trial_ends_as_if_it_were_alone(how: str) -> None:
    for result in train_many(TRIALS, DATA, how, workers=2):
        expected = alone(result.trial)
        assert result.error is None
        # Sums over a batch that is split between threads are added in another order.
        np.testing.assert_allclose(result.losses, expected.losses, rtol=1e-5)
        for path, values in expected.parameters.items():
            np.testing.assert_allclose(result.parameters[path], values, rtol=1e-4, atol=1e-6)
        assert result.accuracy == expected.accuracy


def test_processes_ignore_an_interrupt_while_they_start(interrupted: list[int]) -> None:
    results = train_many(TRIALS, DATA, "processes", workers=2)
    assert [result.error for result in results] == [None] * 3
    assert len(interrupted) == 2


@pytest.mark.parametrize("how", HOWS)
def test_a_trial_that_fails_is_a_result_and_the_others_finish(how: str) -> None:
    wrong = Trial(NETWORK, rate=1e30, batch_size=32)
    small = Trial(networks.mlp([5, 3]))
    results = train_many([TRIALS[0], wrong, small, TRIALS[2]], DATA, how, workers=2)
    assert [result.error is None for result in results] == [True, False, False, True]
    assert results[1].error is not None
    assert results[1].error.startswith("the loss became nan")
    assert results[2].error == "mlp-5-3 expects images of shape (5,); got (16,)"


@pytest.mark.parametrize("how", HOWS)
def test_report_gets_every_epoch_and_may_end_a_trial(how: str) -> None:
    reported: list[tuple[int, int]] = []

    def report(number: int, epoch: Epoch) -> bool:
        reported.append((number, epoch.number))
        return number == 1 and epoch.number == 2

    results = train_many(TRIALS, DATA, how, workers=2, report=report)
    assert sorted(reported) == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1)]
    assert [result.stopped for result in results] == [False, True, False]
    assert [len(result.losses) for result in results] == [2, 2, 1]


def test_the_order_of_the_images_is_its_own() -> None:
    first, other = (Trial(NETWORK, batch_size=32, seed=1, order=order) for order in (1, 2))
    same = train_many([first, other, TRIALS[0]], DATA, "serial")
    assert same[0].losses != same[1].losses
    assert same[0].losses == same[2].losses[:1]


def test_auto_takes_the_way_that_is_predicted() -> None:
    result = train_many(TRIALS[:1], DATA)[0]
    assert result.how == predict(TRIALS[:1], DATA, Device("compiled")).how
    many = [Trial(NETWORK, batch_size=32, seed=seed) for seed in range(4)]
    assert {result.how for result in train_many(many, DATA)} == {"population"}


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(PareoError, match=r"expects how to be auto, serial.*got 'swarm'"):
        train_many(TRIALS, DATA, "swarm")


def test_a_killed_process_is_a_result_and_is_replaced() -> None:
    def report(number: int, epoch: Epoch) -> None:
        if number == 1 and epoch.number == 1:
            for child in multiprocessing.active_children():
                os.kill(child.pid or 0, signal.SIGKILL)

    # One process: it ends in the middle of the longest trial, and a new one trains the others.
    results = train_many(TRIALS, DATA, "processes", workers=1, report=report)
    assert results[1].error is not None
    assert results[1].error.startswith("the process was ended by SIGKILL")
    assert [result.error is None for result in results] == [True, False, True]
    assert len(results[0].losses) == 2


@pytest.mark.parametrize("processes", [False, True])
def test_many_are_tested_at_once_as_each_alone(processes: bool) -> None:
    trained = train_many(TRIALS, DATA, "serial")
    many = [(result.trial.built, result.parameters) for result in trained]
    if processes:
        with Processes(DATA, Device("compiled", 2), 2) as workers:
            scores = workers.score(many)
    else:
        scores = score_many(many, DATA, workers=2)
    assert [accuracy for _, accuracy in scores] == [result.accuracy for result in trained]
    expected = [result.history[-1].test_loss for result in trained]
    np.testing.assert_allclose([loss for loss, _ in scores], expected, rtol=1e-5)


def test_ctrl_c_ends_what_runs_and_starts_nothing_more() -> None:
    def report(number: int, epoch: Epoch) -> None:
        signal.raise_signal(signal.SIGINT)

    results = train_many(TRIALS, DATA, "serial", report=report)
    assert results[0].stopped
    assert len(results[0].losses) == 1
    assert [result.error for result in results[1:]] == ["stopped before it began"] * 2


@pytest.mark.parametrize("how", HOWS)
def test_immediate_ctrl_c_ends_all_and_is_not_lost(how: str) -> None:
    long = [Trial(NETWORK, batch_size=8, epochs=10_000, seed=seed) for seed in range(4)]
    reported: list[int] = []

    def report(number: int, epoch: Epoch) -> None:
        reported.append(number)
        if len(reported) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), ImmediateInterrupt():
            train_many(long, DATA, how, workers=2, report=report)
    finally:
        signal.signal(signal.SIGINT, before)
    count = len(reported)
    give_up = time.monotonic() + 60  # they were told to end; a busy machine takes its time
    while multiprocessing.active_children() and time.monotonic() < give_up:
        time.sleep(0.05)
    assert not multiprocessing.active_children()
    names = [thread.name for thread in threading.enumerate() if "work" in thread.name]
    assert not names, "no thread trains on"
    assert len(reported) == count < 4 * 10_000


def test_a_worker_that_fails_while_testing_is_an_error() -> None:
    failed = threading.Event()

    def answers(number: int, start: int) -> Any:
        failed.wait(60)
        return np.zeros((len(DATA.test_labels[start:]), 3))

    def fails(number: int, start: int) -> Any:
        failed.set()
        raise PareoError("it was lost")

    many = [(NETWORK, NETWORK.initialise(seed=0))] * 8
    for workers in ([fails, answers], [answers, fails], [fails]):
        failed.clear()
        with pytest.raises(PareoError, match="it was lost"):
            score_with(workers, many, DATA.test_labels)


def test_a_run_goes_on_with_as_many_threads_as_it_has_now() -> None:
    wide = networks.mlp([16, 300, 300, 3])  # enough work for two threads
    asked: list[int] = []
    run = Settings(batch_size=64)

    def threads() -> int:
        asked.append(1 + len(asked) // 2 % 2)
        return asked[-1]

    changing, fixed = (
        fit(wide, DATA, run, epochs=3, device=Device("compiled", 1), progress=False, threads=how)
        for how in (threads, None)
    )
    assert {1, 2} <= set(asked)
    np.testing.assert_allclose(
        changing.history.column("loss"), fixed.history.column("loss"), rtol=1e-5
    )
    assert changing.history.column("floor") == [None] * 3


def test_free_cores_go_to_the_trial_with_most_work_left() -> None:
    shares: list[int] = []
    cores = Cores(4, [10.0, 30.0], shares)
    assert (cores.next(), cores.next()) == (1, 0)
    assert shares == [1, 3]
    cores.advance(1, 0.1)
    cores.done(0)
    assert cores.next() is None
    assert shares[1] == 4
