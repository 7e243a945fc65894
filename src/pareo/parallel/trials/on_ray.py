"""Trials as tasks of a Ray cluster, placed by the CPUs and GPUs that they need.

A trial writes a checkpoint after each epoch to a folder that all machines see. Where the machine
under it is lost, Ray begins its task again on another one, which goes on from there.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pareo.data import Dataset
from pareo.device import Device
from pareo.parallel.group.ray_cluster import import_ray, needs, room
from pareo.parallel.trials.train_trial import train_one
from pareo.parallel.trials.trial import Result, Trial, sentence
from pareo.parallel.tuning.local import NumberedTrial, Report
from pareo.training.history import Epoch

LOSSES = 10  # so often a trial may lose its machine before it counts as failed itself


class Board:
    """Where trials report from all machines, and read whether they are to end."""

    def __init__(self) -> None:
        self._news: list[tuple[int, Epoch]] = []
        self._ended: set[int] = set()

    def report(self, number: int, epoch: Epoch) -> bool:
        """A trial's epoch; whether it is to end."""
        self._news.append((number, epoch))
        return number in self._ended

    def news(self, ended: Sequence[int]) -> list[tuple[int, Epoch]]:
        """What was reported since the last call; these trials are to end."""
        self._ended.update(ended)
        news, self._news = self._news, []
        return news


def _train(number: int, trial: Trial, file: str, data: Dataset, device: Device, board: Any) -> Any:
    """One trial, on whichever machine this runs."""
    ray = import_ray()

    def report(epoch: Epoch) -> bool:
        return bool(ray.get(board.report.remote(number, epoch)))

    return train_one(trial, data, device, "ray", report, checkpoint=Path(file))


class Tasks:
    """Workers on a Ray cluster, one trial each at a time.

    workers: how many trials at once; None is as many as the cluster has room for
    threads: CPUs for each trial; a trial on `cuda` has a GPU to itself as well
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
        self.slots = workers or room(ray.cluster_resources(), self._device)
        self._data = ray.put(data.as_float())
        # Beside us, where it lives as long as we do.
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self._board = ray.remote(Board).options(num_cpus=0, scheduling_strategy=here).remote()
        self._task = ray.remote(_train).options(max_retries=LOSSES, **needs(self._device))
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
        self._hear()
        return [(self._running[ref][0], self._result(ref)) for ref in done]

    def _hear(self) -> None:
        """Pass on what trials have reported; one that was begun again repeats itself."""
        for number, epoch in self._ray.get(self._board.news.remote(list(self._ended))):
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
