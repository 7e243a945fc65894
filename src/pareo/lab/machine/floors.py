"""The floor beneath each contestant: what the place that it computes on can do, measured here."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pareo.device import Device, why_unavailable
from pareo.lab.contestants import Contestant, Task
from pareo.lab.experiment.results import Number
from pareo.lab.experiment.worker import Failed
from pareo.lab.machine.ceilings import limits
from pareo.lab.machine.places import CPU, GPU, Place
from pareo.training.step import step_program


@dataclass(kw_only=True)
class Floor:
    """The least seconds of an epoch in a place: its FLOPs at the measured peak, or its bytes.

    why: "arithmetic" or "bandwidth". None: not known.
    """

    place: str = ""
    precision: str | None = ""
    seconds_per_epoch: Number | None = None
    why: str = ""
    peak_flops: Number | None = None
    bandwidth: Number | None = None


def place_of(contestant: Contestant) -> Place:
    """Where a contestant computes: each place has a peak and a bandwidth of its own.

    >>> place_of(Contestant("some.module", gpu=True))
    'cuda'
    """
    return GPU if contestant.gpu else CPU


def measured(
    places: set[str], threads: int, precision: str, known: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[float, float]]]:
    """The FLOP/s and bytes a second of each place, anew where it is `known` already.

    A place that cannot tell is left out.
    """
    devices: dict[str, Device] = {CPU: Device("compiled", threads=threads)}
    if GPU in places and why_unavailable("cuda") is None:
        devices[GPU] = Device("cuda", precision=precision)
    for place in sorted(places & devices.keys()):
        with suppress(Failed, LookupError):
            found = limits(devices[place], again=bool(known.get(place)))
            yield place, (found.peak.value, found.bandwidth.value)


class Floors:
    """The floors of one task in the places of a race."""

    def __init__(self, task: Task, images: int, precision: str = "float32") -> None:
        """`images` are those of an epoch."""
        self._task, self._images, self._precision = task, images, precision
        self.flops = step_program(task.network, task.batch).flops
        self._found: dict[str, list[tuple[float, float]]] = {}

    def measure(self, places: set[str]) -> None:
        """How fast each place is: as it is kept, and then as it is now, whichever is faster.

        Where that cannot be told, its floor stays unknown.
        """
        for place, now in measured(places, self._task.threads, self._precision, self._found):
            self._found.setdefault(place, []).append(now)

    def of(self, place: str) -> Floor:
        """The floor in a place; NaN where something is not known.

        >>> from pareo.nn import networks
        >>> Floors(Task(networks.papers_cnn(), batch=1), images=1).of("cpu").place
        'cpu'
        """
        found = self._found.get(place, [])
        peak = max((peak for peak, _ in found), default=math.nan)
        bandwidth = max((speed for _, speed in found), default=math.nan)
        arithmetic, moving = self.flops / peak, self._task.least_bytes() / bandwidth
        return Floor(
            place=place,
            precision=self._precision,
            seconds_per_epoch=max(arithmetic, moving) * self._images / self._task.batch,
            why="arithmetic" if arithmetic >= moving else "bandwidth",
            peak_flops=peak,
            bandwidth=bandwidth,
        )
