"""Which trial runs when, and on how many cores: the longest first; free cores help the others.

Consider three networks, one of which is 70 % of the work. With one thread for each, one of two
cores would be idle for long. So a core without a trial goes to the trial with most work left.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from pareo.data import Dataset
from pareo.device import carried
from pareo.parallel.group.errors import sentence
from pareo.parallel.group.worker_group import run_threads
from pareo.parallel.trials.trial import Listener, Result, Trial
from pareo.training.history import Epoch
from pareo.training.step import step_program

NOT_BEGUN = "stopped before it began"


def predicted_work(trial: Trial, data: Dataset) -> float:
    """The FLOPs of a trial, to compare it with others; 0 if it cannot run.

    >>> from pareo.data import load
    >>> data = load("synthetic:1x28x28:10:1200")
    >>> big, small = (predicted_work(Trial(f"mlp-{size}"), data) for size in ("big", "small"))
    >>> round(big / small, 1)
    9.0
    """
    network = trial.built
    batch = min(trial.batch_size, max(1, len(data.images)))
    try:
        step = step_program(network, batch, trial.settings().recipe).flops
        test = network.program(batch).flops
    except Exception:  # the trial reports it when its turn comes
        return 0.0
    return trial.epochs * (step * len(data.images) + test * len(data.test_images)) / batch


class Cores:
    """Divides the machine's cores between trials.

    shares[number] is the number of cores that trials[number] has now. It is a list, or memory that
    other processes read.

    >>> shares: list[int] = []
    >>> cores = Cores(2, [70.0, 22.0, 8.0], shares)
    >>> cores.next(), cores.next(), cores.done(1), cores.next()
    (0, 1, None, 2)
    >>> shares
    [1, 1, 1]
    >>> cores.done(2), cores.next()
    (None, None)
    >>> shares[0]
    2
    """

    def __init__(self, total: int, work: Sequence[float], shares: list[int] | np.ndarray) -> None:
        self._total, self._work, self._shares = total, list(work), shares
        shares[: len(work)] = [1] * len(work)
        self._waiting = sorted(range(len(work)), key=lambda number: work[number])
        self._running: set[int] = set()
        self._lock = threading.Lock()

    def next(self) -> int | None:
        """The trial to start now, which is the longest that waits; None if none does."""
        with self._lock:
            number = self._waiting.pop() if self._waiting else None
            if number is not None:
                self._running.add(number)
            self._divide()
            return number

    def advance(self, number: int, left: float) -> None:
        """Record the share of its remaining work that a trial has left."""
        with self._lock:
            self._work[number] *= left

    def done(self, number: int) -> None:
        """Record that a trial has ended; `next` divides its cores."""
        with self._lock:
            self._running.discard(number)

    def _divide(self) -> None:
        """One core for each running trial; the others go to the trials with most work left."""
        shares = dict.fromkeys(self._running, 1)
        for _ in range(self._total - len(shares) if shares and not self._waiting else 0):
            slowest = max(sorted(shares), key=lambda number: self._work[number] / shares[number])
            shares[slowest] += 1
        for number, share in shares.items():
            self._shares[number] = share


Train = Callable[[int, Callable[[Epoch], bool]], Result]


def train_all(
    trials: Sequence[Trial],
    cores: Cores,
    workers: Sequence[Train],
    listener: Listener,
    how: str,
    stop: Callable[[], object],
) -> list[Result]:
    """Let each worker train one trial after the other, until all are done.

    A worker is a function that trains the trial of a given number and reports its epochs. It
    returns soon after `stop` is called.
    """
    results: dict[int, Result] = {}
    stopped = threading.Event()

    def end() -> None:
        stopped.set()
        stop()

    def work(train: Train) -> None:
        while not (stopped.is_set() or listener.stop_requested()):
            number = cores.next()
            if number is None:
                return
            epochs = trials[number].epochs

            def report(epoch: Epoch, number: int = number, epochs: int = epochs) -> bool:
                cores.advance(number, (epochs - epoch.number) / (epochs - epoch.number + 1))
                return listener(number, epoch)

            try:
                results[number] = train(number, report)
            except Exception as error:
                results[number] = Result(trials[number], how, error=sentence(error))
            cores.done(number)

    run_threads([partial(carried(work), train) for train in workers], end)
    for number in set(range(len(trials))) - set(results):
        results[number] = Result(trials[number], how, error=NOT_BEGUN)
    return [results[number] for number in range(len(trials))]
