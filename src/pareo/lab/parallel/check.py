"""A result of `pareo parallel` from outside: checked before anything uses it."""

from typing import Any

from pareo.lab.experiment.results import STATUSES, Check
from pareo.lab.parallel.result import SCHEMA

KINDS = ("parallel", "parallel-papers")
FIGURES = (
    "seconds", "test_seconds", "speedup", "test_speedup", "efficiency", "communication", "idle",
)  # fmt: skip


def checked(result: Any, source: str) -> dict[str, Any]:
    """The result, if it is one; otherwise a DataError says which field of `source` is wrong."""
    check = Check(source)
    check.field(result, "", dict, "an object")
    if result.get("kind") not in KINDS or result.get("schema") != SCHEMA:
        expected = f"a result of `pareo parallel` with schema {SCHEMA}"
        check.wrong("schema", expected, result.get("schema"))
    for name in ("when", "network"):
        check.field(result.get(name), name, str, "text")
    for name in ("batch", "images"):
        check.number(result.get(name), name, least=1)
    check.number(result.get("test_images"), "test_images", least=0)
    check.machine(result.get("machine"))
    check.field(result.get("versions"), "versions", dict, "an object")
    for name in ("workers", "rows"):
        check.field(result.get(name), name, list, "a list")
    check.number(len(result["workers"]), "the length of workers", least=1)
    for number, count in enumerate(result["workers"]):
        check.number(count, f"workers[{number}]", least=1)
    for number, row in enumerate(result["rows"]):
        _row(check, row, f"rows[{number}]")
    _strategies(check, result)
    if result["kind"] == "parallel-papers" or {"sgemm_peak", "published"} & result.keys():
        _papers(check, result)
    return dict(result)


def _row(check: Check, row: Any, place: str) -> None:
    check.field(row, place, dict, "an object")
    for name in ("contestant", "name", "note"):
        check.field(row.get(name), f"{place}.{name}", str, "text")
    if row.get("status") not in STATUSES:
        check.wrong(f"{place}.status", f"one of {', '.join(STATUSES)}", row.get("status"))
    for name in ("workers", "networks"):
        check.number(row.get(name), f"{place}.{name}", least=1)
    for name in ("train", "test"):
        check.field(row.get(name), f"{place}.{name}", list, "a list")
        for number, seconds in enumerate(row[name]):
            check.number(seconds, f"{place}.{name}[{number}]", above=0)
    for name in FIGURES:
        check.number_or_none(row.get(name, ""), f"{place}.{name}")
    if row["train"]:
        check.number(row["seconds"], f"{place}.seconds", above=0)


def _strategies(check: Check, result: dict[str, Any]) -> None:
    """What several workers, and other batch sizes, did for each strategy."""
    for name in ("strategies", "sizes"):
        check.field(result.get(name, []), name, list, "a list")
        for number, one in enumerate(result.get(name, [])):
            check.field(one, f"{name}[{number}]", dict, "an object")
            check.field(one.get("strategy"), f"{name}[{number}].strategy", str, "text")
    for number, one in enumerate(result.get("strategies", [])):
        place = f"strategies[{number}]"
        check.field(one.get("speedups"), f"{place}.speedups", dict, "an object")
        for count, speedup in one["speedups"].items():
            if not count.isdecimal():
                check.wrong(f"{place}.speedups", "numbers of workers", count)
            check.number_or_none(speedup, f"{place}.speedups.{count}")
        for name in ("serial_share", "limit"):
            check.number_or_none(one.get(name), f"{place}.{name}")
    for number, one in enumerate(result.get("sizes", [])):
        check.number(one.get("batch"), f"sizes[{number}].batch", least=1)
        check.number_or_none(one.get("speedup"), f"sizes[{number}].speedup")
    check.field(result.get("pays_from", {}), "pays_from", dict, "an object")
    for name, batch in result.get("pays_from", {}).items():
        check.number_or_none(batch, f"pays_from.{name}")
    expected = result.get("prediction", {"words": ""})
    check.field(expected, "prediction", dict, "an object")
    check.field(expected.get("words"), "prediction.words", str, "text")


def _papers(check: Check, result: dict[str, Any]) -> None:
    """What the fourth paper published, and what the same ways reached here."""
    check.number(result.get("sgemm_peak"), "sgemm_peak", above=0)
    for number, row in enumerate(result["rows"]):
        for name in ("test_seconds", "of_peak") if row["train"] else ():
            check.number(row.get(name), f"rows[{number}].{name}", above=0)
    check.field(result.get("published"), "published", dict, "an object")
    check.number(result["published"].get("epochs"), "published.epochs", least=1)
    seconds = result["published"].get("seconds")
    check.field(seconds, "published.seconds", dict, "an object")
    for name in dict.fromkeys(("separate threads", "one thread", *seconds)):
        place = f"published.seconds.{name}"
        check.field(seconds.get(name), place, list, "a list")
        check.number(len(seconds[name]), f"the length of {place}", least=2)
        for one in seconds[name]:
            check.number(one, place, above=0)
