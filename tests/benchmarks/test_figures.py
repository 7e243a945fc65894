"""Pages show what the files under docs/results/figures hold, and outputs of commands are read."""

import json
from io import StringIO

import pytest
from benchmarks import figures
from benchmarks.figures import ROOT, Figure, Table
from benchmarks.figures import figures as known
from race_result import race
from rich.console import Console

from pareo.cli.tables import race as race_table
from pareo.errors import DataError


@pytest.mark.parametrize("figure", known(), ids=lambda figure: figure.name)
def test_a_page_agrees_with_its_file(figure: Figure) -> None:
    text = (ROOT / figure.page).read_text(encoding="utf-8")
    tables = figures.kept(figure)
    assert figures.written(text, figure, tables) == text
    places = [
        int(number) for name, number, _ in figures.MARKED.findall(text) if name == figure.name
    ]
    assert places == [*range(1, len(tables) + 1)]
    assert json.loads(figure.file.read_text())["commands"] == figure.commands
    for command in figure.commands:
        words = " ".join(figures.argv(command)[2:])
        shown = " ".join(text.replace("\\\n", " ").split())
        assert words.partition(" --contestants")[0].split(" --kind mlp")[0] in shown


def test_a_number_that_was_changed_by_hand_is_noticed() -> None:
    figure = next(one for one in known() if one.name == "race")
    text = (ROOT / figure.page).read_text(encoding="utf-8").replace("0.6374", "0.5374")
    assert figures.written(text, figure, figures.kept(figure)) != text


def test_the_table_of_a_race_is_read_from_what_it_prints() -> None:
    out = StringIO()
    Console(file=out, width=120).print(race_table.table(race()))
    (table,) = figures.in_output(out.getvalue())
    assert table.heads[:2] == ["contestant", "s an epoch"]
    assert [row[0] for row in table.rows[:2]] == ["pareo-compiled", "torch"]
    assert len({len(row) for row in table.rows}) == 1
    (again,) = figures.in_markdown(table.markdown())
    assert again == table


def test_a_page_that_asks_for_too_much_is_told() -> None:
    figure = Figure("some", "page.md", [])
    text = "<!-- figures: some 2 -->\n<!-- end -->"
    with pytest.raises(DataError, match="table 2 of some is not in"):
        figures.written(text, figure, [Table(["a"], [False], [])])


def test_what_is_missing_is_named() -> None:
    assert Figure("some", "page.md", [], needs=["numpy", "no_such_package"]).missing() == [
        "no_such_package"
    ]
