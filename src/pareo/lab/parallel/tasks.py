"""Turns that train several networks, each on its own, and then test them."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from pareo.data import Dataset
from pareo.device import Device
from pareo.errors import PareoError
from pareo.lab.parallel.engine import Turn
from pareo.parallel.trials.many import train_many
from pareo.parallel.trials.processes import Processes
from pareo.parallel.trials.scoring import score_many
from pareo.parallel.trials.train_trial import untested
from pareo.parallel.trials.trial import Result, Trial


def in_threads(
    train: Callable[[], list[Result]], data: Dataset, workers: int, cores: int
) -> Callable[[], Turn]:
    """A turn in threads of this process; `cores` is how many of them can be busy at once."""

    def turn() -> Turn:
        begin, before = time.perf_counter(), time.process_time()
        found = train()
        took, used = time.perf_counter() - begin, time.process_time() - before
        test = tested(found, lambda many: score_many(many, data, workers))
        return Turn(took, test, _losses(found), 0.0, max(0.0, 1 - used / (took * cores)))

    return turn


def by_train_many(
    trials: Sequence[Trial], data: Dataset, how: str, workers: int
) -> Callable[[], Turn]:
    """A turn of one of the ways of `train_many` that share this process."""
    train = untested(data)
    return in_threads(lambda: train_many(trials, train, how, workers), data, workers, workers)


def in_processes(
    trials: Sequence[Trial], data: Dataset, workers: int, threads: int, stack: ExitStack
) -> Callable[[], Turn]:
    """A turn in processes, which are started before the clock and live until the stack closes.

    `threads` are those of the device, which all processes share.
    """
    ready: list[Processes] = []

    def turn() -> Turn:
        if not ready:
            started = Processes(data, Device("compiled", threads), workers)
            ready.append(stack.enter_context(started))
        begin = time.perf_counter()
        found = ready[0].train(trials, test=False)
        took = time.perf_counter() - begin
        return Turn(took, tested(found, ready[0].score), _losses(found), 0.0)

    return turn


def tested(results: Sequence[Result], score: Callable[[Any], Any]) -> float:
    """Seconds to test the networks that were trained; a failure among them is raised."""
    for result in results:
        if result.error is not None:
            raise PareoError(result.error)
    many = [(result.trial.built, result.parameters) for result in results]
    begin = time.perf_counter()
    score(many)
    return time.perf_counter() - begin


def _losses(results: Sequence[Result]) -> list[float]:
    return [result.losses[-1] for result in results]
