"""Model parallelism: one network split over workers, by its layers or by its neurons."""

from collections.abc import Sequence

import numpy as np

from pareo.data import Dataset
from pareo.device import Device
from pareo.errors import ShapeError
from pareo.nn.network import Sequential
from pareo.parallel.data.training import one_thread
from pareo.parallel.group.batch_schedule import batch_sizes, for_epochs
from pareo.parallel.group.result import FittedData, TrainingResult, check_finite, copied
from pareo.parallel.group.sharded_update import by_path, fill, kinds
from pareo.parallel.group.shared_memory import SharedArrays
from pareo.parallel.group.worker_group import Report, ignore_report, run_workers
from pareo.parallel.neurons import worker as neurons_worker
from pareo.parallel.pipeline import worker as pipeline_worker
from pareo.parallel.pipeline.balance import cuts, layer_costs, shares
from pareo.parallel.pipeline.stages import split_into_stages, trace_stage
from pareo.training.checks import whole
from pareo.training.recipe import AVERAGE
from pareo.training.settings import Settings


def pipeline(
    network: Sequential,
    data: Dataset,
    settings: Settings,
    epochs: int = 1,
    workers: int = 2,
    how: str = "threads",
    device: Device | str = "compiled",
    report: Report = ignore_report,
    parameters: dict[str, np.ndarray] | None = None,
    micro: int = 4,
    at: Sequence[int] | None = None,
) -> TrainingResult:
    """Train one network with several workers, each with some of its layers.

    A batch flows through them in `micro` micro-batches, whose gradients are added. Each worker
    updates its own parameters. Losses and parameters are those of one worker, up to rounding, and
    bitwise the same in every run. With batch normalisation they are only if `micro` is 1: each
    micro-batch is normalised by its own statistics, and moves the running statistics.

    Args:
        settings, how, device, report, parameters: as for `pareo.parallel.data.fit`.
        micro: the number of micro-batches of a batch; with more of them workers are less idle, but
            each is smaller.
        at: the layers before which to cut, one fewer than workers; None is where the predicted
            costs balance best.

    Example:
        >>> from pareo.data import load
        >>> from pareo.nn import networks
        >>> network = networks.mlp([16, 8, 3])
        >>> result = pipeline(network, load("synthetic:16:3:120"), Settings(batch_size=20), 9)
        >>> len(result.predicted), round(sum(result.predicted), 6)
        (2, 1.0)
    """
    place = one_thread(device)
    epochs, micro = whole("epochs", epochs, 1), whole("micro", micro, 1)
    settings = for_epochs(settings, epochs)
    recipe, dtype = settings.recipe, settings.dtype
    recipe.check(network)
    ready = FittedData.of(network, data, settings)
    size = batch_sizes(len(ready.images), settings.batch_size)[0]
    costs = layer_costs(network, -(-size // micro), dtype, recipe)
    edges = cuts(costs, workers) if at is None else _edges(at, len(network.layers), workers)
    stages = split_into_stages(network, edges, recipe)
    layouts = []
    for stage in stages:
        part = trace_stage(stage, size, size, dtype, recipe, network.classes)
        declared = stage.network.parameters(stage.network.inputs)
        layouts.append(part.layout(size, declared, recipe, dtype))
    job = pipeline_worker.PipelineJob(network, stages, layouts, settings, place, epochs, micro)
    start = parameters or network.initialise(settings.seed, settings.dtype)

    def arrays(shared: SharedArrays, kind: str) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        for stage, layout in zip(stages, layouts, strict=True):
            found |= by_path(shared.with_prefix(f"{stage.number}.").__getitem__, layout, kind)
        return found

    def prepare(shared: SharedArrays) -> None:
        for stage, layout in zip(stages, layouts, strict=True):
            fill(shared.with_prefix(f"{stage.number}.").__getitem__, layout, recipe, start)
        ready.share(shared, how)

    specs = pipeline_worker.shared_specs(job, len(ready.images)) | ready.specs(how)
    given = None if how == "processes" else ready
    results, shared = run_workers(
        pipeline_worker.work, workers, how, specs, job, given, prepare=prepare, report=report
    )
    slots = {
        f"{kind}.{path}": array
        for kind in kinds(recipe)[1:]
        for path, array in arrays(shared, kind).items()
    }
    crossing = sum(shared[f"forward.{stage.number}"].nbytes for stage in stages[1:])
    return TrainingResult(
        network, settings, how, workers, copied(arrays(shared, "p")), copied(slots),
        shared["shares"].sum(axis=0), shared["seconds"].copy(), [share for share, _ in results],
        exchanged_bytes=2 * crossing, predicted=shares(costs, edges), tested=results[-1][1],
    )  # fmt: skip


def neurons(
    network: Sequential,
    data: Dataset,
    settings: Settings,
    epochs: int = 1,
    workers: int = 2,
    how: str = "threads",
    device: Device | str = "compiled",
    report: Report = ignore_report,
    parameters: dict[str, np.ndarray] | None = None,
) -> TrainingResult:
    """Train one network of dense layers with several workers, each with some of the neurons.

    No worker has more than its share of any matrix, its gradients and its slots. Losses and
    parameters are those of one worker, up to rounding, and bitwise the same in every run.

    Args:
        settings, how, device, report, parameters: as for `pareo.parallel.data.fit`.

    Example:
        >>> from pareo.data import load
        >>> from pareo.nn import networks
        >>> network = networks.mlp([16, 8, 3])
        >>> result = neurons(network, load("synthetic:16:3:120"), Settings(batch_size=20), 9)
        >>> bool(result.losses[-1] < result.losses[0])
        True
    """
    place = one_thread(device)
    epochs = whole("epochs", epochs, 1)
    settings = for_epochs(settings, epochs)
    recipe = settings.recipe
    recipe.check(network)
    ready = FittedData.of(network, data, settings)
    job = neurons_worker.NeuronsJob(network, settings, place, epochs)
    start = parameters or network.initialise(settings.seed, settings.dtype)
    own = neurons_worker.shared_specs(job, workers, len(ready.images))

    def prepare(shared: SharedArrays) -> None:
        for kind in kinds(recipe):
            for path, array in shared.with_prefix(f"{kind}.").items():
                array[...] = start[path] if kind in ("p", AVERAGE) else 0
        ready.share(shared, how)

    given = None if how == "processes" else ready
    results, shared = run_workers(
        neurons_worker.work, workers, how, own | ready.specs(how), job, given,
        prepare=prepare, report=report,
    )  # fmt: skip
    check_finite(shared["losses"], settings)
    size = batch_sizes(len(ready.images), settings.batch_size)[0]
    slots = {
        f"{kind}.{path}": array
        for kind in kinds(recipe)[1:]
        for path, array in shared.with_prefix(f"{kind}.").items()
    }
    costs = [job.cost(rank, workers, size) for rank in range(workers)]
    return TrainingResult(
        network, settings, how, workers,
        copied(shared.with_prefix("p.")), copied(slots),
        shared["losses"].copy(), shared["seconds"].copy(), [share for share, _ in results],
        exchanged_bytes=neurons_worker.exchanged_bytes(own),
        predicted=[cost / sum(costs) for cost in costs], tested=results[0][1],
    )  # fmt: skip


def _edges(at: Sequence[int], layers: int, workers: int) -> list[int]:
    edges = [0, *at, layers]
    if len(edges) != workers + 1 or edges != sorted(set(edges)):
        raise ShapeError(
            f"{workers} workers on {layers} layers need {workers - 1} cuts in rising order, each "
            f"from 1 to {layers - 1}; got {list(at)}"
        )
    return edges
