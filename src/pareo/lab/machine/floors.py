"""The floor of each contestant: the least time of an epoch where it computes, measured here."""

from contextlib import suppress
from dataclasses import dataclass

from pareo.device import Device, why_unavailable
from pareo.lab.contestants import Contestant, Task
from pareo.lab.experiment.bounds import Amount
from pareo.lab.experiment.worker import Failed
from pareo.lab.machine.ceilings import limits
from pareo.lab.machine.places import CPU, GPU, Place


@dataclass(kw_only=True)
class Floor:
    """The least seconds of an epoch in a place: its FLOPs at the measured peak, or its bytes.

    why: what limits it, "arithmetic" or "bandwidth". None: not known.
    """

    place: str = ""
    precision: str | None = ""
    seconds_per_epoch: Amount | None = None
    why: str = ""
    peak_flops: Amount | None = None
    bandwidth: Amount | None = None

    @property
    def name(self) -> str:
        """The place as a reader knows it."""
        names: dict[str, str] = {CPU: "the CPU", GPU: "the GPU"}
        return names.get(self.place, self.place)


def place_of(contestant: Contestant) -> Place:
    """Where a contestant computes: each place has a peak and a bandwidth of its own.

    >>> place_of(Contestant("some.module", gpu=True))
    'cuda'
    """
    return GPU if contestant.gpu else CPU


# What this process has measured last: one experiment after another need not begin with it.
_measured: dict[tuple[str, int, str], tuple[float, float]] = {}


class Peaks:
    """The FLOP/s and bytes a second of each place, the best that was measured."""

    def __init__(self, threads: int, precision: str = "float32") -> None:
        self._threads, self._precision = threads, precision
        self._found: dict[str, list[tuple[float, float]]] = {}

    def measure(self, places: set[str]) -> dict[str, tuple[float, float]]:
        """Measure places: as it is known here or on disk, and again where this object has it.

        A place whose limits cannot be measured is left out.
        """
        devices: dict[str, Device] = {CPU: Device("compiled", threads=self._threads)}
        if GPU in places and why_unavailable("cuda") is None:
            devices[GPU] = Device("cuda", precision=self._precision)
        measured = {}
        for place in sorted(places & devices.keys()):
            key = place, self._threads, self._precision
            with suppress(Failed, LookupError):
                if place in self._found or key not in _measured:
                    found = limits(devices[place], again=place in self._found)
                    _measured[key] = found.peak.value, found.bandwidth.value
                measured[place] = _measured[key]
                self.add(place, measured[place])
        return measured

    def add(self, place: str, found: tuple[float, float]) -> None:
        """What was measured in a place."""
        self._found.setdefault(place, []).append(found)

    def best(self, place: str) -> tuple[float, float] | tuple[None, None]:
        """FLOP/s and bytes a second; None where they are not known.

        >>> Peaks(threads=1).best("cpu")
        (None, None)
        """
        found = self._found.get(place)
        if not found:
            return None, None
        return max(peak for peak, _ in found), max(speed for _, speed in found)


def floor(task: Task, images: int, flops: float, place: str, peaks: Peaks, precision: str) -> Floor:
    """The floor of an epoch of so many images, where a step has so many FLOPs.

    >>> from pareo.nn import networks
    >>> floor(Task(networks.papers_cnn(), batch=1), 1, 10, "cpu", Peaks(1), "float32").place
    'cpu'
    """
    peak, bandwidth = peaks.best(place)
    if peak is None or bandwidth is None:
        return Floor(place=place, precision=precision)
    arithmetic, moving = flops / peak, task.least_bytes() / bandwidth
    return Floor(
        place=place,
        precision=precision,
        seconds_per_epoch=max(arithmetic, moving) * images / task.batch,
        why="arithmetic" if arithmetic >= moving else "bandwidth",
        peak_flops=peak,
        bandwidth=bandwidth,
    )
