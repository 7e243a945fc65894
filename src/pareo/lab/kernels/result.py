"""The result of `pareo kernels`: a race's rows, each with the kernels of its step."""

from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from pareo.lab.experiment.results import Count, Natural, Positive
from pareo.lab.kernels.events import MATRIX, KernelTime
from pareo.lab.race import result as race


@dataclass(kw_only=True)
class Look:
    """Some steps under an instrument: an `events.Profile` with kernels in place of its events."""

    instrument: str
    mode: str
    note: str
    steps: Count = 1
    seconds: Positive
    rows: Annotated[list[KernelTime], msgspec.Meta(min_length=1)]  # the last: between kernels


@dataclass
class Row(race.Row):
    """One contestant, and its profiles."""

    profiles: list[Look] = field(kw_only=True)


@dataclass(kw_only=True)
class KernelsResult(race.RaceResult):
    """Everything that is known of the kernels of a training step."""

    matrix_instructions: Count
    flops_by_kind: Annotated[dict[str, Natural], msgspec.Meta(min_length=1)]
    rows: list[Row]  # type: ignore[assignment]  # lists are not covariant, but none is added to

    @property
    def matrix_flops(self) -> int:
        """The program's FLOPs in products and convolutions."""
        return sum(count for kind, count in self.flops_by_kind.items() if kind in MATRIX)


RESULTS = {"kernels": KernelsResult}
