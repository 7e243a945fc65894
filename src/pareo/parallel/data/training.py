"""Data parallelism: one network, every batch split over workers that share its parameters."""

from typing import Any

import numpy as np

from pareo.data import Dataset
from pareo.device import Device
from pareo.errors import PareoError
from pareo.nn.network import Sequential
from pareo.parallel.data.worker import Job, specs, work
from pareo.parallel.group.batch_schedule import batches
from pareo.parallel.group.result import Data, Outcome, Scored, check_finite
from pareo.parallel.group.sharded_update import by_path
from pareo.parallel.group.shared_memory import Shared
from pareo.parallel.group.shared_programs import layout
from pareo.parallel.group.worker_group import Report, silent, together
from pareo.training.settings import Settings, whole


def fit(
    network: Sequential,
    data: Dataset,
    settings: Settings,
    epochs: int = 1,
    workers: int = 2,
    how: str = "threads",
    device: Device | str = "compiled",
    report: Report = silent,
    parameters: dict[str, Any] | None = None,
    factors: bool = True,
) -> Outcome:
    """Train one network with several workers, each on its part of every batch.

    Losses and parameters are those of one worker at the same batch size, to rounding, and the same
    bits in every run: gradients are added in the order of the workers, whoever comes first.

    Args:
        settings: as for `pareo.training.fit`; `batch_size` is that of all workers together.
        how: 'threads', or 'processes', which share parameters, gradients and data.
        device: 'compiled', 'vectorized' or 'sequential'; each worker has one thread of it.
        report: called with a `Progress` every 0.2 s or so.
        parameters: where to start; None is `network.initialise(settings.seed)`.
        factors: whether dense layers may show the factors of their gradients instead (see
            `parallel.group.shared_programs`); without them every gradient is written and added up.

    Raises:
        WorkerError: a worker failed or was lost.
        DivergenceError: the loss became NaN or infinite.

    Example:
        >>> from pareo.data import load
        >>> from pareo.nn import networks
        >>> network = networks.mlp([16, 8, 3])
        >>> settings = Settings(batch_size=20)
        >>> outcome = fit(network, load("synthetic:16:3:120"), settings, epochs=9)
        >>> outcome.accuracy, len(outcome.shares)
        (1.0, 2)
    """
    place = one_thread(device)
    epochs = whole("epochs", epochs, 1)
    ready = Data.of(network, data, settings.dtype)
    size = batches(len(ready.images), settings.batch_size)[0]
    how_shown = layout(network, size, settings.dtype, not factors)
    job = Job(network, settings, place, how_shown, epochs)
    start = parameters or network.initialise(settings.seed, settings.dtype)

    def prepare(shared: Shared) -> None:
        for path, array in by_path(shared.__getitem__, how_shown, "p").items():
            array[...] = start[path]
        ready.share(shared, how)

    wanted = specs(job, workers, len(ready.images)) | ready.specs(how)
    given = None if how == "processes" else ready
    results, shared = together(
        work, workers, how, wanted, job, given, prepare=prepare, report=report
    )
    check_finite(shared["losses"], settings)
    moving = by_path(shared.__getitem__, how_shown, "v") if settings.momentum else {}
    outcome = Outcome(
        network, settings, how, workers,
        {path: a.copy() for path, a in by_path(shared.__getitem__, how_shown, "p").items()},
        {path: a.copy() for path, a in moving.items()},
        shared["losses"].copy(), shared["seconds"].copy(), [share for share, _ in results],
        shown=job.layout.bytes(size, workers),
    )  # fmt: skip
    if len(ready.test_images):
        seconds, losses, right = np.array([tested for _, tested in results]).T
        count = len(ready.test_images)
        means = float(losses.sum()) / count, float(right.sum()) / count
        outcome.tested = Scored(float(seconds.max()), *means)
    return outcome


def one_thread(device: Device | str) -> Device:
    """The device of one worker: it has the core to itself, and no more."""
    place = Device(device) if isinstance(device, str) else device
    if place.name == "cuda":
        raise PareoError(
            "workers in threads and processes compute on the CPU: see pareo.parallel.data.nccl"
        )
    return Device(str(place), 1, place.precision)
