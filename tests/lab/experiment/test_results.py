"""Results as files hold them: those of earlier versions are read, and what is read is written."""

import json
from pathlib import Path

import kernels_result
import pytest
import race_result
import sweep_result

from pareo.lab import report
from pareo.lab.experiment import results

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "results"
FIGURES = RESULTS / "figures"  # tables of other forms: tests/benchmarks/ reads them
PUBLISHED = {
    path.name: path.read_text() for path in RESULTS.rglob("*.json") if FIGURES not in path.parents
} | {
    f"{path.name}, line {number}": line
    for path in RESULTS.rglob("*.jsonl")
    for number, line in enumerate(path.read_text().splitlines(), 1)
}
every_published = pytest.mark.parametrize("name", sorted(PUBLISHED))


@every_published
def test_every_published_result_is_read_and_drawn(name: str) -> None:
    result = results.parsed(PUBLISHED[name], name)
    assert results.parsed(results.to_json(result), "written again") == result
    assert report.html(result).startswith("<!doctype html>")


def kept(before: object, after: object) -> bool:
    """Whether all of `before` is in `after`, which may have fields that are newer."""
    if isinstance(before, dict) and isinstance(after, dict):
        return all(key in after and kept(value, after[key]) for key, value in before.items())
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(kept, before, after))
    return before == after and type(before) is type(after)


@every_published
def test_no_field_of_a_published_result_is_lost(name: str) -> None:
    before = json.loads(PUBLISHED[name])
    after = json.loads(results.to_json(results.parsed(PUBLISHED[name], name)))
    for row in [*before.get("rows", ()), *after.get("rows", ())]:
        row["parity"] = {name: float(value) for name, value in row["parity"].items()}
    assert kept(before, after)


@pytest.mark.parametrize("module", [race_result, kernels_result, sweep_result])
def test_what_is_written_is_what_was_read(module) -> None:
    result = results.checked(module.made(), "made up")
    assert results.checked(results.plain(result), "written") == result
