"""Who trains when, and on how many cores: the longest first, and whoever is done helps the others.

Three networks of which one is 70 % of the work leave one of two cores idle for long if each has a
thread of its own. So a core that finds no trial left goes to the one with most work still to do.
"""

import threading
from collections.abc import Callable, MutableSequence, Sequence
from functools import partial

from pareo.data import Dataset
from pareo.device import carried
from pareo.parallel.group.worker_group import run_threads
from pareo.parallel.trials.trial import Listener, Result, Trial, sentence
from pareo.training.history import Epoch
from pareo.training.step import step_program

NOT_BEGUN = "stopped before it began"


def predicted_work(trial: Trial, data: Dataset) -> float:
    """The FLOPs of a trial, which say how long it takes beside another; 0 where it cannot run.

    >>> from pareo.data import load
    >>> data = load("synthetic:1x28x28:10:1200")
    >>> big, small = (predicted_work(Trial(f"mlp-{size}"), data) for size in ("big", "small"))
    >>> round(big / small, 1)
    9.0
    """
    network = trial.built
    batch = min(trial.batch_size, max(1, len(data.images)))
    try:
        step = step_program(network, batch, trial.momentum, trial.decay).flops
        test = network.program(batch).flops
    except Exception:  # told by the trial itself, when its turn comes
        return 0.0
    return trial.epochs * (step * len(data.images) + test * len(data.test_images)) / batch


class Cores:
    """How many of the machine's cores each trial has now.

    `shares[number]` is that of trials[number]: a list, or memory that other processes read.

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

    def __init__(self, total: int, work: Sequence[float], shares: MutableSequence[int]) -> None:
        self._total, self._work, self._shares = total, list(work), shares
        shares[: len(work)] = [1] * len(work)
        self._waiting = sorted(range(len(work)), key=lambda number: work[number])
        self._running: set[int] = set()
        self._lock = threading.Lock()

    def next(self) -> int | None:
        """The trial to start now: the longest that waits; None where none does."""
        with self._lock:
            number = self._waiting.pop() if self._waiting else None
            if number is not None:
                self._running.add(number)
            self._divide()
            return number

    def advance(self, number: int, left: float) -> None:
        """A trial has this share of its work left."""
        with self._lock:
            self._work[number] *= left

    def done(self, number: int) -> None:
        """A trial has ended; its cores wait for `next`."""
        with self._lock:
            self._running.discard(number)

    def _divide(self) -> None:
        """A core for each that runs; those to spare, one by one, to whoever has most left to do."""
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

    A worker is a function that trains the trial of a number and reports its epochs; after `stop` it
    soon returns.
    """
    results: dict[int, Result] = {}
    stopped = threading.Event()

    def end() -> None:
        stopped.set()
        stop()

    def work(train: Train) -> None:
        while not (stopped.is_set() or listener.asked()) and (number := cores.next()) is not None:
            epochs = trials[number].epochs

            def heard(epoch: Epoch, number: int = number, epochs: int = epochs) -> bool:
                cores.advance(number, (epochs - epoch.number) / (epochs - epoch.number + 1))
                return listener(number, epoch)

            try:
                results[number] = train(number, heard)
            except Exception as error:
                results[number] = Result(trials[number], how, error=sentence(error))
            cores.done(number)

    run_threads([partial(carried(work), train) for train in workers], end)
    for number in set(range(len(trials))) - set(results):
        results[number] = Result(trials[number], how, error=NOT_BEGUN)
    return [results[number] for number in range(len(trials))]
