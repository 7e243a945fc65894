"""What trains a task: an adapter with its options, and the trainer that it builds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from shutil import which
from typing import Protocol, SupportsFloat

from pareo.lab.contestants.task import Array, Task
from pareo.machine import gpus

EXTRAS = ("torch", "jax", "tensorflow", "pytensor", "tinygrad")  # under the frameworks' own names


class Trainer(Protocol):
    """A network under training.

    It may have four more methods. `facts()` returns what a reader should know of how it computes
    (see `Runner.ledger`). `peak_bytes()` returns the most GPU memory that its arrays have had, and
    `reserved_bytes()` the most that its allocator has held. `forget_peak()` resets both, because
    memory that was needed to choose among algorithms is not needed by a step.
    """

    def run(self, order: Array) -> Sequence[SupportsFloat]:
        """Train one step for each row of image numbers; return the losses when all is done."""

    def parameters(self) -> dict[str, Array]:
        """The parameters now, in pareo's layout."""

    def load(self, parameters: Mapping[str, Array]) -> None:
        """Continue from other parameters, in the same layout."""


@dataclass(frozen=True)
class Contestant:
    """An adapter with its options.

    needs: the package that it requires. tool: a program that this package calls.
    gpu: whether it computes on an NVIDIA GPU.
    warms: whether building it once, at the same time as others, makes the next build fast: its
        compiler keeps code on disk, but nothing that was chosen by timing.
    images: those of one step, for a contestant that is too slow for a whole batch.
    tries: names of other contestants; the fastest of them in a short trial races as this one.
    """

    module: str = ""
    options: dict[str, object] = field(default_factory=dict)
    needs: str | None = None
    gpu: bool = False
    warms: bool = False
    images: int | None = None
    tries: tuple[str, ...] = ()
    tool: str | None = None

    def missing(self) -> str | None:
        """What it needs and how to install that; None if it can run here.

        >>> Contestant("some.module", needs="frobnicate").missing()
        'not installed: pip install frobnicate'
        """
        if self.needs is not None and find_spec(self.needs) is None:
            name = f"'pareo[{self.needs}]'" if self.needs in EXTRAS else self.needs
            return f"not installed: pip install {name}"
        if self.tool is not None and which(self.tool) is None:
            return f"{self.needs} needs the program {self.tool}, which is not installed"
        return "this machine has no NVIDIA GPU" if self.gpu and not _has_gpu() else None

    def in_precision(self, precision: str) -> "Contestant":
        """The same contestant in a precision, of which only GPUs offer a choice."""
        return replace(self, options={**self.options, "precision": precision}) if self.gpu else self

    def load(self) -> None:
        """Import the libraries, if the adapter has a `load`; nothing is computed."""
        getattr(import_module(self.module), "load", lambda **_: None)(**self.options)

    def build(self, task: Task) -> Trainer:
        """The task, ready to train."""
        trainer: Trainer = import_module(self.module).build(task, **self.options)
        return trainer


@cache
def _has_gpu() -> bool:
    """Cached, because the driver takes a second to answer."""
    return bool(gpus())
