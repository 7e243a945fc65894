"""What `pareo arena` shows: a row for each network, the distribution, and the ten worst."""

import math
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from pareo.cli.tables.narrow import TIGHT, Figures
from pareo.lab.arena.engine import Arena
from pareo.lab.arena.result import ArenaResult, Bout
from pareo.lab.arena.summary import classes, hottest, lines, worst
from pareo.lab.formatting import counted, seconds
from pareo.lab.race.result import Row
from pareo.program.text import amount

HEADS = ("index", "kind", "batch", "FLOPs", "pareo", "best peer", "peer / pareo", "peer", "note")
LEFT = ("kind", "peer", "note")
SHOWN = 10  # networks, while others are raced
BAR = 40  # characters of the longest bar


def table(result: ArenaResult) -> Table:
    """A row for each network that was raced, by its index."""
    settings = result.settings
    title = (
        f"arena of seed {settings.seed}: {', '.join(settings.kinds)}; batch {settings.batch}, "
        f"{result.precision}, {counted(settings.threads, 'thread')}; seconds of a step"
    )
    made = Figures(
        *HEADS, title=escape(title), left=LEFT, whole=("kind",),
        least=("FLOPs", "peer", "best peer"),
    )  # fmt: skip
    for bout in result.bouts:
        made.add_row(*cells(bout))
    return made


def cells(bout: Bout) -> list[str]:
    """The row of one network."""
    ours, peer = bout.ours, bout.peer
    return [
        str(bout.index),
        bout.kind,
        str(bout.batch),
        amount(bout.flops, "FLOP"),
        _step(bout, ours),
        _step(bout, peer),
        "" if bout.ratio is None else f"{bout.ratio:.2f}",
        "" if peer is None else escape(_setting(peer)),
        escape(note(bout)),
    ]


def note(bout: Bout) -> str:
    """Whatever was refused or failed, and otherwise how certain the ratio is."""
    if bout.note and bout.missed:
        return bout.note
    missed = [f"{row.contestant} {row.status}: {row.note}" for row in bout.missed]
    if missed:
        return "; ".join(missed)
    if bout.verdict is None:
        return "; ".join(f"{row.contestant} {row.status}: {row.note}" for row in bout.rows)
    return str(bout.verdict) if bout.verdict.word == "cannot tell" else ""


def _step(bout: Bout, row: Row | None) -> str:
    return "" if row is None else seconds(row.median * bout.batch / bout.images)


def _setting(row: Row) -> str:
    """The setting that raced, where the contestant is a framework's fastest."""
    found = row.note.removeprefix("its fastest setting: ").partition(",")[0]
    return found if found != row.note else row.contestant


def line(bout: Bout) -> str:
    """One network in a line, for output that is no terminal."""
    ratio = "no ratio" if bout.ratio is None else f"best peer / pareo {bout.ratio:.2f}"
    said = [f"{bout.index} {bout.kind}, batch {bout.batch}: {ratio}", hottest(bout), note(bout)]
    return "; ".join(part for part in said if part)


def worst_table(result: ArenaResult) -> Table | None:
    """The networks with the lowest ratios, and the layer that pareo's time goes to."""
    found = worst(result)
    if not found:
        return None
    title = f"The worst of {counted(len(result.bouts), 'network')}"
    made = Table(title=title, title_justify="left", **TIGHT)
    for head in ("index", "peer / pareo", "the layer that takes longest", "network"):
        made.add_column(head, justify="right" if head in HEADS else "left")
    for bout in found:
        ratio = "" if bout.ratio is None else f"{bout.ratio:.2f}"
        made.add_row(
            str(bout.index), ratio, escape(hottest(bout)),
            escape(f"batch {bout.batch}, {bout.layers}"),
        )  # fmt: skip
    return made


def drawn_lines(result: ArenaResult) -> list[str]:
    """The distribution in figures, and as bars of characters."""
    found = classes(result)
    most = max((count for _, _, count in found), default=0)
    bars = []
    for low, high, count in found:
        bar = "#" * math.ceil(BAR * count / most)
        bars.append(f"{low:6.2f} to {high:6.2f} {bar} {count or ''}".rstrip())
    return [*lines(result), *bars]


def running(arena: Arena) -> RenderableType:
    """The last rows; below them the network that is raced, and what is done with it."""
    result = arena.result()
    made = table(replace(result, bouts=result.bouts[-SHOWN:]))
    done = f"{len(arena.bouts)} of {arena.settings.count} done"
    match = arena.match
    if match is None:
        return Group(made, f"{done}; {arena.doing}")
    named = f"{match.task.network.name}, batch {match.task.batch}"
    return Group(made, f"{done}; {named}: round {match.round}, {arena.doing}")
