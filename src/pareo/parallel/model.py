"""Model parallelism: one network split over workers, by its layers or by its neurons."""

from collections.abc import Sequence
from typing import Any

from pareo.data import Dataset
from pareo.device import Device
from pareo.errors import ShapeError
from pareo.nn.network import Sequential
from pareo.parallel.data.training import one_thread
from pareo.parallel.group.batch_schedule import batches
from pareo.parallel.group.result import Data, Outcome, check_finite
from pareo.parallel.group.sharded_update import by_path
from pareo.parallel.group.shared_memory import Shared
from pareo.parallel.group.worker_group import Report, silent, together
from pareo.parallel.neurons import worker
from pareo.parallel.pipeline.balance import cuts, layer_costs, shares
from pareo.parallel.pipeline.parts import parts, traced_part
from pareo.parallel.pipeline.stage import layout_for
from pareo.parallel.pipeline.worker import Job, shared_specs, work
from pareo.training.settings import Settings, whole


def pipeline(
    network: Sequential,
    data: Dataset,
    settings: Settings,
    epochs: int = 1,
    workers: int = 2,
    how: str = "threads",
    device: Device | str = "compiled",
    report: Report = silent,
    parameters: dict[str, Any] | None = None,
    micro: int = 4,
    at: Sequence[int] | None = None,
) -> Outcome:
    """Train one network with several workers, each with some of its layers.

    A batch flows through them in `micro` parts; its gradients are summed, and each worker moves its
    own parameters. Losses and parameters are those of one worker, to rounding, and the same bits in
    every run.

    Args:
        settings, how, device, report, parameters: as for `pareo.parallel.data.training`.
        micro: into how many parts a batch is cut; more keep workers less idle, and are smaller.
        at: before which layers to cut, one fewer than workers; None is where the predicted costs
            balance best.

    Example:
        >>> from pareo.data import load
        >>> from pareo.nn import networks
        >>> network = networks.mlp([16, 8, 3])
        >>> outcome = pipeline(network, load("synthetic:16:3:120"), Settings(batch_size=20), 9)
        >>> len(outcome.predicted), round(sum(outcome.predicted), 6)
        (2, 1.0)
    """
    place = one_thread(device)
    epochs, micro = whole("epochs", epochs, 1), whole("micro", micro, 1)
    ready = Data.of(network, data, settings.dtype)
    size = batches(len(ready.images), settings.batch_size)[0]
    costs = layer_costs(network, -(-size // micro), settings.dtype)
    edges = cuts(costs, workers) if at is None else _edges(at, len(network.layers), workers)
    pieces = parts(network, edges)
    layouts = [
        layout_for(traced_part(part, size, size, settings.dtype), size, settings.dtype)
        for part in pieces
    ]
    job = Job(network, pieces, layouts, settings, place, epochs, micro)
    start = parameters or network.initialise(settings.seed, settings.dtype)

    def arrays(shared: Shared, kind: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for part, layout in zip(pieces, layouts, strict=True):
            own = shared.below(f"{part.number}.")
            named = by_path(own.__getitem__, layout, kind)
            found |= {part.path(path): array for path, array in named.items()}
        return found

    def prepare(shared: Shared) -> None:
        for path, array in arrays(shared, "p").items():
            array[...] = start[path]
        ready.share(shared, how)

    wanted = shared_specs(job, len(ready.images)) | ready.specs(how)
    given = None if how == "processes" else ready
    results, shared = together(
        work, workers, how, wanted, job, given, prepare=prepare, report=report
    )
    moving = arrays(shared, "v") if settings.momentum else {}
    crossing = sum(shared[f"on.{part.number}"].nbytes for part in pieces[1:])
    return Outcome(
        network, settings, how, workers,
        {path: a.copy() for path, a in arrays(shared, "p").items()},
        {path: a.copy() for path, a in moving.items()},
        shared["shares"].sum(axis=0), shared["seconds"].copy(), [share for share, _ in results],
        shown=2 * crossing, predicted=shares(costs, edges), tested=results[-1][1],
    )  # fmt: skip


def neurons(
    network: Sequential,
    data: Dataset,
    settings: Settings,
    epochs: int = 1,
    workers: int = 2,
    how: str = "threads",
    device: Device | str = "compiled",
    report: Report = silent,
    parameters: dict[str, Any] | None = None,
) -> Outcome:
    """Train one network of dense layers with several workers, each with some of the neurons.

    No worker has more than its share of any matrix, its gradients and its velocities. Losses and
    parameters are those of one worker, to rounding, and the same bits in every run.

    Args:
        settings, how, device, report, parameters: as for `pareo.parallel.data.training`.

    Example:
        >>> from pareo.data import load
        >>> from pareo.nn import networks
        >>> network = networks.mlp([16, 8, 3])
        >>> outcome = neurons(network, load("synthetic:16:3:120"), Settings(batch_size=20), 9)
        >>> bool(outcome.losses[-1] < outcome.losses[0])
        True
    """
    place = one_thread(device)
    ready = Data.of(network, data, settings.dtype)
    job = worker.Job(network, settings, place, whole("epochs", epochs, 1))
    start = parameters or network.initialise(settings.seed, settings.dtype)
    own = worker.shared_specs(job, workers, len(ready.images))

    def prepare(shared: Shared) -> None:
        for path, array in shared.below("p.").items():
            array[...] = start[path]
        ready.share(shared, how)

    given = None if how == "processes" else ready
    results, shared = together(
        worker.work, workers, how, own | ready.specs(how), job, given,
        prepare=prepare, report=report,
    )  # fmt: skip
    check_finite(shared["losses"], settings)
    size = batches(len(ready.images), settings.batch_size)[0]
    costs = [job.cost(rank, workers, size) for rank in range(workers)]
    return Outcome(
        network, settings, how, workers,
        {path: a.copy() for path, a in shared.below("p.").items()},
        {path: a.copy() for path, a in shared.below("v.").items()},
        shared["losses"].copy(), shared["seconds"].copy(), [share for share, _ in results],
        shown=worker.shown(own), predicted=[cost / sum(costs) for cost in costs],
        tested=results[0][1],
    )  # fmt: skip


def _edges(at: Sequence[int], layers: int, workers: int) -> list[int]:
    edges = [0, *at, layers]
    if len(edges) != workers + 1 or edges != sorted(set(edges)):
        raise ShapeError(
            f"{workers} workers on {layers} layers need {workers - 1} cuts in rising order, each "
            f"from 1 to {layers - 1}; got {list(at)}"
        )
    return edges
