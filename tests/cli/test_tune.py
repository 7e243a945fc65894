"""`pareo tune` as a user runs it: real processes, killed and started again."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from typer.testing import CliRunner

import pareo
from pareo.cli import app
from pareo.errors import PareoError
from pareo.lab.experiment import results

ROOT = Path(__file__).parents[2]
SPACE = "rate = { low = 0.01, high = 1.0, log = true }\nwidth = [4, 8]\nhidden = 1\n"
COMMAND = [
    "mlp-small", "--space", "space.toml", "--data", "synthetic:6:2:120", "--device", "vectorized",
    "--pruner", "none", "--workers", "2",
]  # fmt: skip


def tune(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    if not (folder / "space.toml").exists():
        (folder / "space.toml").write_text(SPACE)
    return subprocess.Popen(
        [sys.executable, "-m", "pareo", "tune", *arguments],
        cwd=folder,
        env={**os.environ, "PAREO_RECORDS": str(folder / "kept.sqlite")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(folder: Path) -> int:
    """How many completed trials the study has."""
    try:
        with sqlite3.connect(folder / "space.sqlite") as file:
            asked = "SELECT count(*) FROM trials WHERE state = 'COMPLETE'"
            return int(file.execute(asked).fetchone()[0])
    except sqlite3.OperationalError:  # not there yet
        return 0


def figures_in(page: str) -> dict[str, Any]:
    """What a report draws; its policy allows no request."""
    assert "default-src 'none'" in page
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page)
    assert found is not None
    return dict(json.loads(found[1]))


def killed_after(folder: Path, count: int, *arguments: str) -> None:
    """Begin a search, and kill it without warning once so many trials are done."""
    process = tune(folder, *arguments)
    deadline = time.monotonic() + 120
    while ended(folder) < count and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.slow
def test_killed_and_started_again_it_has_exactly_the_asked_number(tmp_path: Path) -> None:
    asked = [*COMMAND, "--trials", "9", "--epochs", "10"]
    killed_after(tmp_path, 3, *asked)
    process = tune(
        tmp_path, *asked, "--best", "best.safetensors", "--json", "a.json",
        "--html", "a.html", "--save",
    )  # fmt: skip
    said, errors = process.communicate()
    assert process.returncode == 0, errors
    assert errors == ""
    assert "9 of 9 trials" in said
    assert "saved as    1, see `pareo history`" in said
    result = json.loads((tmp_path / "a.json").read_text())
    assert results.plain(results.checked(result, "a.json")) == result
    assert len(result["trials"]) == 9
    assert len({trial["number"] for trial in result["trials"]}) == 9
    assert all(len(trial["curve"]) == 10 for trial in result["trials"])
    page = (ROOT / "docs" / "howto-tune.md").read_text()
    for field in (*result, *result["trials"][0]):
        assert f"`{field}`" in page.split("## What `--json` writes")[1], field
    # Optuna's own count agrees: nothing runs or waits, and what was cut off failed.
    study = optuna.load_study(
        study_name="mlp-small", storage=f"sqlite:///{tmp_path / 'space.sqlite'}"
    )
    states = [trial.state.name for trial in study.trials]
    assert states.count("COMPLETE") == 9
    assert set(states) == {"COMPLETE", "FAIL"}
    drawn = figures_in((tmp_path / "a.html").read_text())
    assert set(drawn) == {"history", "parallel", "importance"}
    lines = [y for trace in drawn["parallel"]["data"] for y in trace["y"] if y is not None]
    assert len(lines) == 3 * (9 + 1)  # rate, width and accuracy of each trial, and of the best
    assert min(lines) >= 0
    assert max(lines) <= 1
    best = pareo.load(tmp_path / "best.safetensors")
    assert best.network.name.startswith("mlp-6-")
    assert study.best_value == max(trial["accuracy"] for trial in result["trials"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nonsense", "--space", "space.toml"], "a network is one of"),
        (["mlp-small", "--space", "none.toml"], "none.toml: expected a file to read"),
        (["mlp-small", "--space", "wrong.toml"], "wrong.toml: rate expects numbers above 0; got 0"),
        (["papers-cnn", "--space", "space.toml"], "width, hidden is for an MLP"),
        ([*COMMAND, "--sampler", "best"], "--sampler expects one of tpe, random; got 'best'"),
        ([*COMMAND, "--pruner", "all"], "--pruner expects one of median, hyperband, none"),
        ([*COMMAND, "--save", "no/where.safetensors"], "its directory does not exist"),
        ([*COMMAND, "--device", "abacus"], "Device expects one of"),
        ([*COMMAND, "--data", "synthetic:2:2:2"], "expected at least two images of a class"),
        ([*COMMAND, "--on", "moon"], "--on expects ray, or ray://HOST:PORT; got 'moon'"),
        (["mlp-small", "--space", "fixed.toml", "--data", "synthetic:6:2:9"], "expects images of"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("space.toml").write_text(SPACE)
    Path("wrong.toml").write_text("rate = [0.1, 0]")
    Path("fixed.toml").write_text("rate = [0.1, 0.2]")
    done = CliRunner().invoke(app, ["tune", *arguments, "--trials", "1"])
    assert done.exit_code != 0
    assert isinstance(done.exception, PareoError)  # of which `main` makes a sentence
    assert told in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not Path("space.sqlite").exists()


@pytest.mark.parametrize(
    ("library", "arguments", "told"),
    [
        ("optuna", [], "pareo tune needs Optuna: pip install 'pareo[tune]'"),
        ("ray", ["--on", "ray"], "--on ray needs Ray: pip install 'pareo[ray]'"),
    ],
)
def test_what_is_not_installed_is_said(
    library: str, arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, library, None)
    Path("space.toml").write_text(SPACE)
    done = CliRunner().invoke(app, ["tune", *COMMAND, *arguments])
    assert str(done.exception) == told


@pytest.mark.slow
def test_where_every_trial_fails_the_exit_status_says_so(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text("rate = [1e30, 1e31]\nwidth = 4\n")
    process = tune(tmp_path, *COMMAND, "--trials", "2", "--epochs", "2")
    said, errors = process.communicate()
    assert process.returncode == 1
    assert "2 of 2 trials, 2 failed" in said
    assert "the loss became" in said
    assert errors.endswith("pareo: no trial finished\n")


def test_other_data_under_the_same_name_is_another_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "kept.sqlite"))
    Path("space.toml").write_text(SPACE)
    images, labels = np.random.default_rng(0).random((60, 6), np.float32), np.arange(60) % 2
    command = ["tune", *COMMAND, "--data", "made.npz", "--trials", "1", "--epochs", "1"]
    for change in (0, 1):
        images[17, 3] += change
        np.savez("made.npz", images=images, labels=labels)
        done = CliRunner().invoke(app, command)
        assert (done.exit_code != 0) == bool(change), done.output
    assert "its study 'mlp-small' has fingerprint of the data" in str(done.exception)
