"""Trials in processes of their own, which read one copy of the data."""

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pareo.data import Dataset
from pareo.device import Device
from pareo.parallel.one import train_one
from pareo.parallel.schedule import Cores, predicted_work, train_all
from pareo.parallel.shared import Handle, Shared, SharedDataset
from pareo.parallel.trial import Listener, Result, Trial
from pareo.spec import Spec
from pareo.training.history import Epoch


def train_in_processes(
    trials: Sequence[Trial], data: Dataset, device: Device, listener: Listener
) -> list[Result]:
    """Train trials in as many processes as the device has threads (see `train_many`)."""
    work = [predicted_work(trial, data) for trial in trials]
    shares = Shared({"cores": Spec((len(trials),), "int64")}, processes=True)
    shares["cores"][:] = 1
    with SharedDataset(data) as handle:
        cores = Cores(device.threads, work, shares["cores"])
        count = min(device.threads, len(trials))
        workers = [_Process(trials, handle, device, shares) for _ in range(count)]
        try:
            return train_all(trials, cores, workers, listener, "processes")
        finally:
            for worker in workers:
                worker.close()


class _Process:
    """A worker for `train_all`: a process that trains what it is told, started anew if it ends."""

    def __init__(
        self, trials: Sequence[Trial], data: Handle, device: Device, shares: Shared
    ) -> None:
        self._trials, self._given = trials, (data, device, shares)
        self._pipe, self._process = self._started()

    def _started(self) -> tuple[Any, Any]:
        context = multiprocessing.get_context("spawn")  # a fork would inherit locks of BLAS
        near, far = context.Pipe()
        process = context.Process(target=_serve, args=(far, *self._given), daemon=True)
        process.start()
        far.close()  # so that this end closes when the process is gone
        return near, process

    def __call__(self, number: int, report: Callable[[Epoch], bool]) -> Result:
        """Have a trial trained; the result says so where the process did not live to the end."""
        trial = self._trials[number]
        result = Result(trial, "processes")
        try:
            self._pipe.send((number, trial))
            while isinstance(said := self._pipe.recv(), Epoch):
                result.history.add(said)
                self._pipe.send(report(said))
            assert isinstance(said, Result)
            return said
        except (EOFError, OSError):
            self._process.join()
            result.error = ending(self._process.exitcode)
            self._pipe, self._process = self._started()
            return result

    def close(self) -> None:
        """End the process, kindly."""
        self._pipe.close()
        self._process.join(2)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()


def _serve(pipe: Any, data: Handle, device: Device, shares: Shared) -> None:
    """The process: it ends when the other end of the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asked
    attached = data.attach()
    one = Device(str(device), 1, device.precision)

    def told(epoch: Epoch) -> bool:
        pipe.send(epoch)
        return bool(pipe.recv())

    with contextlib.suppress(EOFError, OSError):
        while True:
            number, trial = pipe.recv()
            threads = partial(_share, shares["cores"], number)
            pipe.send(train_one(trial, attached, one, "processes", told, threads))


def _share(cores: Any, number: int) -> int:
    return int(cores[number])


def ending(status: int | None) -> str:
    """How a process ended, in words.

    >>> ending(-9)
    'the process was ended by SIGKILL, which is how Linux ends one when memory is short'
    """
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        cause = ", which is how Linux ends one when memory is short" if name == "SIGKILL" else ""
        return f"the process was ended by {name}{cause}"
    return f"the process ended with status {status}"
