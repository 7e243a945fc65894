"""What notebooks show: tables as HTML with every text escaped, and progress that is replaced."""

import sys
import time
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

EVERY = 0.5  # seconds between two versions of something that is under way


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1, below: str = ""
) -> str:
    """A table whose first `left` columns are text and whose others are numbers.

    >>> table(["name", "n"], [["<b>", "1"]])[-77:]
    '<tr><td style="text-align:left">&lt;b&gt;</td><td>1</td></tr></tbody></table>'
    """
    top = "".join(_cell("th", head, at < left) for at, head in enumerate(heads))
    body = "".join(
        f"<tr>{''.join(_cell('td', text, at < left) for at, text in enumerate(row))}</tr>"
        for row in rows
    )
    end = f"<p>{escape(below)}</p>" if below else ""
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>{end}"


def _cell(tag: str, text: str, left: bool) -> str:
    # Notebooks align all cells to the right unless told otherwise.
    style = ' style="text-align:left"' if left else ""
    return f"<{tag}{style}>{escape(text).replace('  ', '&nbsp; ')}</{tag}>"


def is_running() -> bool:
    """Whether a notebook runs this code: IPython has a kernel, not a terminal."""
    shell = sys.modules.get("IPython")
    found = shell.get_ipython() if shell else None
    return found is not None and hasattr(found, "kernel")


class Live:
    """Something under way in the output of a cell: each version replaces the one before."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._last = 0.0

    def show(self, html: str, final: bool = False) -> None:
        """Show HTML in place of what was shown; too soon after the last one, it is skipped."""
        from IPython.display import HTML, display  # type: ignore[import-not-found, unused-ignore]

        now = time.monotonic()
        if self._handle is None:
            self._handle = display(HTML(html), display_id=True)
        elif final or now >= self._last + EVERY:
            self._handle.update(HTML(html))
        else:
            return
        self._last = now
