"""Trials in processes, which read one copy of the data."""

import contextlib
import multiprocessing
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pareo import interrupt
from pareo.data import Dataset
from pareo.device import Device
from pareo.errors import PareoError, exit_reason
from pareo.parallel.group.hang_monitor import HangMonitor
from pareo.parallel.group.shared_memory import DatasetHandle, SharedArrays, shared_dataset
from pareo.parallel.trials.schedule import Cores, predicted_work, train_all
from pareo.parallel.trials.scoring import Network, PieceEvaluators, score_with
from pareo.parallel.trials.train_trial import train_one, untested
from pareo.parallel.trials.trial import Listener, Result, Trial
from pareo.spec import Spec
from pareo.training.history import Epoch

MAX_TRIALS = 1 << 16  # of one call, because each has a number in shared memory


def train_in_processes(
    trials: Sequence[Trial], data: Dataset, device: Device, listener: Listener
) -> list[Result]:
    """Train trials in as many processes as the device has threads (see `train_many`)."""
    with Processes(data, device, min(device.threads, len(trials))) as processes:
        return processes.train(trials, listener)


class Processes:
    """Processes that train and test on request; a context manager, which ends them.

    A script that uses it must guard its own work by `if __name__ == "__main__":`, because every
    process imports the script.
    """

    def __init__(self, data: Dataset, device: Device, count: int) -> None:
        self._data, self._device = data, device
        self._shares = SharedArrays({"cores": Spec((MAX_TRIALS,), "int64")}, processes=True)
        self._workers: list[_Process] = []
        self._monitor = HangMonitor()
        try:
            handle = shared_dataset(data)
            for _ in range(count):
                self._workers.append(_Process(self._monitor, handle, device, self._shares))
        except BaseException:
            self.__exit__()
            raise

    def train(
        self, trials: Sequence[Trial], listener: Listener | None = None, test: bool = True
    ) -> list[Result]:
        """Train trials, as many at a time as there are processes; with `test`, test each epoch."""
        if len(trials) > MAX_TRIALS:
            raise PareoError(f"processes take {MAX_TRIALS:,} trials at once; got {len(trials):,}")
        work = [predicted_work(trial, self._data) for trial in trials]
        cores = Cores(self._device.threads, work, self._shares["cores"])
        trains = [partial(worker.train, trials, test) for worker in self._workers]
        return train_all(trials, cores, trains, listener or Listener(), "processes", self._kill)

    def score(self, networks: Sequence[Network]) -> list[tuple[float, float]]:
        """The loss and the accuracy of each network on the test images."""
        for worker in self._workers:
            worker.restart_if_ended()
            worker.ask(("networks", list(networks)))
        workers = [
            lambda number, start, worker=worker: worker.ask(("logits", number, start))
            for worker in self._workers
        ]
        return score_with(workers, networks, self._data.test_labels)

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self._monitor.stop()
        for worker in self._workers:
            worker.close()


class _Process:
    """A worker process; if it has ended, the next trial starts another."""

    def __init__(self, monitor: HangMonitor, *given: Any) -> None:
        self._monitor, self._given = monitor, given
        self._is_asked = False  # whether the process has something to do
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would inherit locks of BLAS
        near, far = context.Pipe()
        process = context.Process(target=_serve, args=(far, *self._given), daemon=True)
        with interrupt.blocked():
            process.start()
            self._pipe: Any = near
            self._process: Any = process
            far.close()  # so that this end closes when the process ends
        self._monitor.watch(process, lambda: not self._is_asked)

    def restart_if_ended(self) -> None:
        """Start another process if the last one has ended."""
        if not self._process.is_alive():
            self._start()

    def kill(self) -> None:
        """End the process immediately; a thread that waits for its answer gets an error."""
        self._process.kill()

    def train(
        self, trials: Sequence[Trial], test: bool, number: int, report: Callable[[Epoch], bool]
    ) -> Result:
        """Train a trial in the process; if the process dies or hangs, the result says so."""
        result = Result(trials[number], "processes")
        self.restart_if_ended()
        try:
            message = self._asked(("train", number, trials[number], test))
            while isinstance(message, Epoch):
                result.history.add(message)
                message = self._asked(report(message))
            assert isinstance(message, Result)
            return message
        except (EOFError, OSError):
            result.error = self._end_reason()
            return result

    def ask(self, request: tuple[Any, ...]) -> Any:
        """Send a request and return the answer."""
        try:
            return self._asked(request)
        except (EOFError, OSError):
            raise PareoError(self._end_reason()) from None

    def _asked(self, request: Any) -> Any:
        self._is_asked = True
        try:
            self._pipe.send(request)
            return self._pipe.recv()
        finally:
            self._is_asked = False

    def _end_reason(self) -> str:
        self._process.join()
        self._monitor.forget(self._process)
        return self._monitor.reason(self._process) or exit_reason(self._process.exitcode)

    def close(self) -> None:
        """Ask the process to end; kill it if it does not."""
        self._pipe.close()
        self._process.join(2)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()


def _serve(pipe: Any, data: DatasetHandle, device: Device, shares: SharedArrays) -> None:
    """The main function of a process, which ends when the other end of the pipe closes."""
    interrupt.ignore()
    interrupt.end_with_parent()
    attached = data.attach()
    without_tests = untested(attached)
    one = Device(str(device), 1, device.precision)
    evaluators: PieceEvaluators | None = None

    def report(epoch: Epoch) -> bool:
        pipe.send(epoch)
        return bool(pipe.recv())

    with contextlib.suppress(EOFError, OSError):
        while True:
            match pipe.recv():
                case ("train", number, trial, test):
                    threads = partial(_share, shares["cores"], number)
                    given = attached if test else without_tests
                    pipe.send(train_one(trial, given, one, "processes", report, threads))
                case ("networks", networks):
                    evaluators = PieceEvaluators(networks, attached.test_images, one)
                    pipe.send(None)
                case ("logits", number, start):
                    assert evaluators is not None
                    pipe.send(evaluators(number, start))


def _share(cores: np.ndarray, number: int) -> int:
    return int(cores[number])
