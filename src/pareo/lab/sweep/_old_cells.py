"""A cell of a sweep: one contestant at one batch size, and what became of it."""

import math
from dataclasses import asdict, dataclass, field, fields
from statistics import median
from typing import Any

WAITING, OK, REFUSED, FAILED, MISSING, MEMORY = (
    "waiting", "ok", "refused", "failed", "missing", "memory",
)  # fmt: skip
STATUSES = (WAITING, OK, REFUSED, FAILED, MISSING, MEMORY)


@dataclass
class Cell:
    """What is known of one contestant at one batch size.

    seconds_per_batch: samples, each the mean of a turn of `steps` steps, in the order taken;
    `rounds` says when, counted from `began`; `turn` is what one is, as `turns.Turn` has it. memory:
    bytes, see `lab.sweep.runner`. phases: seconds of `loading` (beside others on a GPU), `building`
    and getting `ready`.
    """

    contestant: str
    batch: int
    status: str = WAITING
    note: str = ""
    seconds_per_batch: list[float] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    began: str = ""
    steps: int = 0
    turn: dict[str, Any] = field(default_factory=dict)
    first_call: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    parity: dict[str, float] = field(default_factory=dict)
    memory: dict[str, int | None] = field(default_factory=dict)
    ledger: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int]:
        """What tells cells apart."""
        return self.contestant, self.batch

    @property
    def seconds_per_image(self) -> list[float]:
        """The same samples for one image.

        >>> Cell("torch", 4, seconds_per_batch=[2.0]).seconds_per_image
        [0.5]
        """
        return [seconds / self.batch for seconds in self.seconds_per_batch]

    @property
    def median(self) -> float:
        """Seconds per image, the median; infinite where there is none, so that it is never best."""
        samples = self.seconds_per_image
        return median(samples) if samples else math.inf

    @property
    def predicted(self) -> int | None:
        """Bytes that were to be expected: the program's, the data's, and what was there before."""
        parts = [self.memory.get(name) for name in ("program", "data", "before")]
        return sum(part or 0 for part in parts) if parts[0] is not None else None

    def end(self, status: str, note: str) -> None:
        """No time for this one: what was measured before is dropped."""
        self.status, self.note = status, note
        self.seconds_per_batch, self.rounds = [], []

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def from_dict(found: dict[str, Any]) -> Cell:
    """A cell as JSON has it.

    >>> from_dict(Cell("torch", 4).as_dict()) == Cell("torch", 4)
    True
    """
    names = {one.name for one in fields(Cell)}
    return Cell(**{name: value for name, value in found.items() if name in names})
