"""A sweep's result from a file, its table and its report."""

import json
from pathlib import Path

import pytest
from damage import damaged
from sweep_result import made, sweep
from typer.testing import CliRunner

from pareo.cli import app
from pareo.cli.tables import sweep as tables
from pareo.errors import DataError
from pareo.lab.experiment import records, results
from pareo.lab.report import sweep as report

EVIL = "<script>document.title='evil'</script>"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("cells", 0, "batch"), 0, "a whole number >= 1 in cells[0].batch; got 0"),
        (("cells", 0, "batch"), 77, "a batch size that work has in cells[0].batch; got 77"),
        (("cells", 1, "status"), "fine", "in cells[1].status; got 'fine'"),
        (("cells", 1, "seconds_per_batch"), [0.0], "cells[1].seconds_per_batch[0]; got 0.0"),
        (("cells", 1, "rounds"), [1], "8 rounds in cells[1]; got 1"),
        (("work", 0, "flops"), None, "a whole number in work[0].flops; got None"),
        (("settings", "threads"), 0, "a whole number >= 1 in settings.threads; got 0"),
        (("limits", 0, "largest"), "28", "limits[0].largest; got '28'"),
        (("settings",), [], "an object in settings"),
        (("schema",), 9, "expected 1 in schema; got 9"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(path: tuple, value: object, said: str) -> None:
    with pytest.raises(DataError) as error:
        results.checked(damaged(made(), path, value), "some file")
    assert said in str(error.value)


def test_a_sweep_is_kept_listed_and_drawn(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "records.sqlite"))
    records.save(sweep())
    listed = CliRunner().invoke(app, ["history"], env={"COLUMNS": "160"})
    assert "pareo-compiled, batch 4" in listed.stdout
    out = tmp_path / "sweep.html"
    assert CliRunner().invoke(app, ["report", "last", "--html", str(out)]).exit_code == 0
    assert "The best batch size here is 4" in out.read_text()
    compared = CliRunner().invoke(app, ["compare", "last", "last"])
    assert "compare expects two races; last is a sweep" in str(compared.exception)


def test_no_text_becomes_html() -> None:
    page = report.html(sweep(json.loads(json.dumps(made()).replace("torch", EVIL))))
    assert EVIL not in page
    assert page.count("<script") == page.count("</script>") == 3


def test_predictions_stand_at_their_own_batch() -> None:
    result = sweep()
    own = [cell for cell in result.cells if cell.contestant == "pareo-compiled"]
    own[0].memory.program = None  # as of a cell that was refused after its footprint
    drawn = report.figures(result)["memory"]["data"]
    (marks,) = [line for line in drawn if line["name"] == "pareo-compiled, predicted"]
    assert marks["x"] == [cell.batch for cell in own[1:]]
    assert len(marks["y"]) == len(marks["x"])
    assert all(marks["y"])


def test_the_figures_hold_what_was_measured() -> None:
    drawn = report.figures(sweep(made(short=(("torch", 16),))))
    lines = {line["name"]: line for line in drawn["times"]["data"]}
    assert lines["torch"]["x"] == [1, 2, 4, 8]
    assert lines["torch"]["y"] == pytest.approx([150, 120, 110, 105])
    assert lines["floor, cpu"]["y"][-1] == pytest.approx(1e3 * 4.2e9 / 70e9)
    assert drawn["times"]["layout"]["xaxis"]["type"] == "log"
    memory = {line["name"]: line for line in drawn["memory"]["data"]}
    assert memory["pareo-compiled, predicted"]["y"] == pytest.approx([0.6] * 4)
    (limit,) = drawn["memory"]["layout"]["shapes"]
    assert limit["y0"] == limit["y1"] == 2.0
    assert limit["label"]["text"] == "limit 2 GB"


def test_the_table_never_confuses_an_image_with_a_batch() -> None:
    table = tables.table(sweep(made(short=(("torch", 16),))))
    columns = {str(column.header): list(column.cells) for column in table.columns}
    place = columns["batch"].index("8")
    assert columns["contestant"][place] == "pareo-compiled"
    assert columns["ms per image"][place] == "61"
    assert columns["ms per batch"][place] == "488"
    assert columns["images/s"][place] == "16.4"
    assert columns["best peer / this"][place] == "1.72"
    assert columns["predicted MB"][place] == "600 (-0.0%)"
    assert columns["ms per image"][-1] == "memory"
    assert columns["note"][-1] == "more than 2 GB"
