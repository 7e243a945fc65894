"""A journal: what was written is there after any end, and belongs to one sweep alone."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pareo.errors import DataError
from pareo.lab.sweep.journal import Journal

pytestmark = pytest.mark.smoke

ABOUT = {"settings": {"network": "alexnet"}, "versions": {"torch": None}}
ONE, TWO = {"cell": {"batch": 1}}, {"probe": {"batch": 2}}


def lines(folder: Path, about: dict[str, Any] = ABOUT, more: tuple[Any, ...] = ()) -> list[Any]:
    """What a journal has when it is opened; `more` is added to it."""
    with closing(Journal(about, folder)) as journal:
        for line in more:
            journal.add(line)
        return journal.lines


def test_lines_are_there_again(tmp_path: Path) -> None:
    assert lines(tmp_path, more=(ONE, TWO)) == []
    assert lines(tmp_path) == [ONE, TWO]


@pytest.mark.parametrize("cut", ['{"cell": {"bat', '{"cell": {"batch": 2}}', "\x00\x00"])
def test_a_line_that_was_cut_short_is_not_counted(cut: str, tmp_path: Path) -> None:
    lines(tmp_path, more=(ONE,))
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text() + cut)
    assert lines(tmp_path, more=(TWO,)) == [ONE]
    assert lines(tmp_path) == [ONE, TWO]


def test_another_sweep_has_another_journal(tmp_path: Path) -> None:
    lines(tmp_path, more=(ONE,))
    assert lines(tmp_path, {**ABOUT, "versions": {"torch": "2"}}) == []


def test_a_sweep_that_runs_is_not_run_twice(tmp_path: Path) -> None:
    with (
        closing(Journal(ABOUT, tmp_path)),
        pytest.raises(DataError, match="this sweep is already running"),
    ):
        Journal(ABOUT, tmp_path)
    assert lines(tmp_path) == []


def test_after_the_end_all_begins_again(tmp_path: Path) -> None:
    lines(tmp_path, more=(ONE,))
    Journal(ABOUT, tmp_path).finish()
    assert lines(tmp_path) == []
