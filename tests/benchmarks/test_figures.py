"""Pages show what the files under docs/results/figures hold; outputs of commands are recorded."""

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from benchmarks import figures, recording, sweeps
from benchmarks.figures import FILES, ROOT, Figure, Measured
from benchmarks.figures import figures as known
from benchmarks.tables import TABLE, Table, drawn, in_markdown
from race_result import race
from rich.console import Console

from pareo import __version__
from pareo.cli.tables import race as race_table
from pareo.errors import DataError, PareoError

EXEMPT = re.compile(r"<!-- no figure: (.+) -->\n\Z")
every_figure = pytest.mark.parametrize("figure", known(), ids=lambda figure: figure.name)


def page_of(figure: Figure) -> str:
    return (ROOT / figure.page).read_text(encoding="utf-8")


@every_figure
def test_a_page_agrees_with_its_file(figure: Figure) -> None:
    text = page_of(figure)
    assert figures.written(text, figure) == text
    found = figures.kept(figure, figure.machine)
    if found is not None:
        assert list(found.by_command) == figure.commands
        assert any(found.by_command.values())


@every_figure
def test_a_page_names_its_commands(figure: Figure) -> None:
    """One of them: a page may say that others differ in the network alone."""
    shown = "".join(page_of(figure).replace("\\\n", "").split())
    assert any("".join(command.split()) in shown for command in figure.commands)


@pytest.mark.parametrize("page", sorted((ROOT / "docs/results").glob("*.md")), ids=lambda p: p.stem)
def test_every_table_has_its_commands_or_says_why_not(page: Path) -> None:
    names = {figure.name for figure in known() if ROOT / figure.page == page}
    text = page.read_text(encoding="utf-8")
    marked = [found[1] for found in figures.MARKED.finditer(text)]
    assert sorted(marked) == sorted(names)
    if page == figures.OTHERS:  # generated as a whole
        assert text == figures.other_machines()
        return
    outside = figures.MARKED.sub("", text)
    for table in TABLE.finditer(outside):
        before = outside[: table.start()]
        assert EXEMPT.search(before[before.rfind("\n\n") + 1 :]), table[0].splitlines()[0]


def test_every_file_belongs_to_a_figure() -> None:
    names = {figure.name for figure in known()}
    assert len(names) == len(known())
    assert {file.stem for file in FILES.glob("*/*")} <= names


def test_a_number_that_was_changed_by_hand_is_noticed() -> None:
    figure = next(one for one in known() if one.name == "race")
    text = page_of(figure).replace("0.6374", "0.5374")
    assert figures.written(text, figure) != text


def test_the_tables_of_sweeps_are_those_of_their_file() -> None:
    figure = next(one for one in known() if one.name == "sweep-h200")
    file = ROOT / "docs" / "results" / "sweep-h200.jsonl"
    every = sweeps.by_work(file)
    found = figures.kept(figure, figure.machine)
    assert found is not None
    (tables,) = found.by_command.values()
    assert tables[:5] == [sweeps.ranges(every), *map(sweeps.table, every.values())]


def test_the_table_of_a_race_is_the_same_at_any_width() -> None:
    table = drawn(race_table.table(race()))
    assert table is not None
    assert table.heads[:2] == ["contestant", "s an epoch"]
    assert [row[0] for row in table.rows[:2]] == ["pareo-compiled", "torch"]
    assert table.right[1]
    assert in_markdown(table.markdown()) == [table]


def test_tables_are_recorded_when_they_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.table.Table.__rich_console__", recording.Drawn.__rich_console__)
    found: list[Table] = []
    recording.record(found)
    console = Console(file=StringIO(), width=200)
    for _ in range(2):
        console.print(race_table.table(race()))
    assert found == [drawn(race_table.table(race()))]


