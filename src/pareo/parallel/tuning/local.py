"""Trials on this machine: in threads, or many of one shape as one population."""

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
class Job:
    """A trial to train, under the number that Optuna gave it; `file` is for its checkpoints."""

    number: int
    trial: Trial
    file: Path


Report = Callable[[int, Epoch], bool]  # a job's number, its epoch: True ends the trial


class Threads:
    """Workers that share this machine's cores, one trial each at a time.

    pareo's kernels release Python's lock while they compute.
    """

    together = False

    def __init__(self, data: Dataset, device: Device, workers: int) -> None:
        self.places = workers
        self._data = data.as_float()
        threads = 1 if device.name == "sequential" else max(1, device.threads // workers)
        self._device = Device(str(device), threads, device.precision)
        self._done: queue.SimpleQueue[tuple[int, Result]] = queue.SimpleQueue()

    def start(self, jobs: Sequence[Job], report: Report) -> None:
        """Begin to train; the caller sees to it that no more than `places` are under way."""
        # Daemons: a second Ctrl-C ends the process without waiting for their epochs.
        for job in jobs:
            threading.Thread(target=self._train, args=(job, report), daemon=True).start()

    def finished(self, seconds: float) -> list[tuple[int, Result]]:
        """Who is done, by number; nobody where that takes longer than so many seconds."""
        try:
            return [self._done.get(timeout=seconds)]
        except queue.Empty:
            return []

    def _train(self, job: Job, report: Report) -> None:
        result = train_one(
            job.trial, self._data, self._device, "threads", lambda epoch: report(job.number, epoch)
        )
        self._done.put((job.number, result))


class Population:
    """Trials that begin together; those of one shape are trained as one program."""

    together = True

    def __init__(self, data: Dataset, device: Device, size: int) -> None:
        self.places = size
        self._data, self._device = data.as_float(), device
        self._done: queue.SimpleQueue[list[tuple[int, Result]]] = queue.SimpleQueue()

    def start(self, jobs: Sequence[Job], report: Report) -> None:
        """Begin to train these jobs together."""
        threading.Thread(target=self._train, args=(jobs, report), daemon=True).start()

    def finished(self, seconds: float) -> list[tuple[int, Result]]:
        """All of them once the last is done; nobody where that takes longer."""
        try:
            return self._done.get(timeout=seconds)
        except queue.Empty:
            return []

    def _train(self, jobs: Sequence[Job], report: Report) -> None:
        results = train_many(
            [job.trial for job in jobs], self._data, "population", device=self._device,
            report=lambda place, epoch: report(jobs[place].number, epoch),
        )  # fmt: skip
        self._done.put([(job.number, one) for job, one in zip(jobs, results, strict=True)])
