"""The floor beneath each contestant: what the place that it computes on can do, measured here."""

import math
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from pareo.device import Device, why_unavailable
from pareo.lab.contestants import Contestant, Task
from pareo.lab.processes import Failed, Worker
from pareo.training import floor
from pareo.training.step import step_program

CPU, CARD = "cpu", "cuda"


def place_of(contestant: Contestant) -> str:
    """Where a contestant computes: each place has a peak and a bandwidth of its own.

    >>> place_of(Contestant("some.module", gpu=True))
    'cuda'
    """
    return CARD if contestant.gpu else CPU


class Floors:
    """The floors of one task in the places of a race: `measure` them, as often as there is time."""

    def __init__(self, task: Task, images: int, precision: str = "float32") -> None:
        """`images` are those of an epoch."""
        self._task, self._images, self._precision = task, images, precision
        self.flops = step_program(task.network, task.batch).flops
        self._workers: dict[str, Worker] = {}
        self._found: dict[str, list[tuple[float, float]]] = {}

    def open(self, places: set[str], stack: ExitStack) -> None:
        """A process for each place that can be measured."""
        devices = {CPU: Device("compiled", threads=self._task.threads)}
        if CARD in places and why_unavailable("cuda") is None:
            devices[CARD] = Device("cuda", precision=self._precision)
        for place in sorted(places & devices.keys()):
            self._workers[place] = stack.enter_context(Worker(ceilings, devices[place]))

    def measure(self, patience: float) -> None:
        """How fast each place is now; where that fails, its floor stays unknown."""
        for place, worker in self._workers.items():
            with suppress(Failed):
                self._found.setdefault(place, []).append(worker.ask(patience=patience))

    def of(self, place: str) -> dict[str, Any]:
        """The least seconds of an epoch in a place: its FLOPs at the measured peak, or its bytes.

        >>> from pareo.nn import networks
        >>> Floors(Task(networks.papers_cnn(), batch=1), images=1).of("cpu")["place"]
        'cpu'
        """
        found = self._found.get(place, [])
        peak = max((peak for peak, _ in found), default=math.nan)
        bandwidth = max((speed for _, speed in found), default=math.nan)
        arithmetic, moving = self.flops / peak, self._task.least_bytes() / bandwidth
        return {
            "place": place,
            "precision": self._precision,
            "seconds_per_epoch": max(arithmetic, moving) * self._images / self._task.batch,
            "why": "arithmetic" if arithmetic >= moving else "bandwidth",
            "peak_flops": peak,
            "bandwidth": bandwidth,
        }


def ceilings(device: Device) -> Callable[[], tuple[float, float]]:
    """Measures anew each time it is asked: FLOP/s of a product, bytes a second of a copy."""

    def answer() -> tuple[float, float]:
        if device.name == "cuda":
            return floor.peak(device), floor.card_bandwidth(device)
        peak = floor.peak(device, reached=math.inf)
        return peak, floor.copy_bandwidth(device.threads)

    return answer
