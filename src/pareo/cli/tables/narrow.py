"""Tables that fit narrow terminals: no number is ever cut."""

from collections.abc import Sequence
from copy import copy
from typing import Any, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

LEAST = 12  # characters that are left of a long name
TIGHT: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0)}


class Figures(Table):
    """A table of numbers, which are shown in full or not at all.

    Numbers are the columns that are justified right, and those that may not wrap unless they have
    a `max_width`. Where the table is too wide, names and notes wrap or are cut; where that is not
    enough, the columns in `least` are left out, in their order, and a line below says which.
    """

    def __init__(
        self,
        *heads: str,
        left: Sequence[str] = (),
        whole: Sequence[str] = (),
        least: Sequence[str] = (),
        **options: Any,
    ) -> None:
        """A column for each head, of numbers unless it is in `left`; `whole` ones never wrap."""
        super().__init__(**{"title_justify": "left", "caption_justify": "left", **options})
        for head in heads:
            justify: Literal["left", "right"] = "left" if head in left else "right"
            self.add_column(head, justify=justify, no_wrap=head in whole)
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
        _widen(shown.columns, options.max_width - needs)
        yield from super(Figures, shown).__rich_console__(console, options)


def _narrow(column: Column) -> Column:
    """A column as narrow as it may be: as long as its numbers, or as its longest word."""
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
    """Share the spare width among the columns that want more, those that want least first."""
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
    """The width of a table whose columns have their widths."""
    return table.__rich_measure__(console, options.update(max_width=10_000)).maximum
