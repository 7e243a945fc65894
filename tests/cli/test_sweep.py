"""`pareo sweep` is told wrong words: each gets one sentence."""

import pytest
from typer.testing import CliRunner

from pareo.cli import app


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["lenet"], "a network is one of papers-cnn"),
        (["alexnet", "--batches", "big"], "--batches expects sizes as in 1..512 or 1,8,32"),
        (["alexnet", "--contestants", "caffe"], "no contestant is called 'caffe'"),
        (["alexnet", "--precision", "float16"], "--precision expects one of float32, tf32"),
        (["alexnet", "--memory-limit", "2"], "expected a size such as 2GB"),
        (["alexnet", "--memory-limit", "900000GB"], "--memory-limit expects no more than is free"),
        (["alexnet", "--json", "nowhere/a.json"], "nowhere/a.json: its folder is not there"),
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
