"""The same network in every framework, built from pareo's own layers.

An adapter is a module with `build(task, **options)`, which returns a `Trainer`. An adapter that
imports much has `load(**options)`, which does so and computes nothing.
"""

from pareo.lab.contestants.contestant import Contestant, Trainer
from pareo.lab.contestants.layers import (
    Calls,
    Window,
    pair,
    total_loss,
    unknown,
    without_dropout,
)
from pareo.lab.contestants.registry import CONTESTANTS
from pareo.lab.contestants.task import Array, Task

__all__ = [
    "CONTESTANTS", "Array", "Calls", "Contestant", "Task", "Trainer", "Window", "pair",
    "total_loss", "unknown", "without_dropout",
]  # fmt: skip
