"""A laboratory's result as plain data, checked before anything uses it."""

from typing import Any

from pareo.errors import DataError
from pareo.lab.experiment.results import STATUSES, Check
from pareo.lab.machine.ceilings import store
from pareo.lab.ops.engine import SCHEMA
from pareo.lab.ops.work import BACKWARD, FORWARD

PLACES = ("cpu", "cuda")


def checked(result: Any, source: str) -> dict[str, Any]:
    """The result, if it is one; otherwise a DataError says which field of `source` is wrong."""
    check = Check(source)
    check.field(result, "", dict, "an object")
    if result.get("schema") != SCHEMA or result.get("kind") != "ops":
        got = f"{result.get('kind')!r:.40} with schema {result.get('schema')!r:.40}"
        raise DataError(f"{source}: expected a result of `pareo ops`, schema {SCHEMA}; got {got}")
    for name in ("when", "network", "precision"):
        check.field(result.get(name), name, str, "text")
    check.number(result.get("threads"), "threads", least=1)
    check.machine(result.get("machine"))
    for name in ("versions", "ceilings", "rungs"):
        check.field(result.get(name), name, dict, "an object")
    for place, found in result["ceilings"].items():
        if place not in PLACES:
            check.wrong("ceilings", f"{' or '.join(PLACES)}", place)
        limits = store.from_plain(found, f"{source}, ceilings.{place}")
        try:
            limits.memory()
            limits.peak()
        except LookupError as error:
            check.wrong(f"ceilings.{place}", "what a report needs", str(error))
    for place, rung in result["rungs"].items():
        check.field(rung, f"rungs.{place}", dict, "an object")
        for name in ("name", "why"):
            check.field(rung.get(name), f"rungs.{place}.{name}", str, "text")
    check.field(result.get("rows"), "rows", list, "a list")
    for number, row in enumerate(result["rows"]):
        _row(check, row, f"rows[{number}]", result["ceilings"])
    return dict(result)


def _row(check: Check, row: Any, place: str, ceilings: dict[str, Any]) -> None:
    check.field(row, place, dict, "an object")
    for name in ("operator", "contestant", "note"):
        check.field(row.get(name), f"{place}.{name}", str, "text")
    choices = {"direction": (FORWARD, BACKWARD), "status": STATUSES, "place": PLACES}
    for name, allowed in choices.items():
        if row.get(name) not in allowed:
            check.wrong(f"{place}.{name}", f"one of {', '.join(allowed)}", row.get(name))
    check.number(row.get("nbytes"), f"{place}.nbytes", least=1)
    for name in ("flops", "least_flops", "read", "written"):
        check.number(row.get(name), f"{place}.{name}", least=0)
    check.numbers_or_none(row, place, ("error",))
    check.field(row.get("counters"), f"{place}.counters", dict, "an object")
    for name in ("hot", "cold"):
        check.field(row.get(name), f"{place}.{name}", list, "a list")
        for number, seconds in enumerate(row[name]):
            check.number(seconds, f"{place}.{name}[{number}]", above=0)
    if row["hot"] and row["place"] not in ceilings:
        check.wrong("ceilings", f"those of {row['place']}", list(ceilings))
    if row["hot"]:
        check.number(row["error"], f"{place}.error", least=0)
        check.number(row["read"] + row["written"], f"{place}.read", above=0)
