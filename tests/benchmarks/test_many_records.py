"""Made-up races are results like others: `pareo history` lists them and finds their step."""

from pathlib import Path

import pytest
from benchmarks.many_records import texts

from pareo.lab.experiment import records, results
from pareo.lab.history import index, lines


def test_races_are_read_and_their_step_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "records.sqlite"))
    records.save_all([results.parsed(text, "a race") for _, _, text in texts(400)])
    found = lines.series(index.by_line(lambda result: ("", "")))
    assert len(found) == 40
    stepped = [one for one in found if one.steps]
    assert {one.line.contestant for one in stepped} == {"pareo-compiled"}
    assert all(step.whose == "ours" for one in stepped for step in one.steps)
