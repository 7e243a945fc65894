"""A result as plain data, at first a race's: read from a file, checked before anything uses it."""

import json
import math
from importlib import import_module
from pathlib import Path
from typing import Any

from pareo.errors import DataError
from pareo.lab.kernels.events import KINDS as KERNELS

SCHEMA = 2
# Results of other kinds than a race, each with the module whose `checked` knows it.
KINDS = {
    "sweep": "pareo.lab.sweep.results",
    "ops": "pareo.lab.ops.results",
    "parallel": "pareo.lab.parallel.check",
    "parallel-papers": "pareo.lab.parallel.check",
    "tune": "pareo.lab.tune_check",
}
STATUSES = ("ok", "refused", "failed", "missing")
MOST = 1e300  # of any number
LARGEST = 256 << 20  # bytes of a JSON file: a race with a million samples has a tenth of it


def read(path: Path) -> dict[str, Any]:
    """The result in a JSON file."""
    try:
        if path.stat().st_size > LARGEST:
            raise DataError(f"{path}: expected a race's result; got {path.stat().st_size:,} B")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: expected a file to read; got: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected JSON; got bytes that are no text") from error
    return parsed(text, str(path))


def parsed(text: str, source: str) -> dict[str, Any]:
    """The result in a text that came from `source`."""
    try:
        found = json.loads(text)
        if "\\ud" in text.lower():  # half of a character, maybe, which no file or terminal can hold
            json.dumps(found, ensure_ascii=False).encode()
        return checked(found, source)
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{source}: expected JSON; got: {error}") from error


