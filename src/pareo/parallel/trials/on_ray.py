"""Trials as tasks of a Ray cluster, placed by the CPUs and GPUs that they need.

A trial writes a checkpoint after each epoch, to a directory that all machines see. If its machine
is lost, Ray starts the task again on another one, which continues from the checkpoint.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pareo.data import Dataset
from pareo.device import Device
from pareo.parallel.group.errors import sentence
from pareo.parallel.group.ray_cluster import import_ray, resources, worker_capacity
from pareo.parallel.trials.train_trial import train_one
from pareo.parallel.trials.trial import Result, Trial
from pareo.parallel.tuning.local import NumberedTrial, Report
from pareo.training.history import Epoch

MAX_RETRIES = 10  # the number of machines that a trial may lose before it counts as failed


class Board:
    """Collects the reports of trials on all machines, and tells them when to end."""

    def __init__(self) -> None:
        self._reports: list[tuple[int, Epoch]] = []
        self._ended: set[int] = set()

    def report(self, number: int, epoch: Epoch) -> bool:
        """Add a trial's epoch; return whether the trial should end."""
        self._reports.append((number, epoch))
        return number in self._ended

    def take_reports(self, ended: Sequence[int]) -> list[tuple[int, Epoch]]:
        """The reports since the last call; the trials in `ended` should end."""
        self._ended.update(ended)
        reports, self._reports = self._reports, []
        return reports


def _train(number: int, trial: Trial, file: str, data: Dataset, device: Device, board: Any) -> Any:
    """Train one trial, on whichever machine this runs."""
    ray = import_ray()

    def report(epoch: Epoch) -> bool:
        return bool(ray.get(board.report.remote(number, epoch)))

    return train_one(trial, data, device, "ray", report, checkpoint=Path(file))


class Tasks:
    """Workers on a Ray cluster, each with one trial at a time.

    workers: the number of trials at a time; None is as many as the cluster has room for
    threads: the CPUs of each trial; a trial on `cuda` also has a GPU to itself
    """

    synchronous = False

    def __init__(
        self,
        ray: Any,
        data: Dataset,
        device: Device,
        workers: int | None = None,
        threads: int = 1,
    ) -> None:
        self._ray = ray
        self._device = Device(device.name, threads, device.precision)
        self.slots = workers or worker_capacity(ray.cluster_resources(), self._device)
        self._data = ray.put(data.as_float())
        # On this node, so that it lives as long as this process.
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self._board = ray.remote(Board).options(num_cpus=0, scheduling_strategy=here).remote()
        self._task = ray.remote(_train).options(max_retries=MAX_RETRIES, **resources(self._device))
        self._running: dict[Any, tuple[int, Trial]] = {}
        self._report: Report = lambda number, epoch: False
        self._seen: dict[int, int] = {}
        self._ended: set[int] = set()

    def start(self, trials: Sequence[NumberedTrial], report: Report) -> None:
        """Start to train; the caller keeps to at most `slots` trials at the same time."""
        self._report = report
        for one in trials:
            file = str(one.checkpoint.absolute())
            ref = self._task.remote(
                one.number, one.trial, file, self._data, self._device, self._board
            )
            self._running[ref] = one.number, one.trial

    def finished(self, seconds: float) -> list[tuple[int, Result]]:
        """The trials that ended within so many seconds, by number."""
        done, _ = self._ray.wait(list(self._running), timeout=seconds)
        self._pass_on_reports()
        return [(self._running[ref][0], self._result(ref)) for ref in done]

    def _pass_on_reports(self) -> None:
        """Pass on new reports; a trial that was started again repeats some, which are dropped."""
        for number, epoch in self._ray.get(self._board.take_reports.remote(list(self._ended))):
            if epoch.number > self._seen.get(number, 0):
                self._seen[number] = epoch.number
                if self._report(number, epoch):
                    self._ended.add(number)

    def _result(self, ref: Any) -> Result:
        _, trial = self._running.pop(ref)
        try:
            return self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            return Result(trial, "ray", error=sentence(error))
