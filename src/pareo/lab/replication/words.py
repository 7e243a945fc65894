"""What a result of `pareo paper` says, in words."""

from collections.abc import Iterable

from pareo.lab.formatting import digits
from pareo.lab.replication.result import Line, PaperResult

UNITED = {"%": " %", "times": ""}  # how a unit follows its number, where not after a space


def title(result: PaperResult) -> str:
    """The paper, and how it was repeated."""
    how = "with --quick" if result.quick else "in full"
    return f"{result.paper}, repeated {how}"


def amount(value: float | None, unit: str) -> str:
    """A number with its unit; empty where there is none.

    >>> amount(4697.81, "s"), amount(97.83, "%"), amount(0.33, "times"), amount(None, "s")
    ('4,698 s', '97.83 %', '0.33', '')
    """
    if value is None:
        return ""
    return f"{digits(value)}{UNITED.get(unit, f' {unit}')}"


def ratio(value: float | None, precise: int = 3) -> str:
    """What was measured here over what was published, with a few digits; empty where unknown.

    >>> ratio(0.01234), ratio(19.27, 2), ratio(12345.6), ratio(None)
    ('0.0123', '19', '12,346', '')
    """
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{precise}g}"


def measured_by(line: Line) -> str:
    """What was measured here, or why nothing was.

    >>> measured_by(Line(section="", what="", unit="s", place="", by="torch", note="2 epochs"))
    'torch; 2 epochs'
    """
    return "; ".join(part for part in (line.by, line.note) if part)


def shared(words: Iterable[str]) -> str:
    """The word that all have; empty where they differ, or where there is only one.

    >>> shared(["one epoch", "one epoch"]), shared(["one epoch", ""]), shared(["one epoch"])
    ('one epoch', '', '')
    """
    found = list(words)
    return found[0] if len(found) > 1 and len(set(found)) == 1 else ""


def summary(result: PaperResult) -> str:
    """How many published figures stand beside one of this machine, in a sentence."""
    published = [line for line in result.lines if line.published is not None]
    both = [line for line in published if line.here is not None]
    said = f"{len(both)} of {len(published)} lines with a published figure have one measured here"
    wrong = sum(line.status in ("refused", "failed") for line in result.lines)
    if wrong:
        said += f"; {wrong} were refused or failed"
    return f"{said}{'; it was interrupted' if result.interrupted else ''}."
