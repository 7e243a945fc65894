"""Repeats a paper's experiment: its phases one after another, each by one of the lab's engines."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol, TypeVar

from pareo.device import why_unavailable
from pareo.errors import PareoError
from pareo.lab.contestants.registry import known
from pareo.lab.experiment.entry import Status
from pareo.lab.experiment.experiment import Session
from pareo.lab.experiment.results import Result, plain
from pareo.lab.papers.published import Paper, Software, paper
from pareo.lab.replication.result import INTERRUPTED, Line, Measured, Name, PaperResult, Part

Say = Callable[[str], None]
R = TypeVar("R", bound=Result)
Made = TypeVar("Made", bound=Result, covariant=True)


@dataclass(frozen=True)
class Facts:
    """Numbers of a part that no other command measures, by name."""

    numbers: dict[str, float]


class Partly(Exception):
    """Ctrl-C ended a phase; `found` is what it had by then."""

    def __init__(self, found: Result) -> None:
        super().__init__("interrupted")
        self.found = found


class Runs(Protocol[Made]):
    """An engine: `run` measures, `result` is what is known so far."""

    def run(self) -> Made: ...

    def result(self) -> Made: ...


def ran(engine: Runs[Made]) -> Made:
    """The result of an engine; Partly with what there is after Ctrl-C."""
    try:
        found = engine.run()
    except KeyboardInterrupt:
        raise Partly(engine.result()) from None
    if getattr(engine, "interrupted", False):
        raise Partly(found)
    return found


@dataclass(frozen=True)
class Phase:
    """One part of an experiment; `command` runs it alone, where there is such a command.

    finish: is called when all phases are done, until which an interrupted one can be continued.
    resume: lets `run` go on from an interrupted result; None where it always begins again.
    """

    name: str
    title: str
    run: Callable[[Say], Result | Facts]
    command: str = ""
    finish: Callable[[], None] = lambda: None
    resume: Callable[[Result], None] | None = None


@dataclass
class Found:
    """What the phases have measured so far, and why one has nothing."""

    results: dict[str, Result | Facts] = field(default_factory=dict)
    notes: dict[str, tuple[Status, str]] = field(default_factory=dict)

    def result(self, name: str, declared: type[R]) -> R | None:
        """The result of a phase; None where it has none."""
        found = self.results.get(name)
        return found if isinstance(found, declared) else None

    def fact(self, name: str, number: str) -> float | None:
        """A number of a phase; None where it is not known."""
        found = self.results.get(name)
        return found.numbers.get(number) if isinstance(found, Facts) else None

    def absent(self, name: str) -> Measured:
        """The status and note of a line that a phase has nothing for."""
        status, note = self.notes.get(name, ("waiting", "it was not measured"))
        return {"status": status, "note": note}


class Plan(ABC):
    """How one paper is repeated: its phases, and what is compared."""

    name: Name

    @property
    def paper(self) -> Paper:
        """What the paper published."""
        return paper(self.name)

    @abstractmethod
    def phases(self) -> list[Phase]:
        """What is measured, in order."""

    @abstractmethod
    def lines(self, found: Found) -> list[Line]:
        """Every published figure, beside what was found."""

    @abstractmethod
    def why(self, found: Found) -> list[str]:
        """Paragraphs that say why the figures differ."""


class Replication(Session):
    """A paper's experiment under way: `run` it; `doing` says what it does, `phase` which part.

    It goes on from an `earlier` result of the same paper, where one is given.
    """

    def __init__(
        self,
        plan: Plan,
        quick: bool,
        watch: Callable[["Replication"], None] = lambda replication: None,
        earlier: PaperResult | None = None,
    ) -> None:
        super().__init__(watch)
        self._earlier = {part.name: part for part in earlier.parts} if earlier else {}
        self.plan, self.quick, self.phase = plan, quick, ""
        self.found = Found()
        self.parts: list[Part] = []
        self.interrupted = False

    def run(self) -> PaperResult:
        """Run the phases, until the last or Ctrl-C; what is known then."""
        self.begin()
        phases = self.plan.phases()
        for number, phase in enumerate(phases, 1):
            self.parts.append(self._part(phase, f"{number} of {len(phases)}: {phase.title}"))
        if not self.interrupted:
            for phase in phases:
                phase.finish()
        return self.result()

    def result(self) -> PaperResult:
        """Everything that is known so far."""
        return PaperResult(
            **self.header(PaperResult, "paper"),
            network=self.plan.name,
            paper=self.plan.name,
            quick=self.quick,
            interrupted=self.interrupted,
            lines=self.plan.lines(self.found),
            why=self.plan.why(self.found),
            software={_named(one): today(one) for one in self.plan.paper.software},
            parts=self.parts,
        )

    def _part(self, phase: Phase, title: str) -> Part:
        """What a phase gives now, or gave earlier."""
        before = self._before(phase)
        if before is not None and (self.interrupted or before.complete):
            return self._as_it_was(before)
        part = Part(name=phase.name, command=phase.command)
        if self.interrupted:
            return self._end(part, "waiting", "not measured: it was interrupted")
        self.phase = title
        self.say("")
        began = time.perf_counter()
        part = self._run(phase, part, before)
        if part is not before:
            part.seconds += time.perf_counter() - began
        return part

    def _before(self, phase: Phase) -> Part | None:
        """What an earlier result has of a phase, if it was measured in the same way."""
        part = self._earlier.get(phase.name)
        return part if part and part.measured and part.command == phase.command else None

    def _run(self, phase: Phase, part: Part, before: Part | None) -> Part:
        """Run a phase; where Ctrl-C leaves less than there was before, that is kept."""
        try:
            if before and phase.resume and (result := before.whole()):
                phase.resume(result)
                part.seconds = before.seconds
            return self._keep(part, phase.run(self.say))
        except Partly as ended:
            self.interrupted = True
            if before and not phase.resume:
                return self._as_it_was(before)
            part.note = INTERRUPTED
            return self._keep(part, ended.found)
        except KeyboardInterrupt:
            self.interrupted = True
            if before:
                return self._as_it_was(before)
            return self._end(part, "waiting", "not measured: it was interrupted")
        except PareoError as error:
            return self._end(part, "failed", str(error))

    def _as_it_was(self, part: Part) -> Part:
        """A part of the earlier result."""
        self.found.results[part.name] = part.whole() or Facts(part.facts)
        return part

    def _keep(self, part: Part, result: Result | Facts) -> Part:
        self.found.results[part.name] = result
        if isinstance(result, Facts):
            part.facts = result.numbers
        else:
            part.result = plain(result)
        return part

    def _end(self, part: Part, status: Status, note: str) -> Part:
        part.status, part.note = status, note
        self.found.notes[part.name] = status, note
        return part


@cache  # every line of a table asks
def no_gpu() -> str:
    """Why pareo's cuda device cannot run here, in words; empty where it can."""
    return known()["pareo-cuda"].missing() or why_unavailable("cuda") or ""


def _named(one: Software) -> str:
    return f"{one.name} {one.version}".strip()


def today(one: Software) -> str:
    """What stands for a paper's software here, in words.

    >>> today(Software(name="Caffe", gone="Caffe cannot be installed any more"))
    'Caffe cannot be installed any more'
    >>> today(Software(name="NumPy", contestant="pareo-vectorized"))
    'pareo-vectorized'
    """
    reason = known()[one.contestant].missing() if one.contestant else ""
    said = f"{one.contestant}: {reason}" if reason else one.contestant
    if one.gone:
        return f"{one.gone}; its successor is {said}" if said else one.gone
    return said or one.instead
