"""What the papers published: a TOML file for each, in which every figure has its place.

The types below are those of the files; msgspec checks a file when it is first read.
"""

import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Annotated

import msgspec

from pareo.errors import PareoError
from pareo.lab.experiment.results import convert

NAMES = ("lima-zola", "finardi-david", "trindade-lima", "costa-banevicius", "melo")

Words = Annotated[str, msgspec.Meta(min_length=1)]
Cell = str | int | float


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number that a paper reports; `on` is the hardware, `place` is where it stands."""

    id: Words
    what: Words
    value: float
    unit: Words
    place: Words
    on: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of a paper; `place` is its number there."""

    id: Words
    what: Words
    place: Words
    columns: list[Words]
    rows: list[list[Cell]]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"Expected {len(self.columns)} cells in {self.id}; got {row!r}")

    def column(self, name: str) -> list[Cell]:
        """The cells under a head."""
        at = self.columns.index(name)
        return [row[at] for row in self.rows]


@dataclass(frozen=True, kw_only=True)
class Software:
    """What a paper measured, and what stands for it here.

    contestant: the same software as a contestant, or its successor where it is gone. instead: what
    is measured in its place. gone: why it cannot run any more, in words.
    """

    name: Words
    version: str = ""
    contestant: str = ""
    instead: str = ""
    gone: str = ""


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper: what it asked, what it found, and its figures.

    year: as the paper has it, or the earliest that it can be of; `dated_by` says from what.
    """

    title: Words
    english: Words
    authors: list[Words]
    institution: Words
    year: Words
    dated_by: Words
    question: Words
    finding: Words
    machine: Words
    software: list[Software]
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def figure(self, name: str) -> Figure:
        """The figure with an id.

        >>> paper("lima-zola").figure("cpu").value
        621.0
        """
        return next(one for one in self.figures if one.id == name)

    def value(self, name: str) -> float:
        """The number of a figure."""
        return self.figure(name).value

    def table(self, name: str) -> Table:
        """The table with an id."""
        return next(one for one in self.tables if one.id == name)

    def gone(self, name: str) -> str:
        """Why a paper's software cannot run any more; empty where it can.

        >>> paper("trindade-lima").gone("Caffe")
        'Caffe cannot be installed any more'
        """
        return next(one.gone for one in self.software if one.name == name)


@cache
def paper(name: str) -> Paper:
    """What a paper published, by its name here.

    >>> paper("melo").table("dot").place
    'Table 2'
    >>> paper("knuth")
    Traceback (most recent call last):
    pareo.errors.PareoError: a paper is one of lima-zola, finardi-david, trindade-lima, \
costa-banevicius, melo; got 'knuth'
    """
    if name not in NAMES:
        raise PareoError(f"a paper is one of {', '.join(NAMES)}; got {name!r}")
    text = (files(__package__) / f"{name}.toml").read_text(encoding="utf-8")
    return convert(tomllib.loads(text), Paper, f"{name}.toml")
