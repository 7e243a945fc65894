"""What was measured is shown first, then written; what cannot be written takes nothing else."""

from importlib import import_module
from pathlib import Path

import ops_result
import pytest
from typer.testing import CliRunner

from pareo.cli import app
from pareo.cli.output import finish
from pareo.errors import DataError
from pareo.lab.experiment import results

ROOT = Path(__file__).parents[2]
# In `pareo.cli` the commands themselves have these names.
MODULES = {
    name: import_module(f"pareo.cli.{name}") for name in ("race", "ops", "parallel", "ceilings")
}


def raced() -> results.Result:
    return results.read(ROOT / "docs" / "results" / "race-h200.json")


def parallel_result() -> results.Result:
    row = {"contestant": "pareo", "name": "one worker", "workers": 1, "networks": 1}
    times = {"train": [2.0, 2.1], "test": [0.2, 0.2], "seconds": 2.05, "test_seconds": 0.2}
    found = {
        "schema": 1, "kind": "parallel", "when": "2026-11-15T10:00:00+00:00",
        "network": "mlp-small", "machine": {"processor": "a processor"}, "versions": {},
        "batch": 128, "images": 1280, "test_images": 100, "workers": [1],
        "rows": [{**row, **times}], "prediction": {"words": "1 s expected"},
    }  # fmt: skip
    return results.checked(found, "made up")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that have measured already, for what becomes of it is the question here."""
    machine = ops_result.machine()
    monkeypatch.setattr(MODULES["race"].Race, "run", lambda race: raced())
    monkeypatch.setattr(MODULES["ops"].Benchmark, "run", lambda benchmark: ops_result.made())
    monkeypatch.setattr(MODULES["parallel"], "measure", lambda *_: parallel_result())
    for name in ("ops", "ceilings"):
        monkeypatch.setattr(MODULES[name], "measured", lambda device, again=False: machine)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is a disk without room")
@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["race", "papers-cnn", "--contestants", "pareo-compiled", "--save"], "pareo-cuda"),
        (["ops", "--devices", "vectorized", "--peers", "none", "--save"], "add, forward"),
        (["parallel", "mlp-small", "--workers", "1", "--save"], "one worker"),
        (["ceilings", "--device", "cpu"], "matrix product"),
    ],
)
def test_what_cannot_be_written_is_said_after_the_table_and_the_rest_is_written(
    words: list[str], shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, page = tmp_path / "kept.sqlite", tmp_path / "page.html"
    kept.mkdir()  # where a file should be
    monkeypatch.setenv("PAREO_RECORDS", str(kept))
    outputs = ["--json", "/dev/full", "--html", str(page)]
    done = CliRunner().invoke(app, [*words, *outputs], env={"COLUMNS": "200"})
    assert done.exit_code == 1
    assert shown in done.stdout
    assert f"report      {page}" in done.stdout
    assert "</html>" in page.read_text()
    said = [line for line in done.stderr.splitlines() if line.startswith("pareo: /")]
    assert said[0] == "pareo: /dev/full: cannot be written: No space left on device"
    if "--save" in words:
        assert said[1].startswith(f"pareo: {kept}: expected pareo's records; got: unable to open")
    assert len(said) == 1 + ("--save" in words)


@pytest.mark.slow
def test_a_sweep_whose_result_was_not_kept_can_be_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept.sqlite"
    kept.mkdir()
    monkeypatch.setenv("PAREO_RECORDS", str(kept))
    words = ["sweep", "mlp-small", "--batches", "2", "--contestants", "pareo-vectorized"]
    words += ["--data", "synthetic:1x28x28:10:60", "--epochs", "1", "--threads", "1", "--save"]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert done.exit_code == 1
    assert "pareo-vectorized" in done.stdout
    assert "expected pareo's records" in done.stderr
    assert list((tmp_path / "sweeps").iterdir())  # what is done, for the next time
    kept.rmdir()
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert "saved as    1" in done.stdout
    assert not list((tmp_path / "sweeps").iterdir())


def test_what_cannot_be_shown_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    written = []

    def unprintable() -> None:
        raise BrokenPipeError("closed")

    with pytest.raises(BrokenPipeError):
        finish(unprintable, [lambda: written.append(1) or "one"])
    assert written == [1]


def test_one_output_that_fails_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def refused() -> str:
        raise DataError("a.json: cannot be written: Read-only file system")

    def mistaken() -> str:
        raise KeyError("rows")

    assert not finish(lambda: print("table"), [refused, mistaken, lambda: "report      b"])
    told = capsys.readouterr()
    assert told.out == "table\nreport      b\n"
    assert told.err.splitlines() == [
        "pareo: a.json: cannot be written: Read-only file system",
        "pareo: KeyError: 'rows'",
    ]
