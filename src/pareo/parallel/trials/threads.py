"""Trials in threads of one process, which share its cores."""

import threading
from collections.abc import Callable, Sequence
from functools import partial

from pareo.data import Dataset
from pareo.device import Device
from pareo.parallel.group.errors import Aborted
from pareo.parallel.trials.schedule import Cores, predicted_work, train_all
from pareo.parallel.trials.train_trial import train_one
from pareo.parallel.trials.trial import Listener, Result, Trial
from pareo.training.history import Epoch


def train_in_threads(
    trials: Sequence[Trial], data: Dataset, device: Device, listener: Listener
) -> list[Result]:
    """Train trials in as many threads as the device has (see `train_many`).

    The loops of `compiled` and BLAS release Python's global lock.
    """
    shares: list[int] = []
    cores = Cores(device.threads, [predicted_work(trial, data) for trial in trials], shares)
    one = Device(str(device), 1, device.precision)
    stopped = threading.Event()

    def share(number: int) -> int:
        """The trial's cores; called between steps, where a trial can be ended."""
        if stopped.is_set():
            raise Aborted
        return shares[number]

    def train(number: int, report: Callable[[Epoch], bool]) -> Result:
        return train_one(trials[number], data, one, "threads", report, partial(share, number))

    workers = [train] * min(device.threads, len(trials))
    return train_all(trials, cores, workers, listener, "threads", stopped.set)
