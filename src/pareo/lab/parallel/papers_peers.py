"""The fourth paper's three MLPs in other frameworks: each strategy in processes of its own."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

import numpy as np

from pareo.array import Array
from pareo.data import Dataset
from pareo.lab.contestants import Task
from pareo.lab.contestants.registry import known
from pareo.lab.experiment.worker import Worker
from pareo.lab.papers.costa_banevicius import BATCH, RATE, SIZES
from pareo.lab.parallel.engine import Strategy, Turn
from pareo.lab.parallel.names import ALL_CORES, PROCESSES, SERIAL, THREADS
from pareo.nn import networks
from pareo.parallel.group.worker_group import run_threads
from pareo.training.fit import shuffled

AT_ONCE, IN_TURN = "threads", "serial"  # a thread of Python for each network, or one for all


class Peer(Protocol):
    """Some of the networks in a framework, in a process that has nothing else."""

    def train(self, number: int, order: Array) -> Sequence[Any]:
        """Train a network from its first weights, a step for each row; the losses."""

    def test(self, number: int) -> tuple[float, float]:
        """The mean loss and the share of right answers on the test images."""

    def restart(self, number: int) -> None:
        """Return to the first weights."""


class Networks:
    """Networks of a framework, trained and tested whenever they are called.

    make: a framework's `Peer`, of tasks, how they are trained, and the threads of each.
    """

    def __init__(
        self, make: Callable[..., Peer], sizes: Sequence[str], images: int, how: str, threads: int
    ) -> None:
        tasks = [Task(networks.mlp(size), BATCH, rate=RATE) for size in sizes]
        self._peer, self._how, self._count = make(tasks, how, threads), how, len(sizes)
        steps = images // BATCH
        order = np.ascontiguousarray(shuffled(images, 0, 0)[: steps * BATCH])
        self._order = order.reshape(steps, BATCH)

    def __call__(self) -> tuple[float, float, list[float]]:
        """Seconds of training and of testing, and the mean loss of each network."""
        losses = [0.0] * self._count
        for number in range(self._count):
            self._peer.restart(number)

        def train(number: int) -> None:
            found = self._peer.train(number, self._order)
            losses[number] = float(np.mean([float(loss) for loss in found]))

        begin = time.perf_counter()
        self._for_each(train)
        between = time.perf_counter()
        self._for_each(self._peer.test)
        return between - begin, time.perf_counter() - between, losses

    def _for_each(self, work: Callable[[int], Any]) -> None:
        parts = [partial(work, number) for number in range(self._count)]
        if self._how == AT_ONCE:
            _in_threads(parts)
            return
        for part in parts:
            part()


def _in_threads(parts: Sequence[Callable[[], Any]]) -> None:
    """Run functions at the same time; the first error of one is raised when all have ended."""
    errors: list[Exception] = []

    def run(part: Callable[[], Any]) -> None:
        try:
            part()
        except Exception as error:  # whatever the framework raises
            errors.append(error)

    run_threads([partial(run, part) for part in parts], lambda: None)
    if errors:
        raise errors[0]


def peer_strategies(
    contestant: str, make: Callable[..., Peer], data: Dataset, cores: int, stack: ExitStack
) -> list[Strategy]:
    """A framework's strategies; their processes start at their first turn, and end with the stack.

    Where the framework is not installed, each says how to install it.
    """
    images, missing = len(data.images), known()[contestant].missing() or ""

    def strategy(name: str, workers: int, how: str, threads: int, apart: bool = False) -> Strategy:
        started: list[Worker] = []
        groups = [(size,) for size in SIZES] if apart else [SIZES]

        def run() -> Turn:
            if not started:
                started.extend(
                    stack.enter_context(Worker(Networks, make, group, images, how, threads))
                    for group in groups
                )
            for worker in started:
                worker.put()
            answers = [worker.get() for worker in started]
            train, test = (max(answer[place] for answer in answers) for place in (0, 1))
            return Turn(train, test, [loss for answer in answers for loss in answer[2]])

        return Strategy(name, workers, run, contestant, networks=3, missing=missing)

    return [
        strategy(SERIAL, 1, IN_TURN, 1),
        strategy(ALL_CORES, cores, IN_TURN, cores),
        strategy(THREADS, 3, AT_ONCE, 1),
        strategy(PROCESSES, 3, IN_TURN, 1, apart=True),
    ]
