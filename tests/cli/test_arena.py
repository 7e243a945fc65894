"""`pareo arena` as a person meets it: wrong words, a list, Ctrl-C, and its exit status."""

from pathlib import Path

import pytest
from arena_result import arena as made_up
from arena_result import made
from typer.testing import CliRunner, Result

from pareo.cli import app
from pareo.lab.arena.engine import Arena
from pareo.lab.arena.result import ArenaResult
from pareo.lab.experiment import results


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "records.sqlite"))
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> Result:
        return CliRunner().invoke(app, ["arena", *words])

    return call


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--kinds", "rnn"], "--kinds expects some of mlp, cnn, mid; got 'rnn'"),
        (["--kinds", ""], "--kinds expects some of mlp, cnn, mid; got ''"),
        (["--batch", "big"], "--batch expects sizes as in 1..512, 64 or 1,8,32"),
        (["--device", "tpu"], "--device expects one of"),
        (["--contestants", "caffe"], "no contestant is called 'caffe'"),
        (["--contestants", "torch"], "--contestants expects one of pareo's and a peer; got torch"),
        (["--contestants", "pareo-compiled"], "--contestants expects one of pareo's and a peer"),
        (["--precision", "float16"], "--precision expects one of float32, tf32"),
        (["--seconds", "inf"], "--seconds expects a finite number"),
        (["--json", "nowhere/a.json"], "nowhere/a.json: its directory does not exist"),
    ],
)
def test_wrong_words_are_told_in_a_sentence(words: list[str], reason: str, run) -> None:
    done = run(*words)
    assert done.exit_code != 0
    assert reason in str(done.exception)
    assert len(str(done.exception).splitlines()) == 1


def test_networks_are_listed_and_not_raced(run) -> None:
    first = run("--list", "--count", "4", "--seed", "7")
    assert first.exit_code == 0
    assert first.output == run("--list", "--count", "4", "--seed", "7").output
    assert [line.split()[0] for line in first.output.splitlines()] == ["0", "1", "2", "3"]
    alone = run("--list", "--index", "2", "--seed", "7").output.splitlines()
    assert alone[0] == first.output.splitlines()[2]
    assert alone[1].startswith("layer")
    assert alone[-1].startswith("total")


def ended(monkeypatch: pytest.MonkeyPatch, result: ArenaResult, interrupted: bool) -> None:
    """Let an arena end with a result."""

    def run(self: Arena, watch: object) -> ArenaResult:
        self.bouts = {bout.index: bout for bout in result.bouts}
        if interrupted:
            raise KeyboardInterrupt
        return self.result()

    monkeypatch.setattr(Arena, "run", run)


def test_ctrl_c_prints_and_writes_what_there_is(run, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(monkeypatch, made_up(), interrupted=True)
    done = run("--json", "a.json", "--html", "a.html", "--save")
    assert done.exit_code == 130
    assert "geometric mean 1.59" in done.output
    assert "Interrupted: run the same command again to continue." in done.output
    assert "saved as" not in done.output
    found = results.read(Path("a.json"))
    assert isinstance(found, ArenaResult)
    assert len(found.bouts) == 5
    assert Path("a.html").read_text().startswith("<!doctype html>")
    assert list(Path("arenas").glob("*.jsonl"))


@pytest.mark.parametrize(
    ("times", "status"),
    [
        (((1.0, 2.0, None),), 0),  # a peer that fails is a row
        (((1.0, 2.0, 3.0), (None, 1.0, 1.0)), 1),
        (((1.0, None, None),), 1),
    ],
)
def test_the_exit_status_is_that_of_pareo(
    times: tuple[tuple[float | None, ...], ...],
    status: int,
    run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended(monkeypatch, made_up(made(times)), interrupted=False)
    done = run("--save", "--json", "a.json")
    assert done.exit_code == status
    assert "saved as    1" in done.output
    assert not list(Path("arenas").glob("*.jsonl"))
    assert CliRunner().invoke(app, ["history"]).exit_code == 0
    assert CliRunner().invoke(app, ["report", "a.json"]).exit_code == 0
