"""What `pareo sweep` shows: a row for each cell, the largest batches, and the answer."""

from rich.markup import escape
from rich.table import Table

from pareo.cli.tables.narrow import TIGHT, Figures
from pareo.lab.experiment.entry import agreement, fastest
from pareo.lab.experiment.statistics import has_ends, noticed
from pareo.lab.formatting import counted, digits
from pareo.lab.machine import energy
from pareo.lab.sweep import engine
from pareo.lab.sweep.advice import ahead, answer, limits_title
from pareo.lab.sweep.result import Cell, SweepResult

HEADS = (
    "batch", "contestant", "ms per image", "95 %, +-", "ms per batch", "images/s",
    "best peer / this", "of the floor", "used MB", "reserved MB", "predicted MB", "note",
)  # fmt: skip
LEFT = ("contestant", "note")
LEAST = ("reserved MB", "95 %, +-", "predicted MB", "images/s", "of the floor", "used MB")


def table(result: SweepResult) -> Table:
    """Every cell, by batch size; those without a time say why."""
    threads = counted(result.settings.threads, "thread")
    title = f"{result.network} on {result.data}, {result.precision}, {threads}"
    made = Figures(
        *HEADS, title=escape(title), left=LEFT, whole=("contestant",), least=LEAST, **TIGHT
    )
    for batch in sorted({cell.batch for cell in result.cells}):
        group = [cell for cell in result.cells if cell.batch == batch]
        peer = fastest(group, ours=False)
        for cell in sorted(group, key=lambda cell: cell.median):
            made.add_row(*_row(result, cell, peer))
        made.add_section()
    return made


def _row(result: SweepResult, cell: Cell, peer: Cell | None) -> list[str]:
    memory = [megabytes(cell.memory.used), megabytes(cell.memory.reserved), _predicted(cell)]
    if not cell.times:
        word = "" if cell.status in ("waiting", "ok") else cell.status
        return [str(cell.batch), cell.contestant, word, *[""] * 5, *memory, escape(cell.note)]
    low, middle, high = cell.interval
    least = result.floor(cell.place, cell.batch)
    return [
        str(cell.batch),
        cell.contestant,
        digits(middle * 1e3),
        f"{(high - low) / 2 / middle:.1%}" if has_ends(low, high) else "cannot tell",
        digits(middle * cell.batch * 1e3),
        f"{1 / middle:,.0f}" if middle < 0.01 else f"{1 / middle:.3g}",
        f"{peer.median / middle:.2f}" if peer else "",
        f"{least / (middle * cell.batch):.0%}" if least else "unknown",
        *memory,
        escape(cell.note),
    ]


def _predicted(cell: Cell) -> str:
    """Megabytes that were predicted, and how far that is from what was used."""
    expected, used = cell.memory.predicted, cell.memory.used
    if expected is None or not used:
        return ""
    return f"{megabytes(expected)} ({expected / used - 1:+.1%})"


def megabytes(size: int | None) -> str:
    """Bytes as megabytes.

    >>> megabytes(1_234_567_890), megabytes(None)
    ('1,235', '')
    """
    return "" if size is None else f"{size / 1e6:,.0f}"


def limits(result: SweepResult) -> Table | None:
    """The largest batch of each contestant under the limit; None where none was searched for."""
    if not result.limits:
        return None
    heads = ("contestant", "under MB", "largest batch", "used MB there", "predicted", "probes")
    made = Figures(*heads, "note", title=limits_title(result), left=LEFT, **TIGHT)
    for one in sorted(result.limits, key=lambda one: -(one.largest or 0)):
        made.add_row(
            one.contestant,
            megabytes(one.limit),
            one.words,
            megabytes(one.used),
            "" if one.predicted is None else str(one.predicted),
            str(len(one.probes)),
            escape(one.note),
        )
    return made


def lines(result: SweepResult) -> list[str]:
    """What stands below: the answer, the gate, and what a reader must know of the samples."""
    timed = [cell for cell in result.cells if cell.times]
    best = answer(result)
    found = [best.sentence, ahead(result)] if best else []
    found.append(agreement(timed))
    samples = {f"{c.contestant}, batch {c.batch}": c.seconds_per_batch for c in timed}
    found += noticed(samples, result.settings.threads, result.machine.idle_cores)
    found += [cell.left_out() for cell in timed]
    powered = [cell for cell in timed if cell.energy.known]
    found += [f"{c.contestant}, batch {c.batch}: {energy.words(c.energy)}" for c in powered]
    if timed and not powered:
        found.append(f"Energy: {energy.NOT_HERE}.")
    return [sentence for sentence in found if sentence]


def running(sweep: engine.Sweep) -> Table:
    """The table while it runs; below it what is done now."""
    made = table(sweep.result())
    done = sum(cell.status != "waiting" for cell in sweep.cells.values())
    ready = f"{done} of {len(sweep.cells)} cells begun or done"
    again = f", {sweep.resumed} from before" if sweep.resumed else ""
    made.caption = f"{sweep.doing}; round {sweep.round}; {ready}{again}"
    return made


def line(cell: Cell) -> str:
    """A finished cell in a line, for a log."""
    if cell.status != "ok":
        return f"{cell.contestant}, batch {cell.batch}: {cell.status}: {cell.note}"
    return (
        f"{cell.contestant}, batch {cell.batch}: {digits(cell.median * 1e3)} ms per image, "
        f"{digits(cell.median * cell.batch * 1e3)} ms per batch, "
        f"{megabytes(cell.memory.used)} MB, first call {cell.first_call or 0:.3g} s"
    )
