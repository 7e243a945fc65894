"""Trials on this machine: in threads, or several of one shape as one population."""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pareo.data import Dataset
from pareo.device import Device
from pareo.parallel.trials.many import train_many
from pareo.parallel.trials.train_trial import train_one
from pareo.parallel.trials.trial import Result, Trial
from pareo.training.history import Epoch


@dataclass(frozen=True)
class NumberedTrial:
    """A trial to train, with the number that Optuna gave it and a file for its checkpoints."""

    number: int
    trial: Trial
    checkpoint: Path


Report = Callable[[int, Epoch], bool]  # a trial's number, its epoch: True ends the trial


class Threads:
    """Workers that share the cores of this machine, one trial each at a time.

    pareo's kernels release Python's global interpreter lock while they compute.
    """

    synchronous = False

    def __init__(self, data: Dataset, device: Device, workers: int) -> None:
        self.slots = workers
        self._data = data.as_float()
        threads = 1 if device.name == "sequential" else max(1, device.threads // workers)
        self._device = Device(str(device), threads, device.precision)
        self._done: queue.SimpleQueue[tuple[int, Result]] = queue.SimpleQueue()

    def start(self, trials: Sequence[NumberedTrial], report: Report) -> None:
        """Start to train; the caller keeps to at most `slots` trials at the same time."""
        # Daemons, so that a second Ctrl-C ends the process without waiting for their epochs.
        for one in trials:
            threading.Thread(target=self._train, args=(one, report), daemon=True).start()

    def finished(self, seconds: float) -> list[tuple[int, Result]]:
        """The trials that ended within so many seconds, by number."""
        try:
            return [self._done.get(timeout=seconds)]
        except queue.Empty:
            return []

    def _train(self, one: NumberedTrial, report: Report) -> None:
        result = train_one(
            one.trial, self._data, self._device, "threads", lambda epoch: report(one.number, epoch)
        )
        self._done.put((one.number, result))


class Population:
    """Trials that start at the same time; those of one shape are trained as one program."""

    synchronous = True

    def __init__(self, data: Dataset, device: Device, size: int) -> None:
        self.slots = size
        self._data, self._device = data.as_float(), device
        self._done: queue.SimpleQueue[list[tuple[int, Result]]] = queue.SimpleQueue()

    def start(self, trials: Sequence[NumberedTrial], report: Report) -> None:
        """Start to train these trials."""
        threading.Thread(target=self._train, args=(trials, report), daemon=True).start()

    def finished(self, seconds: float) -> list[tuple[int, Result]]:
        """All trials once the last has ended; none if that takes longer than so many seconds."""
        try:
            return self._done.get(timeout=seconds)
        except queue.Empty:
            return []

    def _train(self, trials: Sequence[NumberedTrial], report: Report) -> None:
        results = train_many(
            [one.trial for one in trials], self._data, "population", device=self._device,
            report=lambda place, epoch: report(trials[place].number, epoch),
        )  # fmt: skip
        numbers = (one.number for one in trials)
        self._done.put(list(zip(numbers, results, strict=True)))
