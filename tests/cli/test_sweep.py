"""`pareo sweep` is told wrong words: each gets one sentence. And what it ends with."""

import pytest
import typer
from typer.testing import CliRunner

from pareo.cli import app
from pareo.cli.output import end
from pareo.lab.experiment.entry import Outcome, Status


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["lenet"], "a network is one of papers-cnn"),
        (["alexnet", "--batches", "big"], "--batches expects sizes as in 1..512 or 1,8,32"),
        (["alexnet", "--contestants", "caffe"], "no contestant is called 'caffe'"),
        (["alexnet", "--precision", "float16"], "--precision expects one of float32, tf32"),
        (["alexnet", "--memory-limit", "2"], "expected a size such as 2GB"),
        (["alexnet", "--within", "5"], "--within expects --largest or --memory-limit"),
        (
            ["alexnet", "--memory-limit", "900000GB"],
            "--memory-limit expects at most the free memory",
        ),
        (["alexnet", "--json", "nowhere/a.json"], "nowhere/a.json: its directory does not exist"),
        (["alexnet", "--pixels", "16"], "--pixels 16: too small for alexnet: MaxPool expects"),
        (["mlp-small", "--pixels", "64"], "--pixels expects synthetic images for one of alexnet"),
        (["alexnet", "--data", "synthetic:3x64x64:5:9", "--size", "64"], "--pixels expects"),
        (["alexnet", "--json", "a", "--html", "./a"], "expected a different file for each output"),
        (["alexnet", "--batches", "2000000"], "up to 1,048,576"),
        (["papers-cnn", "--data", "nowhere"], "got 'nowhere', which does not exist"),
    ],
)
def test_wrong_words_are_told_in_a_sentence(
    words: list[str], reason: str, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "records.sqlite"))
    done = CliRunner().invoke(app, ["sweep", *words])
    assert done.exit_code != 0
    assert reason in str(done.exception)
    assert len(str(done.exception).splitlines()) == 1


def test_a_sweep_in_which_nobody_could_be_tried_is_no_success(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "records.sqlite"))
    words = ["mlp-small", "--batches", "1", "--contestants", "torch", "--precision", "tf32"]
    done = CliRunner().invoke(app, ["sweep", *words])
    assert done.exit_code == 1
    assert "No contestant was timed." in done.output


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        (["ok", "missing"], 0),
        (["ok", "memory"], 0),
        (["memory", "missing"], 0),
        (["missing", "missing"], 1),
        (["ok", "refused"], 1),
        (["ok", "failed"], 1),
    ],
)
def test_the_exit_status_is_that_of_everyone(statuses: list[Status], status: int) -> None:
    found = 0
    try:
        end([Outcome("someone", status=one) for one in statuses])
    except typer.Exit as left:
        found = left.exit_code
    assert found == status
