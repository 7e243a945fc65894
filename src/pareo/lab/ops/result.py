"""The result of `pareo ops`: docs/howto-ops.md describes its fields."""

import math
from dataclasses import dataclass, field

from pareo.lab.experiment import statistics
from pareo.lab.experiment.entry import Outcome
from pareo.lab.experiment.results import Amount, Count, Json, Natural, Positive, Result
from pareo.lab.machine.ceilings import Ceilings
from pareo.lab.machine.places import Place
from pareo.lab.ops.counters import Rung
from pareo.lab.ops.work import Direction, Work

NARROW = 0.02  # half of an interval, as a share of the median, that is narrow enough


@dataclass
class Cell(Outcome):
    """One contestant, one operator, one direction, one size.

    Args:
        place: where the contestant computes; it is compared with the ceilings of that place.
        flops: by the operator's formula. least_flops: the fewest that are known to suffice.
        read, written: the fewest bytes.
        error: relative to float64.
        hot, cold: seconds of a call, in the order taken. There are no cold samples if no cache
            holds the operands: then hot is cold.
        counters: what hardware counters said of one call.
    """

    operator: str
    direction: Direction
    nbytes: Count
    place: Place = field(kw_only=True)
    flops: Amount = field(default=0, kw_only=True)
    least_flops: Amount = field(default=0, kw_only=True)
    read: Natural = field(default=0, kw_only=True)
    written: Natural = field(default=0, kw_only=True)
    error: Amount | None = field(default=None, kw_only=True)
    hot: list[Positive] = field(default_factory=list, kw_only=True)
    cold: list[Positive] = field(default_factory=list, kw_only=True)
    counters: dict[str, Json] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        if self.hot and (self.error is None or not self.moved):
            raise ValueError("Expected an error, and bytes read or written, where there are times")

    @property
    def work(self) -> Work:
        """What is computed."""
        return Work(self.operator, self.direction, self.nbytes)

    @property
    def kind(self) -> tuple[str, str]:
        """The operator and the direction: what is compared with each other."""
        return self.operator, self.direction

    @property
    def moved(self) -> int:
        """Bytes read and written."""
        return self.read + self.written

    @property
    def known(self) -> bool:
        """Whether the intervals of its times are narrow."""
        return all(statistics.enough(s, NARROW) for s in (self.hot, self.cold) if s)

    def samples(self, cold: bool) -> list[float]:
        """The hot samples, or the cold ones."""
        return self.cold if cold else self.hot

    def drop(self) -> None:
        self.hot, self.cold = [], []


@dataclass(kw_only=True)
class OpsResult(Result):
    """Everything that is known of operators: ceilings and counters by place, and all cells."""

    network: str = "operators"  # the name that `pareo history` shows
    precision: str = "float32"
    threads: Count
    rungs: dict[Place, Rung]
    ceilings: dict[Place, Ceilings]
    rows: list[Cell]

    def __post_init__(self) -> None:
        super().__post_init__()
        for place, found in self.ceilings.items():
            try:
                found.peak()
                for mix in (1.0, 2.0, math.inf):
                    found.memory(mix)
            except LookupError as error:
                raise ValueError(f"Expected other ceilings of {place}: {error}") from None
        for number, cell in enumerate(self.rows):
            if cell.hot and cell.place not in self.ceilings:
                raise ValueError(f"Expected ceilings of this place - at `$.rows[{number}].place`")


RESULTS = {"ops": OpsResult}
