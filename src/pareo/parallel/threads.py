"""Trials in threads of one process: the paper's way, with a better schedule."""

from collections.abc import Callable, Sequence

from pareo.data import Dataset
from pareo.device import Device
from pareo.parallel.one import train_one
from pareo.parallel.schedule import Cores, predicted_work, train_all
from pareo.parallel.trial import Listener, Result, Trial
from pareo.training.history import Epoch


def train_in_threads(
    trials: Sequence[Trial], data: Dataset, device: Device, listener: Listener
) -> list[Result]:
    """Train trials in as many threads as the device has (see `train_many`).

    Python's lock hinders nobody: the loops of `compiled` and BLAS release it.
    """
    shares: list[int] = []
    cores = Cores(device.threads, [predicted_work(trial, data) for trial in trials], shares)
    one = Device(str(device), 1, device.precision)

    def train(number: int, heard: Callable[[Epoch], bool]) -> Result:
        return train_one(trials[number], data, one, "threads", heard, lambda: shares[number])

    workers = [train] * min(device.threads, len(trials))
    return train_all(trials, cores, workers, listener, "threads")
