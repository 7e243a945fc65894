"""Data parallelism over several GPUs of one machine: a thread and a replica for each, NCCL between.

NCCL adds in an order that its ring or tree fixes, not timing, and gives every card the same bits.
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
from pareo.parallel.group.result import Outcome, Share, check_finite
from pareo.parallel.group.shared_memory import Shared
from pareo.parallel.group.worker_group import Member, together
from pareo.training.settings import Settings


def nccl() -> Any:
    """CuPy's NCCL, or a sentence that says why it cannot be used."""
    try:
        from cupy.cuda import nccl as found
    except ImportError as error:
        raise DeviceError(f"several GPUs need CuPy with NCCL, which is not here: {error}") from None
    if not getattr(found, "available", True):
        raise DeviceError(
            "several GPUs need NCCL, which CuPy does not find: pip install nvidia-nccl"
        )
    return found


class NcclReduce:
    """An all-reduce between GPUs, in place; see `pareo.parallel.data.replica.AllReduce`."""

    def __init__(self, workers: int, crew: tuple[int, ...], rank: int, device: Device) -> None:
        library = nccl()
        self._device, self.seconds = device, 0.0
        kinds = {"float32": library.NCCL_FLOAT32, "float64": library.NCCL_FLOAT64}
        self._kinds, self._sum = kinds, library.NCCL_SUM
        with device, device.backend.scope(device):
            self._crew = library.NcclCommunicator(workers, crew, rank)

    def reduce(self, gradients: Any) -> Any:
        """The sum of everyone's vector, over each one's own."""
        import cupy

        with self._device, self._device.backend.scope(self._device):
            self._device.backend.wait()  # so that what is timed is NCCL alone
            begin = time.perf_counter()
            address, stream = gradients.data.ptr, cupy.cuda.get_current_stream()
            kind = self._kinds[str(gradients.dtype)]
            self._crew.allReduce(address, address, gradients.size, kind, self._sum, stream.ptr)
            stream.synchronize()
            self.seconds += time.perf_counter() - begin
        return gradients


def fit(
    network: Sequential,
    data: Dataset,
    settings: Settings,
    epochs: int = 1,
    cards: Sequence[int] = (0, 1),
    precision: str = "float32",
) -> Outcome:
    """Train one network on several GPUs, each on its part of every batch (see `data.fit`).

    Args:
        cards: the GPUs, by their numbers.
        precision: in which they multiply: 'float32', 'tf32' or 'bfloat16'.
    """
    devices = [Device(f"cuda:{card}", precision=precision) for card in cards]
    for device in devices:
        device.backend.check_available(device)
    crew = nccl().get_unique_id()
    results, _ = together(
        _work, len(devices), "threads", {}, network, data, settings, epochs, devices, crew
    )
    losses, seconds, shares, state = (list(part) for part in zip(*results, strict=True))
    check_finite(losses[0], settings)
    first = state[0]
    vector = sum(array.nbytes for array in first.parameters.values())
    return Outcome(
        network, settings, "nccl", len(devices), first.parameters, first.velocities,
        np.array(losses[0]), np.array([max(seconds)]), shares, shown=len(devices) * vector,
    )  # fmt: skip


def _work(
    member: Member, shared: Shared, network: Sequential, data: Dataset, settings: Settings,
    epochs: int, devices: list[Device], crew: tuple[int, ...],
) -> Any:  # fmt: skip
    device = devices[member.rank]
    replica = Replica(network, data, settings, member.rank, member.workers, device)
    all_reduce = NcclReduce(member.workers, crew, member.rank, device)
    replica.gradients()  # compiles what the clock should not see
    member.meet()
    begin = time.perf_counter()
    losses = train(replica, all_reduce, epochs)
    device.backend.wait()
    spent = time.perf_counter() - begin
    share = Share(member.rank, spent, spent - all_reduce.seconds, all_reduce.seconds, 0.0)
    return losses, spent, share, replica.checkpoint()
