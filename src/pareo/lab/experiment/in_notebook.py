"""What a notebook shows of an experiment that is under way, and results as pandas frames."""

from collections.abc import Callable, Iterable
from html import escape
from typing import Any

from pareo import notebook
from pareo.lab.experiment.entry import Entry
from pareo.lab.formatting import seconds


def watching(entries: Callable[[Any], Iterable[Entry]], each: str) -> Callable[[Any], None]:
    """A function to watch an experiment with; outside of a notebook it does nothing.

    entries: those of an experiment. each: what their times are of, such as an epoch.
    """
    if not notebook.is_running():
        return lambda under_way: None
    live = notebook.Live()
    return lambda under_way: live.show(drawn(under_way.doing, entries(under_way), each))


def drawn(doing: str, entries: Iterable[Entry], each: str) -> str:
    """What an experiment does now, and the contestants with their times so far, as HTML."""
    rows = [
        [one.contestant, one.status, str(len(one.times)), seconds(one.median) if one.times else ""]
        for one in entries
    ]
    heads = ["contestant", "status", "samples", f"median per {each}"]
    return f"<p>{escape(doing)}</p>{notebook.table(heads, rows, left=2)}"


def frame(rows: list[dict[str, Any]], of: str) -> Any:
    """Rows as a pandas data frame; `of` is what needs pandas, for the error.

    Raises:
        ImportError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"{of}.frame needs pandas: pip install pandas") from error
    return pandas.DataFrame(rows)
