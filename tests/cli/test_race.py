"""`pareo race` as a person meets it: real processes, strangers among them, documented JSON."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import pareo
from devices import needs_gpu
from typer.testing import CliRunner

from pareo.cli import app
from pareo.cli.tables import race as race_table
from pareo.lab.experiment import results
from pareo.lab.machine.floors import Floor
from pareo.lab.race.result import RaceResult, Row

CURVE = {"epoch": 1, "seconds": 1.0, "loss": 1.0, "accuracy": 1.0}
# Only where float64 takes too long, only where a training could be repeated in it, and only under
# throttling.
FIELD = {
    "rows[].parity.field_steps", "rows[].parity.end_share",
    "rows[].marks[].round", "rows[].marks[].why",
}  # fmt: skip
ROOT = Path(__file__).parents[2]
STRANGER = """
from pareo.lab.contestants import Contestant, pareo_step

def build(task, rate=1.0):
    trainer = pareo_step.build(task, device="vectorized")
    trainer._rate *= rate
    return trainer

RIGHT = Contestant("stranger", {})
WRONG = Contestant("stranger", {"rate": 1.01})
BEST = Contestant(tries=("right", "wrong"))
BROKEN = "no contestant"
"""


def race(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", "pareo", "race", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "PAREO_RECORDS": str(folder / "kept.sqlite")},
        capture_output=True,
        text=True,
    )


def entered(folder: Path, **points: str) -> None:
    """A package in a folder, with contestants as entry points."""
    (folder / "stranger.py").write_text(STRANGER)
    about = folder / "stranger-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    lines = [f"{name} = stranger:{value}" for name, value in points.items()]
    (about / "entry_points.txt").write_text("\n".join(["[pareo.contestants]", *lines]))


def documented() -> set[str]:
    """The fields that docs/race-json.md has a row for."""
    text = (ROOT / "docs" / "race-json.md").read_text()
    return set(re.findall(r"^\| `([^`]+)` \|", text, re.M))


def fields(value: Any, path: str = "") -> set[str]:
    """Every field of a result; what machine and versions hold is not listed."""
    if isinstance(value, list):
        return set[str]().union(*(fields(item, f"{path}[]") for item in value))
    if not isinstance(value, dict) or path in ("machine", "versions"):
        return {path}
    return set[str]().union(*(fields(v, f"{path}.{k}".lstrip(".")) for k, v in value.items()))


@pytest.mark.slow
def test_a_race_of_strangers(tmp_path: Path) -> None:
    entered(tmp_path, right="RIGHT", wrong="WRONG", best="BEST")
    done = race(
        tmp_path, "papers-cnn", "--batch", "32", "--quick", "--seconds", "1", "--json", "race.json",
        "--contestants", "right,wrong,best", "--save",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "right: building, first steps" in done.stderr  # a pipe sees a line for each phase
    refused = next(line for line in done.stdout.splitlines() if "wrong" in line)
    assert "refused" in refused
    assert "moved 1.0e-02 off in step 1" in " ".join(refused.split())
    assert "saved as    1" in done.stdout
    result = results.read(tmp_path / "race.json")
    assert isinstance(result, RaceResult)
    rows = {row.contestant: row for row in result.rows}
    assert [row.status for row in rows.values()] == ["ok", "refused", "ok"]
    assert rows["right"].samples
    assert rows["best"].note == "its fastest setting: right, timed once for both"
    assert rows["best"].samples == rows["right"].samples
    right, wrong = rows["best"].ledger["settings_tried"]
    assert right["seconds_per_epoch"] > 0
    assert wrong["note"] == rows["wrong"].note
    written = json.loads((tmp_path / "race.json").read_text())
    found = fields(written) | fields([CURVE], "rows[].curve") | FIELD
    assert found == documented()


@pytest.mark.slow
def test_an_epoch_ends_with_an_accuracy(tmp_path: Path) -> None:
    done = race(
        tmp_path, "--contestants", "pareo-compiled", "--epochs", "1", "--json", "race.json",
        "--target-accuracy", "0.5", "--html", "race.html",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "s to 50.0%" in done.stdout
    assert f"report      {tmp_path / 'race.html'}" in done.stdout
    assert "pareo-compiled" in (tmp_path / "race.html").read_text()
    row = json.loads((tmp_path / "race.json").read_text())["rows"][0]
    assert len(row["samples"]) == 25
    assert row["curve"][0]["accuracy"] > 0.8  # plain SGD has 0.9 there
    assert row["curve"][0].keys() == CURVE.keys()


@pytest.mark.slow
def test_a_race_on_other_data(tmp_path: Path) -> None:
    data = "synthetic:1x28x28:10:120"
    done = race(
        tmp_path, "--data", data, "--batch", "10", "--epochs", "1", "--json", "race.json",
        "--contestants", "pareo-vectorized",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "epochs of 100 images of synthetic:1x28x28:10:120;" in " ".join(done.stdout.split())
    result = json.loads((tmp_path / "race.json").read_text())
    assert result["data"] == data
    (point,) = result["rows"][0]["curve"]
    assert 0 <= point["accuracy"] <= 1  # of the 20 images that it did not train on


@pytest.mark.gpu
@needs_gpu
def test_a_race_on_a_gpu(tmp_path: Path) -> None:
    done = race(
        tmp_path, "--batch", "32", "--quick", "--seconds", "1",
        "--contestants", "pareo-cuda,torch-cudagraph",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "torch-cudagraph" in done.stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["lenet"], "lenet"),
        (["--data", "nowhere"], "got 'nowhere', which does not exist"),
        (["--data", "synthetic:3x8x8"], "expects images of shape (1, 28, 28); got (3, 8, 8)"),
        (["--contestants", "caffe"], "no contestant is called 'caffe'"),
        (["--precision", "float16"], "--precision expects one of float32, tf32, bfloat16"),
        (["--against", "caffe"], "--against expects one of pareo-compiled"),
        (["--json", "nowhere/race.json"], "nowhere/race.json: its directory does not exist"),
    ],
)
def test_wrong_words_are_told_in_a_sentence(words: list[str], reason: str) -> None:
    done = pareo("race", *words)
    assert done.status == 2
    assert reason in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        ({"broken": "BROKEN"}, "broken = stranger:BROKEN should be a Contestant"),
        ({"absent": "ABSENT"}, "absent = stranger:ABSENT cannot be loaded"),
        ({"torch": "RIGHT"}, "torch = stranger:RIGHT has a taken name"),
    ],
)
def test_a_wrong_entry_point_is_told(point: dict[str, str], reason: str, tmp_path: Path) -> None:
    entered(tmp_path, **point)
    done = race(tmp_path, "--quick")
    assert done.returncode == 2
    assert f"the entry point {reason}" in done.stderr


def made_up(**samples: list[float]) -> RaceResult:
    rows = [
        Row(
            name.replace("_", "-"), status="ok" if times else "failed",
            note="" if times else "it fell", samples=times, rounds=[*range(len(times))], slice=1.0,
            floor=Floor(place="cpu", seconds_per_epoch=0.5, why="arithmetic"), first_call=1.5,
            parity={"loss": 1e-7, "parameter": 2e-6, "median": 1e-7},
            ledger={"mode": "eager", "threads": 1, "version": "1"},
        )
        for name, times in samples.items()
    ]  # fmt: skip
    return RaceResult(
        schema=2, kind="race", when="", machine=results.Machine(), versions={},
        network="papers-cnn", batch=128, precision="float32", threads=2, images=60_000, flops=1,
        rows=rows,
    )  # fmt: skip


def cells(result: RaceResult, **options: Any) -> list[list[str]]:
    table = race_table.table(result, **options)
    return list(map(list, zip(*(column._cells for column in table.columns), strict=True)))


def test_the_table_holds_each_against_the_best_peer_and_the_floor() -> None:
    result = made_up(torch=[4.0] * 8, jax=[8.0] * 8, dead=[], pareo_compiled=[2.0] * 8)
    first, second, third, last = cells(result)
    assert first == ["pareo-compiled", "2", "2 to 2", "30,000", "2", "25%", ""]
    assert second[4] == "1"
    assert third[0] == "jax"
    assert last == ["dead", "failed", "", "", "", "", "it fell"]
    assert cells(result, against="jax")[0][4] == "4"
    told = race_table.lines(result)
    assert told[0].endswith("losses within 1e-07, updates of parameters within 2e-06.")
    assert told[1] == "pareo-compiled is faster than torch, by 2 times (2 to 2 at 99 %)."


def test_who_was_not_compared_at_the_end_is_named() -> None:
    result = made_up(torch=[4.0] * 8, pareo_compiled=[2.0] * 8)
    assert any(
        line.endswith("interrupted: torch, pareo-compiled.") for line in race_table.lines(result)
    )
    result.rows[0].parity["end_steps"] = 128
    assert any(line.endswith("interrupted: pareo-compiled.") for line in race_table.lines(result))
    result.rows[1].parity["field_steps"] = 64
    assert not any("first steps only" in line for line in race_table.lines(result))


def test_a_verdict_against_pareo_is_told_alike() -> None:
    result = made_up(torch=[1.0] * 8, pareo_compiled=[2.0] * 8)
    told = race_table.lines(result)[1]
    assert told == "pareo-compiled is slower than torch, by 2 times (2 to 2 at 99 %)."
    few = made_up(torch=[1.0], pareo_compiled=[2.0])
    assert "cannot tell which is faster from 1 and 1 samples" in race_table.lines(few)[1]


class Stopped:
    """A race that Ctrl-C ends after its second round."""

    def __init__(self, *_: object) -> None:
        pass

    def run(self) -> RaceResult:
        raise KeyboardInterrupt

    def result(self) -> RaceResult:
        return made_up(pareo_compiled=[1.0, 1.1], torch=[2.0, 2.1])


def test_an_interrupted_race_shows_and_writes_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pareo.cli.race.Race", Stopped)
    monkeypatch.setattr("pareo.cli.live.idle_cores", lambda seconds: None)
    older = tmp_path / "older.html"
    older.write_text("a finished race")
    done = CliRunner().invoke(
        app,
        ["race", "--contestants", "pareo-compiled,torch", "--json", str(tmp_path / "race.json"),
         "--html", str(older)],
    )  # fmt: skip
    assert done.exit_code == 130, done.output
    assert re.search(r"pareo-compiled .* 1\.05 ", done.stdout)
    assert "Interrupted" in done.stdout
    kept = results.read(tmp_path / "race.json")
    assert isinstance(kept, RaceResult)
    assert [row.samples for row in kept.rows] == [[1.0, 1.1], [2.0, 2.1]]
    assert older.read_text() == "a finished race"  # part of one does not replace it
