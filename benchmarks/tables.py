"""Tables as data: read from a page of Markdown or from what a command prints, and written again."""

import re
from dataclasses import dataclass

from rich.table import Table as Drawn
from rich.text import Text

TABLE = re.compile(r"(?:^\|.*\|\n)+", re.M)
EDGE = re.compile(r"(?<!\\)\|")  # between two cells: a bar within a cell has a backslash


@dataclass
class Table:
    """A table as text: its heads, which columns are right-aligned, its rows, and a title."""

    heads: list[str]
    right: list[bool]
    rows: list[list[str]]
    title: str = ""

    def markdown(self) -> str:
        """The table as a page has it, below its title.

        >>> print(Table(["a", "s"], [False, True], [["x", "1|2"]], "Both").markdown(), end="")
        **Both**
        <BLANKLINE>
        | a | s |
        | --- | ---: |
        | x | 1\\|2 |
        """
        ends = ["---:" if right else "---" for right in self.right]
        title = f"**{self.title}**\n\n" if self.title else ""
        return title + "".join(_line(cells) for cells in (self.heads, ends, *self.rows))


def _line(cells: list[str]) -> str:
    inner = " | ".join(cell.replace("|", r"\|") for cell in cells)
    return f"| {inner} |\n".replace("  |", " |")


def in_markdown(text: str) -> list[Table]:
    """The tables in a text of Markdown; a title is a bold line above one.

    >>> in_markdown("**Both**\\n\\n| a | s |\\n| --- | ---: |\\n| x | 1\\\\|2 |\\n")
    [Table(heads=['a', 's'], right=[False, True], rows=[['x', '1|2']], title='Both')]
    """
    found = []
    for part in TABLE.finditer(text):
        heads, *rest = (_cells(line) for line in part[0].splitlines())
        if rest and all(re.fullmatch(":?-+:?", end) for end in rest[0]):
            title = re.search(r"^\*\*(.*)\*\*\n\n\Z", text[: part.start()], re.M)
            right = [end.endswith(":") for end in rest[0]]
            found.append(Table(heads, right, rest[1:], title[1] if title else ""))
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip().replace(r"\|", "|") for cell in EDGE.split(line.strip())[1:-1]]


def drawn(table: Drawn) -> Table | None:
    """What a table of Rich says, whatever the width of the terminal; None without heads.

    >>> made = Drawn("a", title="Both")
    >>> made.add_row("[red]x[/] ")
    >>> drawn(made)
    Table(heads=['a'], right=[False], rows=[['x']], title='Both')
    """
    heads = [_plain(column.header) for column in table.columns]
    if not table.show_header or not any(heads):
        return None
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    # A column that nobody filled, such as notes where there are none, says nothing.
    shown = [n for n, cells in enumerate(columns) if any(cells) or not cells]
    rows = [list(row) for row in zip(*(columns[n] for n in shown), strict=True)]
    right = [table.columns[n].justify == "right" for n in shown]
    return Table([heads[n] for n in shown], right, rows, _plain(table.title or ""))


def _plain(cell: object) -> str:
    """A cell without its colours, in one line."""
    text = Text.from_markup(cell).plain if isinstance(cell, str) else str(cell)
    return " ".join(text.split())
