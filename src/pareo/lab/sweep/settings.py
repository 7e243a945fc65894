"""The settings of a sweep: network, batch sizes, contestants, limits."""

import re
from dataclasses import asdict, dataclass
from typing import Any

from pareo.errors import PareoError
from pareo.lab.contestants import Task
from pareo.lab.experiment.results import Amount, Count, Natural
from pareo.lab.experiment.tasks import task_for

LARGEST = 1 << 20  # of a batch: more is a mistake


@dataclass(frozen=True)
class Settings:
    """The settings of a sweep; one with the same settings continues it. See `pareo sweep --help`.

    turn: seconds of a sample, about. seconds: for each batch size, after which no round begins.
        Rounds that a verdict needs may take as many seconds more.
    patience: seconds without an answer after which a contestant counts as hanging.
    abreast: how many batch sizes are timed at the same time.
    largest: whether the largest batch is searched in all the memory, where there is no limit.
    within: the search ends when it is known within this share; 0 is exactly.
    input: the shape of one input of a network of the user's own, where it was given.
    """

    network: str = ""
    batches: tuple[Count, ...] = ()
    contestants: tuple[str, ...] = ()
    precision: str = "float32"
    threads: Count = 1
    size: int = 224
    data: str | None = None
    epochs: int | None = None
    memory_limit: Natural | None = None
    turn: float = 0.5
    seconds: float = 60.0
    patience: float = 600.0
    abreast: int = 1
    largest: bool = False
    within: Amount = 0.0
    input: tuple[Count, ...] | None = None

    def task(self, batch: int) -> Task:
        """The task of one batch size."""
        return task_for(self.network, batch, self.threads, self.size, self.data, self.input)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            **asdict(self),
            "batches": list(self.batches),
            "contestants": [*self.contestants],
            "input": None if self.input is None else list(self.input),
        }


def batch_sizes(text: str) -> tuple[int, ...]:
    """Batch sizes: doubled from one number up to another, or a list.

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
        raise PareoError(
            f"--batches expects sizes as in 1..512 or 1,8,32, up to {LARGEST:,}; got {text!r}"
        )
    return tuple(sorted(set(sizes)))
