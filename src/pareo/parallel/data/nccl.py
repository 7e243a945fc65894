"""Data parallelism on several GPUs of one machine: a thread and a replica for each, joined by NCCL.

NCCL's ring or tree fixes the order of additions, whatever the timing. All GPUs get the same bits.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from pareo.data import Dataset
from pareo.device import Device
from pareo.errors import DeviceError
from pareo.nn.network import Sequential
from pareo.parallel.data.replica import Replica, train
from pareo.parallel.group.batch_schedule import for_epochs
from pareo.parallel.group.result import TrainingResult, WorkerTime, check_finite
from pareo.parallel.group.shared_memory import SharedArrays
from pareo.parallel.group.worker_group import WorkerGroup, run_workers
from pareo.training.checkpoint import Checkpoint
from pareo.training.checks import whole
from pareo.training.settings import Settings


def nccl() -> Any:
    """CuPy's NCCL module; the error says why it cannot be used."""
    try:
        from cupy.cuda import nccl as found
    except ImportError as error:
        raise DeviceError(f"several GPUs need CuPy with NCCL, which is missing: {error}") from None
    if not getattr(found, "available", True):
        raise DeviceError(
            "several GPUs need NCCL, which CuPy does not find: pip install nvidia-nccl"
        )
    return found


class NcclReduce:
    """An all-reduce between GPUs, in place; see `pareo.parallel.data.replica.AllReduce`."""

    def __init__(self, workers: int, unique_id: tuple[int, ...], rank: int, device: Device) -> None:
        library = nccl()
        self._device, self.seconds = device, 0.0
        self._dtypes = {"float32": library.NCCL_FLOAT32, "float64": library.NCCL_FLOAT64}
        self._sum = library.NCCL_SUM
        with device, device.backend.scope(device):
            self._communicator = library.NcclCommunicator(workers, unique_id, rank)

    def reduce(self, gradients: Any) -> Any:
        """The sum of all workers' vectors, which replaces this worker's."""
        import cupy

        with self._device, self._device.backend.scope(self._device):
            self._device.backend.wait()  # so that only NCCL is timed
            begin = time.perf_counter()
            address, stream = gradients.data.ptr, cupy.cuda.get_current_stream()
            dtype = self._dtypes[str(gradients.dtype)]
            size = gradients.size
            self._communicator.allReduce(address, address, size, dtype, self._sum, stream.ptr)
            stream.synchronize()
            self.seconds += time.perf_counter() - begin
        return gradients


def fit(
    network: Sequential,
    data: Dataset,
    settings: Settings,
    epochs: int = 1,
    gpus: Sequence[int] = (0, 1),
    precision: str = "float32",
) -> TrainingResult:
    """Train one network on several GPUs, each on its part of every batch (see `data.fit`).

    Args:
        gpus: the numbers of the GPUs.
        precision: of their matrix products: 'float32', 'tf32' or 'bfloat16'.
    """
    settings = for_epochs(settings, whole("epochs", epochs, 1))
    devices = [Device(f"cuda:{gpu}", precision=precision) for gpu in gpus]
    for device in devices:
        device.backend.check_available(device)
    unique_id = nccl().get_unique_id()
    results, _ = run_workers(
        _work, len(devices), "threads", {}, network, data, settings, epochs, devices, unique_id
    )
    all_losses, seconds, shares, states = (list(part) for part in zip(*results, strict=True))
    losses, first = np.array(all_losses[0]), states[0]
    check_finite(losses, settings)
    vector = sum(array.nbytes for array in first.parameters.values())
    return TrainingResult(
        network, settings, "nccl", len(devices), first.parameters, first.slots,
        losses, np.array([max(seconds)]), shares, exchanged_bytes=len(devices) * vector,
    )  # fmt: skip


def _work(
    group: WorkerGroup, shared: SharedArrays, network: Sequential, data: Dataset,
    settings: Settings, epochs: int, devices: list[Device], unique_id: tuple[int, ...],
) -> tuple[list[float], float, WorkerTime, Checkpoint]:  # fmt: skip
    device = devices[group.rank]
    replica = Replica(network, data, settings, group.rank, group.workers, device)
    all_reduce = NcclReduce(group.workers, unique_id, group.rank, device)
    replica.gradients()  # compiles the machine code before time is measured
    group.barrier()
    begin = time.perf_counter()
    losses = train(replica, all_reduce, epochs)
    device.backend.wait()
    seconds = time.perf_counter() - begin
    busy = seconds - all_reduce.seconds
    share = WorkerTime(group.rank, seconds, busy, all_reduce.seconds, 0.0)
    return losses, seconds, share, replica.checkpoint()
