"""`pareo papers` and `pareo paper` as a person meets them."""

import io
import json
from pathlib import Path

import pytest
import sweep_result
from command_line import pareo
from replication_result import Pretended, made, measured, raising
from rich.console import Console
from typer.testing import CliRunner

from pareo.cli import app
from pareo.cli.tables import papers as papers_table
from pareo.errors import PareoError
from pareo.lab.experiment import results
from pareo.lab.papers.published import NAMES, paper
from pareo.lab.replication import plans
from pareo.lab.replication.result import PaperResult

runner = CliRunner()


def pretend(monkeypatch: pytest.MonkeyPatch, **runs: object) -> None:
    monkeypatch.setitem(plans.QUICK, "lima-zola", Pretended(**runs))


@pytest.mark.smoke
def test_the_papers_fit_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = runner.invoke(app, ["papers"])
    assert done.exit_code == 0, done.output
    assert max(map(len, done.stdout.splitlines())) <= 80
    said = " ".join(done.stdout.split())
    for name in NAMES:
        one = paper(name)
        words = [name, *one.authors, one.year, *one.title.split(), *one.finding.split()]
        for word in words:
            assert word in said, word


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["paper", "knuth"], "a paper is one of lima-zola"),
        (["paper", "melo", "--json", "nowhere/a.json"], "its directory does not exist"),
        (["paper", "melo", "--html", "."], "expected a file to write; got a directory"),
        (["paper", "melo", "--html", "a", "--json", "a"], "expected a different file"),
    ],
)
def test_misuse_is_a_sentence_and_status_2(
    words: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = pareo(*words)
    assert done.status == 2
    assert reason in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("words", [["paper"], ["paper", "melo", "--fast"], ["papers", "melo"]])
def test_wrong_options_have_status_2(words: list[str]) -> None:
    assert runner.invoke(app, words).exit_code == 2


def test_a_report_in_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "kept.sqlite"))
    pretend(monkeypatch, a=measured(310.5), b=measured(62.1))
    written, page = tmp_path / "a.json", tmp_path / "a.html"
    words = ["paper", "lima-zola", "--quick", "--save", "--json", written, "--html", page]
    done = runner.invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    assert "1 of 2: part a" in done.stderr
    assert "2 of 2: part b" in done.stderr
    said = " ".join(done.stdout.split())
    for words in ("621 s", "310.5 s", "0.5", "0.1", "Why they differ", "saved as 1"):
        assert words in said
    result = results.read(written)
    assert isinstance(result, PaperResult)
    assert [line.ratio for line in result.lines] == pytest.approx([0.5, 0.1])
    assert page.read_text().startswith("<!doctype html>")
    listed = runner.invoke(app, ["history"])
    assert "2 figures beside the paper's" in " ".join(listed.stdout.split())
    again = tmp_path / "again.html"
    done = runner.invoke(app, ["report", str(written), "--html", str(again)])
    assert done.exit_code == 0, done.output
    assert again.read_text() == page.read_text()


@pytest.mark.parametrize(
    ("error", "status"), [(PareoError("it fell"), 1), (KeyboardInterrupt(), 130)]
)
def test_what_there_is_is_printed(
    error: BaseException, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, a=measured(310.5), b=raising(error))
    old = tmp_path / "a.json"
    old.write_text("an older result")
    done = runner.invoke(app, ["paper", "lima-zola", "--quick", "--json", str(old)])
    assert done.exit_code == status
    assert "310.5 s" in done.stdout
    assert ("it fell" if status == 1 else "not measured") in " ".join(done.stdout.split())
    assert (old.read_text() == "an older result") == (status == 130)


def test_an_interrupted_paper_goes_on_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = str(tmp_path / "a.json")
    words = ["paper", "lima-zola", "--quick", "--json", written]
    pretend(monkeypatch, a=measured(310.5), b=raising(KeyboardInterrupt()), c=measured(1.0))
    done = runner.invoke(app, words)
    assert done.exit_code == 130
    assert f"give --resume {written}" in done.stdout.replace("\n", "")
    words += ["--resume", written]
    never = raising(PareoError("it was measured again"))
    pretend(monkeypatch, a=never, b=measured(2.0), c=raising(KeyboardInterrupt()))
    done = runner.invoke(app, words)
    assert done.exit_code == 130
    result = results.read(Path(written))  # replaced: it has all that the earlier one had
    assert [part.facts.get("seconds") for part in result.parts] == [310.5, 2.0, None]
    pretend(monkeypatch, a=never, b=never, c=measured(3.0))
    done = runner.invoke(app, words)
    assert done.exit_code == 0, done.output
    result = results.read(Path(written))
    assert [line.here for line in result.lines] == [310.5, 2.0, 3.0]
    assert not result.interrupted


@pytest.mark.parametrize(
    ("changed", "words", "reason"),
    [
        ({}, ["lima-zola"], "expected a result without --quick; got one with --quick"),
        ({}, ["melo", "--quick"], "expected a result of melo; got one of lima-zola"),
        ({"versions": {}}, ["lima-zola", "--quick"], "pareo is"),
        ({"machine": {}}, ["lima-zola", "--quick"], "there"),
        ({"parts": 1}, ["lima-zola", "--quick"], "expected a list in parts; got 1"),
        ({"kind": "race"}, ["lima-zola", "--quick"], "expected"),
        (None, ["lima-zola", "--quick"], "expected a result of `pareo paper`; got one of sweep"),
    ],
)
def test_a_result_of_something_else_is_not_resumed(
    changed: dict[str, object] | None, words: list[str], reason: str, tmp_path: Path
) -> None:
    found = sweep_result.made() if changed is None else {**made(), **changed}
    file = tmp_path / "a.json"
    file.write_text(json.dumps(found))
    done = pareo("paper", *words, "--resume", str(file))
    assert done.status == 2
    assert done.err.startswith(f"pareo: {file}: ")
    assert reason in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("width", [80, 120])
def test_no_number_is_cut(width: int) -> None:
    result = results.checked(made(), "a file")
    assert isinstance(result, PaperResult)
    console = Console(width=width, record=True, file=io.StringIO())
    for part in papers_table.report(result):
        console.print(part, highlight=False)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    assert "K40" in text
    assert "0.5 0.25" in text  # 5 MFLOP/s beside 10 and 20
