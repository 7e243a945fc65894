"""What someone meets who tries pareo for the first time: doctor, contestants, --quick, Tab."""

import json
import os
import subprocess
import sys

import pytest
import typer
from command_line import pareo

from pareo.cli import COMMANDS, app, doctor
from pareo.cli.options import QUICK
from pareo.lab.contestants.registry import known

LAB = ("race", "arena", "sweep", "parallel", "kernels", "ops", "ceilings", "tune", "paper")


def test_doctor_names_what_is_missing_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": "2.13", "numpy": "2.4", "numba": "0.68"}
    monkeypatch.setattr(doctor, "_version", versions.get)
    monkeypatch.setattr("pareo.machine.gpus", lambda: [])
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    done = pareo("doctor")
    assert done.status == 0
    for said in (
        "no  GPU: no NVIDIA GPU, or no driver",
        "yes torch: 2.13",
        "no  jax: pip install 'pareo[jax]'",
        "no  pillow: pip install 'pareo[images]', for folders of images",
        "perf_event",
        "no  browser: none found; a report is one HTML file",
    ):
        assert said in done.out
    found = json.loads(pareo("doctor", "--json").out)
    assert {one["about"] for one in found} > {"The device cuda", "Frameworks to race against"}


def test_contestants_are_listed_with_what_they_need() -> None:
    rows = {row["name"]: row for row in json.loads(pareo("contestants", "--json").out)}
    assert rows.keys() == known().keys()
    assert rows["pareo-compiled"]["missing"] is None
    assert rows["torch-best"]["what"].startswith("the fastest of torch, ")
    assert rows["pareo-cuda"]["gpu"]
    shown = pareo("contestants").out
    assert "pareo-vectorized" in shown
    if rows["tensorflow"]["missing"]:
        assert "pareo[tensorflow]" in shown.replace("\n", "")


@pytest.mark.parametrize("name", LAB)
def test_every_command_of_the_lab_has_a_quick_form(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    assert "--quick" in [word for parameter in command.params for word in parameter.opts]


@pytest.mark.parametrize("name", QUICK)
def test_quick_stands_for_options_and_those_that_are_given_count(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    needed = {"sweep": ["lenet5"], "parallel": ["lenet5"], "tune": ["lenet5", "--space", "a.toml"]}
    words = needed.get(name, [])
    slow, quick = (command.make_context(name, [*words, *more]).params for more in ([], ["--quick"]))
    option, value = next(iter(QUICK[name].items()))
    place = next(one.name for one in command.params if option in one.opts)
    assert str(quick[place]) == value != str(slow[place])
    other = "4" if value.isdecimal() else "7MB,8MB" if name == "ops" else "4,5"
    given = command.make_context(name, [*words, "--quick", f"{option}={other}"]).params
    assert str(given[place]) == other


@pytest.mark.parametrize(("typed", "completed"), [("rac", "race"), ("race --targ", "--target-acc")])
def test_tab_completes(typed: str, completed: str) -> None:
    env = {
        **os.environ,
        "_PAREO_COMPLETE": "complete_bash",
        "COMP_WORDS": f"pareo {typed}",
        "COMP_CWORD": str(len(typed.split())),
    }
    words = [sys.executable, "-m", "pareo"]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert completed in done.stdout


def test_every_command_has_a_sentence_in_the_help() -> None:
    done = pareo("--help")
    for name in COMMANDS:
        assert f" {name} " in done.out
    assert "2, the command was wrong" in " ".join(done.out.split())


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_80_columns_without_a_cut_word(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = pareo(*name.split(), "--help").out
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "<bool>" not in shown  # a flag takes no value


def test_paragraphs_of_the_help_are_wrapped_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = pareo("race", "--help").out
    assert "The exit status is 1 if a contestant was refused or failed" in shown
