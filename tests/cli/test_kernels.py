"""`pareo kernels` as a person meets it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pareo.lab.experiment import results
from pareo.lab.kernels.result import KernelsResult
from pareo.lab.kernels.summary import sections


def kernels(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pareo", "kernels", *words],
        cwd=folder,
        env={**os.environ, "PAREO_RECORDS": str(folder / "kept.sqlite")},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_a_study_from_the_command_line(tmp_path: Path) -> None:
    done = kernels(
        tmp_path, "mlp-small", "--batch", "16", "--threads", "1", "--rows", "3",
        "--contestants", "pareo-compiled", "--trace", "trace.json",
        "--json", "kernels.json", "--html", "kernels.html", "--save",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "pareo-compiled: timing, turn 1 of" in done.stderr
    assert "kernel or routine" in done.stdout
    assert "saved as    1" in done.stdout
    result = results.read(tmp_path / "kernels.json")
    assert isinstance(result, KernelsResult)
    found = list(sections(result))
    assert [(one.contestant, bool(one.profile.mode)) for one in found] == [
        ("pareo-compiled", False),
        ("pareo-compiled", True),
    ]
    for profile in (section.profile for section in found):
        assert sum(row.flops or 0 for row in profile.rows) == result.flops
        assert sum(row.seconds for row in profile.rows) == pytest.approx(profile.seconds)
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in trace} == {1, 2}
    assert "pareo-compiled" in (tmp_path / "kernels.html").read_text()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["lenet"], "lenet"),
        (["--contestants", "caffe"], "no contestant is called 'caffe'"),
        (["--contestants", "jax-best"], "kernels are those of one setting: name jax, jax-scan"),
        (["--precision", "float16"], "--precision expects one of float32, tf32, bfloat16"),
        (["--trace", "nowhere/trace.json"], "nowhere/trace.json: its directory does not exist"),
    ],
)
def test_wrong_words_are_told_in_a_sentence(words: list[str], reason: str, tmp_path: Path) -> None:
    done = kernels(tmp_path, *words)
    assert done.returncode == 2
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
