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
PUBLISHED = sorted(path for path in RESULTS.rglob("*.json") if path.parent != FIGURES)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name)
def test_every_published_result_is_read_and_drawn(path: Path) -> None:
    result = results.read(path)
    assert results.parsed(results.to_json(result), "written again") == result
    assert report.html(result).startswith("<!doctype html>")


def kept(before: object, after: object) -> bool:
    """Whether all of `before` is in `after`, which may have fields that are newer."""
    if isinstance(before, dict) and isinstance(after, dict):
        return all(key in after and kept(value, after[key]) for key, value in before.items())
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(kept, before, after))
    return before == after and type(before) is type(after)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name)
def test_no_field_of_a_published_result_is_lost(path: Path) -> None:
    before = json.loads(path.read_text())
    after = json.loads(results.to_json(results.read(path)))
    for row in [*before.get("rows", ()), *after.get("rows", ())]:
        row["parity"] = {name: float(value) for name, value in row["parity"].items()}
    assert kept(before, after)


@pytest.mark.parametrize("module", [race_result, kernels_result, sweep_result])
def test_what_is_written_is_what_was_read(module) -> None:
    result = results.checked(module.made(), "made up")
    assert results.checked(results.plain(result), "written") == result
