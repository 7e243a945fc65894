"""Data parallelism: one network, every batch split over workers that share its parameters."""

import math

import numpy as np

from pareo.data import Dataset
from pareo.device import Device
from pareo.errors import PareoError, ShapeError
from pareo.nn.network import Sequential
from pareo.parallel.data.worker import DataJob, shared_specs, work
from pareo.parallel.group.batch_schedule import batch_sizes, for_epochs
from pareo.parallel.group.result import (
    Evaluation,
    FittedData,
    TrainingResult,
    check_finite,
    copied,
)
from pareo.parallel.group.sharded_update import by_path, fill, slots_by_path
from pareo.parallel.group.shared_memory import SharedArrays
from pareo.parallel.group.shared_programs import gradient_layout, replaced_state
from pareo.parallel.group.worker_group import Report, ignore_report, run_workers
from pareo.training.checks import whole
from pareo.training.settings import Settings


def fit(
    network: Sequential,
    data: Dataset,
    settings: Settings,
    epochs: int = 1,
    workers: int = 2,
    how: str = "threads",
    device: Device | str = "compiled",
    report: Report = ignore_report,
    parameters: dict[str, np.ndarray] | None = None,
    factors: bool = True,
    synchronise: bool = False,
) -> TrainingResult:
    """Train one network with several workers, each on its part of every batch.

    Losses and parameters are those of one worker at the same batch size, up to rounding, and
    bitwise the same in every run: gradients are added in the order of ranks. Batch normalisation is
    an exception: each worker normalises its part of a batch by the statistics of that part, as in
    PyTorch, and keeps its own running statistics. The result has those of worker 0, which are also
    used for testing. With `synchronise` it is as in one worker.

    Args:
        settings: as for `pareo.training.fit`; `batch_size` is that of all workers together.
        how: 'threads', or 'processes', which share parameters, gradients and data.
        device: 'compiled', 'vectorized' or 'sequential'; each worker has one thread of it.
        report: called with a `Progress` about every 0.2 s.
        parameters: the initial parameters; None is `network.initialise(settings.seed)`.
        factors: whether dense layers may exchange the factors of their gradients instead (see
            `parallel.group.shared_programs`); without them every gradient is written and added.
        synchronise: whether batch normalisation uses the statistics of the whole batch, which the
            workers exchange in every step; all workers then have the same running statistics.

    Raises:
        WorkerError: a worker failed or was lost.
        DivergenceError: the loss became NaN or infinite.

    Example:
        >>> from pareo.data import load
        >>> from pareo.nn import networks
        >>> network = networks.mlp([16, 8, 3])
        >>> settings = Settings(batch_size=20)
        >>> result = fit(network, load("synthetic:16:3:120"), settings, epochs=9)
        >>> result.accuracy, len(result.shares)
        (1.0, 2)
    """
    place = one_thread(device)
    epochs = whole("epochs", epochs, 1)
    settings = for_epochs(settings, epochs)
    ready = FittedData.of(network, data, settings)
    size = batch_sizes(len(ready.images), settings.batch_size)[0]
    recipe = settings.recipe
    layout = gradient_layout(network, size, settings.dtype, not factors, recipe)
    synchronise = synchronise and bool(replaced_state(network, recipe))
    least = min(batch_sizes(len(ready.images), settings.batch_size))
    if synchronise and least < workers:
        raise ShapeError(
            f"synchronised batch normalisation needs an image for each of {workers} workers; a "
            f"batch has {least}"
        )
    job = DataJob(network, settings, place, layout, epochs, synchronise)
    start = parameters or network.initialise(settings.seed, settings.dtype)

    def prepare(shared: SharedArrays) -> None:
        fill(shared.__getitem__, layout, recipe, start)
        ready.share(shared, how)

    specs = shared_specs(job, workers, len(ready.images)) | ready.specs(how)
    given = None if how == "processes" else ready
    results, shared = run_workers(
        work, workers, how, specs, job, given, prepare=prepare, report=report
    )
    check_finite(shared["losses"], settings)
    result = TrainingResult(
        network, settings, how, workers,
        copied(by_path(shared.__getitem__, layout, "p")),
        copied(slots_by_path(shared.__getitem__, layout, recipe)),
        shared["losses"].copy(), shared["seconds"].copy(), [share for share, _ in results],
        exchanged_bytes=layout.bytes(size, workers),
    )  # fmt: skip
    if len(ready.test_images):
        seconds, losses, correct = np.array([tested for _, tested in results]).T
        count = len(ready.test_images)
        right = float(correct.sum()) / count
        result.tested = Evaluation(
            float(seconds.max()), float(losses.sum()) / count, None if math.isnan(right) else right
        )
    return result


def one_thread(device: Device | str) -> Device:
    """The device of one worker, which has one core to itself."""
    place = Device(device) if isinstance(device, str) else device
    if place.name == "cuda":
        raise PareoError(
            "workers in threads and processes compute on the CPU: see pareo.parallel.data.nccl"
        )
    return Device(str(place), 1, place.precision)
