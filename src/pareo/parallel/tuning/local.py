"""Trials in threads of this process: pareo's kernels release Python's lock while they compute."""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pareo.data import Dataset
from pareo.device import Device
from pareo.parallel.one import train_one
from pareo.parallel.trial import Result, Trial
from pareo.training.history import Epoch


@dataclass(frozen=True)
class Job:
    """A trial to train, under the number that Optuna gave it; `file` is for its checkpoints."""

    number: int
    trial: Trial
    file: Path


Report = Callable[[int, Epoch], bool]  # a job's number, its epoch: True ends the trial


class Threads:
    """Workers that share this machine's cores, one trial each at a time."""

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
