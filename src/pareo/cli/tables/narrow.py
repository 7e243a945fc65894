"""A table that fits narrow terminals: a number is shown in full or not at all."""

from collections.abc import Sequence
from copy import copy
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

LEAST = 12  # characters that a long name keeps


class Figures(Table):
    """A table whose numbers are never cut.

    Columns of numbers are those that are justified right, and those that may not wrap and have no
    `max_width`. In a table that is too wide, names and notes are wrapped or cut. If that is not
    enough, the columns in `least` are dropped in their order, and a line below names them.
    """

    def __init__(self, *heads: str, least: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*heads, **options)
        self._least = least

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = copy(self)
        shown.columns = [_narrow(column) for column in self.columns]
        needs = _width(shown, console, options)
        hidden = []
        for head in self._least:
            if needs <= options.max_width:
                break
            gone = [column for column in shown.columns if column.header == head]
            hidden += [head] if any(cell for column in gone for cell in column.cells) else []
            shown.columns = [column for column in shown.columns if column not in gone]
            needs = _width(shown, console, options)
        if hidden:
            said = f"Too narrow for: {', '.join(hidden)}."
            shown.caption = f"{self.caption}\n{said}" if self.caption else said
            shown.caption_justify = "left"
        _widen(shown.columns, options.max_width - needs)
        yield from super(Figures, shown).__rich_console__(console, options)


def _narrow(column: Column) -> Column:
    """The column at its minimum width: its longest number, or its longest word."""
    made = copy(column)
    words = [len(word) for word in str(column.header).split()]
    cells = _cells(column)
    if column.justify == "right" or (column.no_wrap and not column.max_width):
        made.width = max([*words, *map(cell_len, cells)], default=1)
    else:
        longest = [len(word) for cell in cells for word in cell.split()]
        made.width = min(LEAST, max([*words, *longest], default=1))
    return made


def _widen(columns: Sequence[Column], spare: int) -> None:
    """Share the spare width among the columns, those that need least first."""
    wanted = []
    for column in columns:
        full = max([len(str(column.header)), *map(cell_len, _cells(column))])
        most = min(full, column.max_width or full)
        wanted.append((max(0, most - (column.width or 0)), column))
    wanted.sort(key=lambda pair: pair[0])
    for number, (more, column) in enumerate(wanted):
        given = max(0, min(more, spare // (len(wanted) - number)))
        column.width = (column.width or 0) + given
        spare -= given


def _cells(column: Column) -> list[str]:
    return [
        Text.from_markup(cell).plain if isinstance(cell, str) else str(cell)
        for cell in column.cells
    ]


def _width(table: Table, console: Console, options: ConsoleOptions) -> int:
    """The width of a table whose columns have fixed widths."""
    return table.__rich_measure__(console, options.update(max_width=10_000)).maximum
