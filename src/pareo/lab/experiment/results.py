"""Results of experiments: typed, with one header, read from JSON and checked by their types.

A result's type is a dataclass. Its fields are those of the JSON file, so the type says what a file
must hold. msgspec converts and checks; `__post_init__` raises ValueError where fields do not agree
with each other. Unknown fields are ignored. A type that has changed reads older files through
`upgraded`.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import msgspec
import numpy as np
from msgspec import inspect

from pareo import __version__, machine, strict_json
from pareo.errors import DataError
from pareo.lab.experiment.bounds import Amount, Count, Natural, Number, Positive
from pareo.regular_file import regular

LARGEST = 256 << 20  # bytes of a JSON file: a race with a million samples has a tenth of it

Json = Any  # what JSON can hold: the facts that adapters report have no fixed form

T = TypeVar("T")

__all__ = [
    "KINDS", "Amount", "Count", "Gpu", "Json", "Machine", "Natural", "Number", "Positive", "Result",
    "checked", "convert", "number", "parsed", "plain", "read", "sentence", "to_json", "versions",
]  # fmt: skip

# The module that declares each kind of result, in `RESULTS`.
KINDS = {
    "race": "pareo.lab.race.result",
    "kernels": "pareo.lab.kernels.result",
    "sweep": "pareo.lab.sweep.result",
    "ops": "pareo.lab.ops.result",
    "parallel": "pareo.lab.parallel.result",
    "parallel-papers": "pareo.lab.parallel.result",
    "tune": "pareo.lab.tune.result",
    "arena": "pareo.lab.arena.result",
    "paper": "pareo.lab.replication.result",
}


@dataclass(kw_only=True)
class Gpu:
    """An NVIDIA GPU, as its driver describes it: bytes and MHz."""

    name: str = ""
    driver: str = ""
    memory: Natural | None = None
    free: Natural | None = None
    clock: Natural | None = None
    highest_clock: Natural | None = None
    memory_clock: Natural | None = None


@dataclass(kw_only=True)
class Machine:
    """Where something ran.

    idle_cores: cores that no other program used before it began; None where that is not known.
    """

    processor: str = ""
    architecture: str = ""
    cores: Count | None = None
    memory_bytes: Natural | None = None
    python: str = ""
    libraries: dict[str, str | None] = field(default_factory=dict)
    cards: list[Gpu] | None = None
    idle_cores: Amount | None = None

    @classmethod
    def here(cls, idle_cores: float | None = None) -> Self:
        """This machine, now."""
        return msgspec.convert({**machine.describe(), "idle_cores": idle_cores}, cls)

    @property
    def gpus(self) -> list[Gpu]:
        """The GPUs; none in files that do not say."""
        return self.cards or []

    @property
    def name(self) -> str:
        """The processor and the GPUs.

        >>> Machine(processor="Arm Neoverse V2", cards=[Gpu(name="NVIDIA H200")]).name
        'Arm Neoverse V2, NVIDIA H200'
        """
        return ", ".join([self.processor or "unknown processor", *(gpu.name for gpu in self.gpus)])


def versions() -> dict[str, str | None]:
    """The versions of pareo and of the libraries that it can use, here."""
    return {"pareo": __version__, **machine.libraries()}


@dataclass(kw_only=True)
class Result:
    """What every result begins with. SCHEMA is the version that this type reads and writes."""

    SCHEMA: ClassVar[int] = 1

    schema: int
    kind: str
    when: str
    machine: Machine
    versions: dict[str, str | None]
    network: str

    @classmethod
    def upgraded(cls, data: dict[str, Any]) -> dict[str, Any]:
        """The data of an older schema in the form of this one; ValueError for any other schema."""
        if data.get("schema") != cls.SCHEMA:
            raise ValueError(f"Expected {cls.SCHEMA} - at `$.schema`")
        return data

    @classmethod
    def header(
        cls, kind: str, idle_cores: float | None = None, here: Machine | None = None
    ) -> dict[str, Any]:
        """The fields above for a result that is made here and now, but for the network."""
        return {
            "schema": cls.SCHEMA,
            "kind": kind,
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": here or Machine.here(idle_cores),
            "versions": versions(),
        }

    def __post_init__(self) -> None:
        """Raise ValueError where fields do not agree with each other."""

    def _repr_html_(self) -> str | None:
        """What a notebook shows: the main finding and tables; None for kinds without them."""
        found: str | None = import_module("pareo.lab.report").fragment(self)
        return found

    @property
    def moment(self) -> str:
        """When it was made, to the minute."""
        return self.when[:16].replace("T", " ")


def read(path: Path) -> Result:
    """The result in a JSON file."""
    try:
        text = regular(path, LARGEST).read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: expected a file to read; got: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected JSON; got bytes that are no text") from error
    return parsed(text, str(path))


def parsed(text: str, source: str) -> Result:
    """The result in a text that came from `source`."""
    try:
        return checked(strict_json.loads(text, LARGEST, allow_nan=True), source)
    except strict_json.NotJson as error:
        raise DataError(f"{source}: expected JSON; got: {error}") from error


def checked(data: Any, source: str) -> Result:
    """The result that plain data describe; DataError names the field of `source` that is wrong."""
    if not isinstance(data, dict):
        raise DataError(f"{source}: expected an object; got {_shown(data)}")
    kind = data.get("kind", "race")
    if not isinstance(kind, str) or kind not in KINDS:
        raise DataError(f"{source}: expected one of {', '.join(KINDS)} in kind; got {_shown(kind)}")
    declared: type[Result] = import_module(KINDS[kind]).RESULTS[kind]
    return convert(data, declared, source, declared.upgraded)


def convert(
    data: Any, declared: type[T], source: str, upgraded: Callable[[Any], Any] = lambda data: data
) -> T:
    """Plain data as a type; DataError names the field of `source` that does not fit."""
    try:
        return msgspec.convert(upgraded(data), declared)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise DataError(f"{source}: {sentence(str(error), data, declared)}") from None


def plain(value: Any) -> Any:
    """A result, or part of one, as JSON has it: NumPy's numbers as Python's, None for NaN.

    >>> plain({"a": np.float32(0.5), "b": [math.nan]})
    {'a': 0.5, 'b': [None]}
    """
    return _finite(msgspec.to_builtins(value, enc_hook=number, str_keys=True))


def to_json(result: Any, indent: int | None = 1) -> str:
    """A result as the text of a JSON file."""
    return json.dumps(plain(result), indent=indent, allow_nan=False)


def number(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's, for msgspec; TypeError for anything else."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"JSON has no {type(value).__name__}")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


PLACE = re.compile(r" - at `(?:key` in `)?\$\.?(.*?)`$")
NOT_ALLOWED = "Invalid enum value "
WORDS = {
    "object": "an object", "array": "a list", "str": "text", "bool": "true or false",
    "int": "a whole number", "float": "a number",
}  # fmt: skip


def sentence(said: str, data: Any, declared: Any = None) -> str:
    """msgspec's message in words, with the value that is wrong; `declared` is the type expected.

    >>> sentence("Expected `float` > 0.0 - at `$.rows[0].samples[1]`", {})
    'expected a number > 0.0 in rows[0].samples[1]'
    >>> sentence("Expected `str`, got `int` - at `$.network`", {"network": 3})
    'expected text in network; got 3'
    """
    found = PLACE.search(said)
    place = found[1] if found else ""
    words = said[: found.start()] if found else said
    words, _, own = words.split(", got ")[0].partition("; got ")
    if words.startswith(NOT_ALLOWED):
        own = words.removeprefix(NOT_ALLOWED)
        words = f"Expected {_choices(inspect.type_info(declared), place)}"
    got = f"; got {own}" if own else _at(data, place)
    words = words.replace("Object missing required field ", "Expected ")
    words = words.replace("Number out of range", "Expected a smaller number")
    words = re.sub("`([^`]*)`", lambda name: _or(name[1]), words)
    at = f" in {place}" if place and place != "..." else ""
    return f"{words[:1].lower()}{words[1:]}{at}{got}"


def _choices(declared: inspect.Type, place: str) -> str:
    """The words that a type allows at a place, or as keys there."""
    for step in re.findall(r"\[[^\]]*\]|[^.\[\]]+", place):
        match declared:
            case inspect.DataclassType(fields=fields):
                declared = next((one.type for one in fields if one.name == step), declared)
            case inspect.ListType(item_type=inner) | inspect.DictType(value_type=inner):
                declared = inner
    if isinstance(declared, inspect.DictType):
        declared = declared.key_type
    if isinstance(declared, inspect.LiteralType):
        return f"one of {', '.join(map(str, declared.values))}"
    return "another word"


def _or(types: str) -> str:
    """Types in words.

    >>> _or("int | null"), _or("network")
    ('a whole number or null', 'network')
    """
    return " or ".join(WORDS.get(name, name) for name in types.split(" | "))


def _at(data: Any, place: str) -> str:
    """What lies at a place, for an error message; empty where that cannot be said."""
    try:
        for name, number in re.findall(r"([^.\[\]]+)|\[(\d+)\]", place):
            data = data[name] if name else data[int(number)]
    except (KeyError, IndexError, TypeError, ValueError):
        return ""
    return f"; got {_shown(data)}" if isinstance(data, str | int | float | None) else ""


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, float) else strict_json.shown(value)
