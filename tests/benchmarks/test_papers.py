"""The tables of papers in docs/results: a row for all GPUs of a paper, none for what is missing."""

from pathlib import Path

from benchmarks.papers import tables

from pareo.lab.experiment import results
from pareo.lab.replication.result import PaperResult

KEPT = Path(__file__).parents[2] / "docs" / "results" / "papers-h200"


def _read(name: str) -> PaperResult:
    result = results.read(KEPT / f"{name}.json")
    assert isinstance(result, PaperResult)
    return result


def test_every_measured_line_is_in_a_row() -> None:
    """Those of several GPUs share a row, with a column and a ratio for each."""
    result = _read("melo")
    made = tables(result)
    assert [one.title.split(": ", 1)[1] for one in made] == list(result.sections)
    measured = [line for line in result.lines if line.here is not None]
    assert sum(len(one.rows) for one in made) * 3 == len(measured)
    first = made[0]
    assert first.heads[1:4] == ["GT710M", "K40", "GTX980"]
    line = measured[0]
    assert line.here is not None
    assert line.published is not None
    ratios = first.rows[0][first.heads.index("here / paper")].split(", ")
    assert len(ratios) == 3
    assert abs(float(ratios[0]) / (line.here / line.published) - 1) < 0.01


def test_one_published_figure_has_one_column() -> None:
    """And a section of which nothing was measured has no table."""
    result = _read("trindade-lima")
    assert any("SGEMM" in one.title for one in tables(result))
    result.lines = [line for line in result.lines if "SGEMM" not in line.section or not line.here]
    made = {one.title: one for one in tables(result)}
    assert not any("SGEMM" in title for title in made)
    assert all(one.heads[:3] == ["what", "paper", "here"] for one in made.values())
    assert all(len(row) == len(one.heads) for one in made.values() for row in one.rows)