def plain(value: Any) -> Any:
    """The value as JSON has it: a number that is not finite becomes null."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def checked(result: Any, source: str) -> dict[str, Any]:
    """The result, if it is one; otherwise a DataError says which field of `source` is wrong."""
    check = Check(source)
    check.field(result, "", dict, "an object")
    if str(result.get("kind")) in KINDS:
        return dict(import_module(KINDS[result["kind"]]).checked(result, source))
    if result.get("schema") == 1:
        result = _from_1(check, result)
    if result.get("schema") != SCHEMA:
        raise DataError(
            f"{source}: expected a race's result with schema 1 or {SCHEMA}; "
            f"got {result.get('schema')!r}"
        )
    for name in ("kind", "when", "network", "precision"):
        check.field(result.get(name), name, str, "text")
    for name in ("batch", "threads", "images"):
        check.number(result.get(name), name, least=1)
    check.number(result.get("flops"), "flops", least=0)
    if result.get("data") is not None:
        check.field(result["data"], "data", str, "text")
    check.machine(result.get("machine"))
    check.field(result.get("versions"), "versions", dict, "an object")
    check.field(result.get("rows"), "rows", list, "a list")
    for number, row in enumerate(result["rows"]):
        _row(check, row, f"rows[{number}]")
    if result["kind"] == "kernels":
        _kernels(check, result)
    return dict(result)


def _kernels(check: "Check", result: dict[str, Any]) -> None:
    """What a study of kernels has besides."""
    check.number(result.get("matrix_instructions"), "matrix_instructions", least=1)
    check.field(result.get("flops_by_kind"), "flops_by_kind", dict, "an object")
    if not result["flops_by_kind"]:
        check.wrong("flops_by_kind", "at least one kind", {})
    for kind, count in result["flops_by_kind"].items():
        check.number(count, f"flops_by_kind.{kind}", least=0)
    for number, row in enumerate(result["rows"]):
        place = f"rows[{number}].profiles"
        check.field(row.get("profiles"), place, list, "a list")
        for which, profile in enumerate(row["profiles"]):
            inner = f"{place}[{which}]"
            check.field(profile, inner, dict, "an object")
            for name in ("instrument", "mode", "note"):
                check.field(profile.get(name), f"{inner}.{name}", str, "text")
            check.number(profile.get("seconds"), f"{inner}.seconds", above=0)
            check.field(profile.get("rows"), f"{inner}.rows", list, "a list")
            if not profile["rows"]:
                check.wrong(f"{inner}.rows", "at least the time between kernels", [])
            for kernel, seen in enumerate(profile["rows"]):
                _kernel(check, seen, f"{inner}.rows[{kernel}]")


def _kernel(check: "Check", row: Any, place: str) -> None:
    check.field(row, place, dict, "an object")
    for name in ("name", "shape"):
        check.field(row.get(name), f"{place}.{name}", str, "text")
    if row.get("kind") not in KERNELS:
        check.wrong(f"{place}.kind", f"one of {', '.join(KERNELS)}", row.get("kind"))
    for name in ("calls", "seconds"):
        check.number(row.get(name), f"{place}.{name}", least=0)
    check.number_or_none(row.get("flops"), f"{place}.flops")
    if extra := row.keys() - {"name", "kind", "shape", "calls", "seconds", "flops"}:
        check.wrong(place, "a kernel's fields alone", sorted(extra))


def _row(check: "Check", row: Any, place: str) -> None:
    check.field(row, place, dict, "an object")
    for name in ("contestant", "note"):
        check.field(row.get(name), f"{place}.{name}", str, "text")
    if row.get("status") not in STATUSES:
        check.wrong(f"{place}.status", f"one of {', '.join(STATUSES)}", row.get("status"))
    for name in ("samples", "rounds", "curve"):
        check.field(row.get(name), f"{place}.{name}", list, "a list")
    for number, seconds in enumerate(row["samples"]):
        check.number(seconds, f"{place}.samples[{number}]", above=0)
    if len(row["rounds"]) != len(row["samples"]):
        check.wrong(f"{place}.rounds", f"{len(row['samples'])} of them", len(row["rounds"]))
    for number, turn in enumerate(row["rounds"]):
        check.number(turn, f"{place}.rounds[{number}]", least=0)
    check.numbers_or_none(row, place, ("slice", "first_call"))
    if row["samples"]:
        check.number(row["slice"], f"{place}.slice", above=0)
    for name in ("floor", "parity", "ledger"):
        check.field(row.get(name), f"{place}.{name}", dict, "an object")
    check.turn(row.get("turn", {}), f"{place}.turn")
    for name in ("seconds_per_epoch", "peak_flops", "bandwidth"):
        check.number_or_none(row["floor"].get(name), f"{place}.floor.{name}")
    for name in ("loss", "parameter", "median", "share", "loss_share", "steps"):
        check.number_or_none(row["parity"].get(name), f"{place}.parity.{name}")
    check.number_or_none(
        row["ledger"].get("peak_memory_bytes"), f"{place}.ledger.peak_memory_bytes"
    )
    for number, point in enumerate(row["curve"]):
        inner = f"{place}.curve[{number}]"
        check.field(point, inner, dict, "an object")
        for name in ("epoch", "seconds"):
            check.number(point.get(name), f"{inner}.{name}", least=0)
        for name in ("loss", "accuracy"):
            check.number_or_none(point.get(name), f"{inner}.{name}")


def _from_1(check: "Check", result: dict[str, Any]) -> dict[str, Any]:
    """A result of schema 1, which had one floor: the GPU's where there was one, else the CPU's."""
    data = "mnist" if result.get("images") == 60_000 else None  # there was no choice
    found = {**result, "schema": SCHEMA, "data": data}
    floor = found.pop("floor", None)
    check.field(floor, "floor", dict, "an object")
    check.field(result.get("machine"), "machine", dict, "an object")
    check.field(result.get("rows"), "rows", list, "a list")
    place = "cuda" if result["machine"].get("cards") else "cpu"
    rows = []
    for number, row in enumerate(result["rows"]):
        check.field(row, f"rows[{number}]", dict, "an object")
        there = "cuda" if "cuda" in str(row.get("contestant")) else "cpu"
        known = floor if there == place else {}
        precision = result.get("precision")
        rows.append({**row, "floor": {**known, "place": there, "precision": precision}})
    return {**found, "rows": rows}


class Check:
    """Says what is wrong, with the place where."""

    def __init__(self, source: str) -> None:
        self.source = source

    def wrong(self, place: str, expected: str, got: Any) -> None:
        shown = got if isinstance(got, float) else f"{got!r:.60}"
        at = f" in {place}" if place else ""
        raise DataError(f"{self.source}: expected {expected}{at}; got {shown}")

    def field(self, value: Any, place: str, kind: type, expected: str) -> None:
        if not isinstance(value, kind):
            self.wrong(place, expected, value)

    def number(
        self, value: Any, place: str, least: float = -math.inf, above: float = -math.inf
    ) -> None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not abs(value) < MOST or value < least or value <= above:
            bound = f" of {least:g} or more" if least > -math.inf else ""
            bound = f" above {above:g}" if above > -math.inf else bound
            self.wrong(place, f"a number{bound}", value)

    def number_or_none(self, value: Any, place: str, least: float = -math.inf) -> None:
        if value is not None:
            self.number(value, place, least)

    def numbers_or_none(self, value: dict[str, Any], place: str, names: tuple[str, ...]) -> None:
        """Fields that must be there, if only to say that there is no number."""
        for name in names:
            if name not in value:
                self.wrong(f"{place}.{name}", "a number or null", "nothing")
            self.number_or_none(value[name], f"{place}.{name}")

    def turn(self, value: Any, place: str) -> None:
        """What a turn was, which files of before 2026-11-17 do not tell."""
        self.field(value, place, dict, "an object")
        for name in ("steps", "opening", "fixed", "share", "opening_seconds"):
            self.number_or_none(value.get(name), f"{place}.{name}", least=0)
        self.field(value.get("apart", False), f"{place}.apart", bool, "true or false")

    def machine(self, value: Any) -> None:
        """Where something ran."""
        self.field(value, "machine", dict, "an object")
        self.field(value.get("processor", ""), "machine.processor", str, "text")
        for name in ("idle_cores", "memory_bytes"):
            self.number_or_none(value.get(name), f"machine.{name}", least=0)
        cards = value.get("cards") or []
        self.field(cards, "machine.cards", list, "a list")
        for number, card in enumerate(cards):
            self.field(card, f"machine.cards[{number}]", dict, "an object")
