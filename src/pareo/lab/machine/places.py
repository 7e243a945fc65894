"""Where contestants compute: each place has memory, limits and counters of its own."""

from typing import Literal

from pareo import machine
from pareo.lab.machine import memory

Place = Literal["cpu", "cuda"]
CPU: Place = "cpu"
GPU: Place = "cuda"
PLACES: tuple[Place, ...] = (CPU, GPU)


def free_memory(place: Place) -> int | None:
    """The bytes that are free in a place; None if unknown."""
    if place == CPU:
        return memory.free()
    gpus = machine.gpus()
    return gpus[0].free if gpus else None
