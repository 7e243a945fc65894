"""A cell of the laboratory: one contestant, one operator, one direction, one size."""

from dataclasses import dataclass, field
from typing import Any

from pareo.lab.experiment import statistics
from pareo.lab.ops.peers import on_gpu

NARROW = 0.02  # half of an interval, as a share of the median, that is narrow enough


@dataclass
class Cell:
    """One contestant's piece of work; samples are seconds of a call, in the order taken.

    Without cold samples where no cache holds the operands: then hot is cold.
    """

    operator: str
    direction: str
    nbytes: int
    contestant: str
    status: str = "ok"
    note: str = ""
    flops: int = 0
    least_flops: int = 0
    read: int = 0
    written: int = 0
    error: float | None = None
    hot: list[float] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)
    counters: dict[str, Any] = field(default_factory=dict)

    def end(self, status: str, note: str) -> None:
        """No time for this one: what was measured before is dropped."""
        self.status, self.note, self.hot, self.cold = status, note, [], []

    @property
    def place(self) -> str:
        """Whose ceilings it is held against."""
        return "cuda" if on_gpu(self.contestant) else "cpu"

    @property
    def known(self) -> bool:
        """Whether its times are known well."""
        return all(statistics.enough(s, NARROW) for s in (self.hot, self.cold) if s)
