"""The command line as a person meets it: real processes, one sentence for what is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from pareo import __version__
from pareo.cli import app
from pareo.cli.options import RENAMED
from pareo.device import why_unavailable


def pareo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pareo", *arguments], capture_output=True, text=True
    )


@pytest.mark.smoke
def test_devices_lists_every_device_and_the_machine() -> None:
    done = pareo("devices")
    assert done.returncode == 0
    for word in ("sequential", "vectorized", "compiled", "cuda", "processor", "memory", "BLAS"):
        assert word in done.stdout
    shown = " ".join(done.stdout.replace("│", " ").split())
    assert (why_unavailable("cuda") or "hand-written CUDA")[:60] in shown
    assert done.stderr == ""


def test_devices_as_json() -> None:
    found = json.loads(pareo("devices", "--json").stdout)
    assert found["devices"]["compiled"] is None
    assert found["devices"]["cuda"] == why_unavailable("cuda")
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["libraries"]["numpy"]


def test_version() -> None:
    assert pareo("--version").stdout == f"pareo {__version__}\n"


def test_unknown_commands_and_options_fail_with_a_reason() -> None:
    for arguments in (("nonsense",), ("devices", "--nonsense"), ("devices", "extra")):
        done = pareo(*arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert "nonsense" in done.stderr or "extra" in done.stderr


def test_help_names_the_commands() -> None:
    done = pareo("--help")
    assert done.returncode == 0
    assert "devices" in done.stdout


def test_help_tells_defaults_that_are_no_values() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pareo", "race", "--help"],
        capture_output=True, text=True, env={**os.environ, "COLUMNS": "160"},
    )  # fmt: skip
    for default in ("600, with --quick 100", "all cores", "the fastest peer"):
        assert f"[default: ({default})]" in done.stdout


@pytest.mark.parametrize("name", RENAMED)
def test_old_spellings_are_accepted_and_not_shown(name: str) -> None:
    command = typer.main.get_command(app).commands[name]
    known = {word for parameter in command.params for word in parameter.opts}
    for old, new in RENAMED[name].items():
        assert new in known
        assert old not in known


@pytest.mark.smoke
def test_an_old_spelling_means_the_new_one() -> None:
    commands = typer.main.get_command(app).commands
    words = ["mlp-small", "--sizes", "none", "--seconds=0.5"]
    given = commands["parallel"].make_context("parallel", words).params
    assert (given["batches"], given["turn"]) == ("none", 0.5)
    words = ["mlp-small", "--space", "a.toml", "--save", "best.safetensors", "--keep"]
    given = commands["tune"].make_context("tune", words).params
    assert (given["best_file"], given["save"]) == (Path("best.safetensors"), True)


def test_files_that_cannot_be_written_are_refused_before_any_work(tmp_path: Path) -> None:
    for out, said in (
        (tmp_path, "got a directory"),
        (tmp_path / "no" / "a.json", "does not exist"),
    ):
        done = pareo("kernels", "mlp-small", "--json", str(out))
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_numbers_that_mean_nothing_are_refused() -> None:
    for words, said in (
        (("--seconds", "inf"), "--seconds expects a finite number"),
        (("--patience", "nan"), "patience"),
        (("--memory-limit", "infGB"), "--memory-limit: expected a size such as 2GB"),
        (("--contestants", ""), "--contestants expects names separated by commas"),
    ):
        done = pareo("sweep", "mlp-small", *words)
        assert done.returncode != 0
        assert said in done.stderr
        assert "Traceback" not in done.stderr
