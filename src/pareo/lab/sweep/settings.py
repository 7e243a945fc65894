"""What a sweep is asked for: a network, batch sizes, contestants, and how to go about it."""

import re
from dataclasses import asdict, dataclass
from typing import Any

from pareo.data import load
from pareo.errors import PareoError
from pareo.lab.contestants import Task, without_dropout
from pareo.lab.race import task_for
from pareo.nn import networks
from pareo.nn.network import Sequential

LARGEST = 1 << 20  # of a batch: whoever writes more has not meant it


@dataclass(frozen=True)
class Settings:
    """Everything that makes two sweeps the same one; see `pareo sweep --help`.

    turn: seconds of a sample, about. seconds: after which no round begins, for each batch size.
    patience: seconds without an answer after which a contestant counts as hanging.
    abreast: batch sizes whose cells stand at once and take turns.
    """

    network: str
    batches: tuple[int, ...]
    contestants: tuple[str, ...]
    precision: str = "float32"
    threads: int = 1
    size: int = 224
    data: str | None = None
    epochs: int | None = None
    memory_limit: int | None = None
    turn: float = 0.5
    seconds: float = 60.0
    patience: float = 600.0
    abreast: int = 1

    def task(self, batch: int) -> Task:
        """The task of one batch size."""
        task = task_for(self.network, batch, self.threads, size=self.size)
        if self.data is None:
            return task
        network = _for_data(self.network, self.data)
        return Task(network, batch, self.threads, task.rate, task.seed, self.data)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "batches": list(self.batches), "contestants": [*self.contestants]}


def _for_data(name: str, source: str) -> Sequential:
    """A network for the images of a dataset; only AlexNet and GoogLeNet come in other sizes."""
    found = load(source)
    shape = found.shape
    if name in ("alexnet", "alexnet-original", "googlenet"):
        if len(shape) != 3 or shape[0] != 3 or shape[1] != shape[2]:
            raise PareoError(f"{name} expects square RGB images; {source} has {shape}")
        if name == "googlenet":
            return without_dropout(networks.googlenet(shape[1], found.classes))
        version = "original" if name == "alexnet-original" else "2014"
        return without_dropout(networks.alexnet(version, shape[1], found.classes))
    network = without_dropout(networks.by_name(name))
    if network.inputs != shape or found.classes > network.classes:
        raise PareoError(
            f"{name} expects images {network.inputs} of {network.classes} classes; {source} has "
            f"{shape} of {found.classes}"
        )
    return network


def batch_sizes(text: str) -> tuple[int, ...]:
    """Batch sizes: powers of two from one number to another, or a list.

    >>> batch_sizes("1..16"), batch_sizes("8,1,24"), batch_sizes("3..20")
    ((1, 2, 4, 8, 16), (1, 8, 24), (3, 6, 12))
    """
    between = re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", text.strip())
    if between:
        size, last = int(between[1]), int(between[2])
        sizes = []
        while 0 < size <= last:
            sizes.append(size)
            size *= 2
    else:
        parts = [part.strip() for part in text.split(",")]
        sizes = [int(part) for part in parts if re.fullmatch(r"\d{1,9}", part)]
        sizes = sizes if len(sizes) == len(parts) else []
    if not sizes or min(sizes) < 1 or max(sizes) > LARGEST:
        raise PareoError(f"--batches expects sizes as in 1..512 or 1,8,32; got {text!r}")
    return tuple(sorted(set(sizes)))