def test_the_tables_of_a_command_are_kept_and_its_exit_status_too() -> None:
    tables, status = figures.output("pareo networks")
    assert status == 0
    assert tables[0].heads[:2] == ["name", "input"]
    assert "papers-cnn" in [row[0] for row in tables[0].rows]
    assert figures.output("pareo no-such-command") == ([], 2)


def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, version: str = __version__
) -> Figure:
    """A figure of a page in a directory of its own, with tables of a machine."""
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "FILES", tmp_path / "figures")
    monkeypatch.setattr(figures, "OTHERS", tmp_path / "other-machines.md")
    figure = Figure("some", "page.md", ["pareo a", "pareo b"], machine)
    monkeypatch.setattr(figures, "figures", lambda: [figure])
    (tmp_path / "page.md").write_text("<!-- figures: some -->\n<!-- end -->\n")
    old = Measured(
        "some", {}, "2026-01-01", version, {"pareo a": [Table(["t"], [False], [["old"]])]}
    )
    file = figures.file_of(figure, machine)
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(figures.asdict(old)))
    return figure


def printing(text: str) -> object:
    return lambda command: ([Table(["t"], [False], [[f"{text} {command[-1]}"]])], 0)


def test_another_machine_does_not_overwrite_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = place(tmp_path, monkeypatch, "another-machine")
    monkeypatch.setattr(figures, "output", printing("new"))
    assert list(figures.run_all([(figure, None)])) == []
    assert "old" in (tmp_path / "page.md").read_text()
    assert "new a" not in (tmp_path / "page.md").read_text()
    other = (tmp_path / "other-machines.md").read_text()
    assert f"## {figure.here}" in other
    assert "| new b |" in other


def test_the_same_machine_replaces_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = place(tmp_path, monkeypatch, figures.machine_name(on_gpu=False))
    monkeypatch.setattr(figures, "output", printing("new"))
    assert list(figures.run_all([(figure, 2)])) == []
    assert "old" in (tmp_path / "page.md").read_text()  # of the command that did not run again
    assert list(figures.run_all([(figure, None)])) == []
    text = (tmp_path / "page.md").read_text()
    assert "old" not in text
    assert text.index("new a") < text.index("new b")
    assert "read the sentences around them" in capsys.readouterr().out
    assert "There are none yet" in (tmp_path / "other-machines.md").read_text()


def test_tables_of_another_version_are_not_mixed_with_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = place(tmp_path, monkeypatch, figures.machine_name(on_gpu=False), version="")
    monkeypatch.setattr(figures, "output", printing("new"))
    assert list(figures.run_all([(figure, 2)])) == []
    text = (tmp_path / "page.md").read_text()
    assert "old" not in text
    assert "new b" in text


def test_a_command_without_tables_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = place(tmp_path, monkeypatch, figures.machine_name(on_gpu=False))
    monkeypatch.setattr(figures, "output", lambda command: ([], 1))
    before = figures.file_of(figure, figure.here).read_text()
    assert list(figures.run_all([(figure, None)])) == ["some"]
    assert figures.file_of(figure, figure.here).read_text() == before


def test_a_damaged_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = place(tmp_path, monkeypatch, "another-machine")
    figures.file_of(figure, "another-machine").write_text('{"by_command": 3}')
    with pytest.raises(DataError, match=r"some\.json: expected tables"):
        figures.kept(figure, "another-machine")


def test_a_page_without_a_place_is_named() -> None:
    with pytest.raises(DataError, match=r"page\.md: has no place for some"):
        figures.written("# A page\n", Figure("some", "page.md", [], "any"))


@pytest.mark.parametrize("only", ["no-such-figure", "race:2", "race:x"])
def test_what_is_not_in_the_list_is_refused(only: str) -> None:
    with pytest.raises(PareoError, match="--only expects"):
        figures.asked(only)


def test_what_is_missing_is_named() -> None:
    figure = Figure("some", "page.md", [], "any", needs=["numpy", "no_such_package"])
    assert figure.missing() == ["no_such_package"]
