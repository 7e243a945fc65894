"""The result of `pareo paper`: every published figure beside the one measured here.

docs/howto-papers.md describes its fields.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Self, TypedDict

from pareo.lab.experiment import results
from pareo.lab.experiment.entry import Status
from pareo.lab.experiment.results import Amount, Json, Number, Result
from pareo.lab.papers.published import NAMES, Figure, Paper, paper

# The kinds of results that a part may hold: not another paper, which could hold itself.
PARTS = ("race", "ops", "sweep", "kernels", "parallel-papers")
INTERRUPTED = "interrupted"  # the note of a part that Ctrl-C ended
Name = Literal["lima-zola", "finardi-david", "trindade-lima", "costa-banevicius", "melo"]
assert Name.__args__ == NAMES  # type: ignore[attr-defined]  # one list for both


class Where(TypedDict):
    """The fields of a line that say where a published figure stands."""

    section: str
    unit: str
    place: str


class Measured(TypedDict, total=False):
    """The fields of a line that say what was measured here, or why nothing was."""

    here: float | None
    of_limit: float | None
    status: Status
    note: str


@dataclass(kw_only=True)
class Line:
    """One published figure, and the same measured here.

    section: the heading under which it stands. on: the paper's hardware. place: where the paper
    has it. published, here: in `unit`; None where there is none. by: what was measured here.
    of_limit: the share of this machine's limit that it reaches. note: why there is no measurement,
    or what a reader must know of it. status: as in the other results.
    """

    section: str
    what: str
    unit: str
    place: str
    on: str = ""
    published: Number | None = None
    by: str = ""
    here: Number | None = None
    of_limit: Number | None = None
    status: Status = "ok"
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """What was measured here over what the paper has; None where one is missing.

        >>> Line(section="", what="", unit="s", place="", published=4.0, here=1.0).ratio
        0.25
        """
        if self.here is None or not self.published:
            return None
        return self.here / self.published

    @classmethod
    def of(cls, section: str, figure: Figure, **more: Json) -> Self:
        """A line for a published figure."""
        fixed = {"what": figure.what, "unit": figure.unit, "on": figure.on, "place": figure.place}
        return cls(section=section, published=figure.value, **{**fixed, **more})


@dataclass(kw_only=True)
class Part:
    """One part of the experiment: a result of another command, or numbers of its own.

    command: what runs this part alone, where there is such a command.
    """

    name: str
    command: str = ""
    seconds: Amount = 0.0
    status: Status = "ok"
    note: str = ""
    facts: dict[str, Number] = field(default_factory=dict)
    result: dict[str, Json] | None = None

    def __post_init__(self) -> None:
        if self.result is not None:
            if self.result.get("kind") not in PARTS:
                raise ValueError(f"Expected one of {', '.join(PARTS)} in the kind of a part")
            self.whole()

    @property
    def measured(self) -> bool:
        """Whether it has a result or numbers, be they complete or not."""
        return self.status == "ok" and (self.result is not None or bool(self.facts))

    @property
    def complete(self) -> bool:
        """Whether it was measured to its end."""
        return self.measured and self.note != INTERRUPTED

    def whole(self) -> Result | None:
        """The result, as its own command reads it."""
        if self.result is None:
            return None
        return results.checked(self.result, f"the part {self.name}")


@dataclass(kw_only=True)
class PaperResult(Result):
    """A paper's experiment, repeated here.

    why: paragraphs that say why the figures differ. software: what the paper used, and what stands
    for it here. interrupted: whether Ctrl-C ended it.
    """

    paper: Name
    quick: bool
    interrupted: bool = False
    lines: list[Line]
    why: list[str]
    software: dict[str, str]
    parts: list[Part]

    @property
    def published(self) -> Paper:
        """What the paper published."""
        return paper(self.paper)

    @property
    def sections(self) -> dict[str, list[Line]]:
        """The lines under each heading, in order."""
        found: dict[str, list[Line]] = {}
        for line in self.lines:
            found.setdefault(line.section, []).append(line)
        return found


def by_hardware(lines: Iterable[Line]) -> dict[tuple[str, str], dict[str, Line]]:
    """Lines that differ in the paper's hardware only, together: those of a row of a table."""
    found: dict[tuple[str, str], dict[str, Line]] = {}
    for line in lines:
        found.setdefault((line.what, line.by), {})[line.on] = line
    return found


def hardware(rows: Mapping[tuple[str, str], Mapping[str, Line]]) -> list[str]:
    """The paper's hardware, as columns of a table; empty where each row has only one."""
    if not rows or max(map(len, rows.values())) < 2:
        return []
    return list(dict.fromkeys(name for row in rows.values() for name in row))


RESULTS = {"paper": PaperResult}
