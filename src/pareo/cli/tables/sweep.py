"""What `pareo sweep` shows: a row for each cell, the largest batches, and the answer."""

from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from pareo.cli.tables.narrow import Figures
from pareo.lab.experiment import statistics
from pareo.lab.formatting import digits
from pareo.lab.sweep.advice import ahead, answer, limits_title
from pareo.lab.sweep.cells import OK, WAITING, Cell, from_dict
from pareo.lab.sweep.engine import Sweep
from pareo.lab.sweep.floors import floor

HEADS = (
    "batch", "contestant", "ms per image", "95 %, +-", "ms per batch", "images/s",
    "best peer / this", "of the floor", "used MB", "reserved MB", "predicted MB", "note",
)  # fmt: skip
LEFT = ("contestant", "note")
LEAST = ("reserved MB", "95 %, +-", "predicted MB", "images/s", "of the floor", "used MB")
TIGHT: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0)}


def table(result: dict[str, Any]) -> Table:
    """Every cell, by batch size; who has no time says why."""
    cells = [from_dict(cell) for cell in result["cells"]]
    made = Figures(title=escape(title(result)), title_justify="left", least=LEAST, **TIGHT)
    for head in HEADS:
        left = head in LEFT
        made.add_column(head, justify="left" if left else "right", no_wrap=head == "contestant")
    for batch in sorted({cell.batch for cell in cells}):
        group = [cell for cell in cells if cell.batch == batch]
        peer = best_peer(group)
        for cell in sorted(group, key=lambda cell: cell.median):
            made.add_row(*_row(result, cell, peer))
        made.add_section()
    return made


def title(result: dict[str, Any]) -> str:
    """Which sweep it is."""
    settings = result["settings"]
    threads = f"{settings['threads']} thread{'' if settings['threads'] == 1 else 's'}"
    return f"{result['network']} on {result['data']}, {result['precision']}, {threads}"


def best_peer(cells: list[Cell]) -> Cell | None:
    """The fastest that is not pareo; None where none was timed."""
    peers = [cell for cell in cells if cell.seconds_per_batch and not _ours(cell)]
    return min(peers, key=lambda cell: cell.median, default=None)


def _ours(cell: Cell) -> bool:
    return cell.contestant.startswith("pareo")


def _row(result: dict[str, Any], cell: Cell, peer: Cell | None) -> list[str]:
    used, reserved = (megabytes(cell.memory.get(name)) for name in ("used", "reserved"))
    memory = [used, reserved, _predicted(cell)]
    if not cell.seconds_per_batch:
        word = "" if cell.status in (WAITING, OK) else cell.status
        return [str(cell.batch), cell.contestant, word, *[""] * 5, *memory, escape(cell.note)]
    low, middle, high = statistics.interval(cell.seconds_per_image)
    wide = f"{(high - low) / 2 / middle:.1%}" if statistics.has_ends(low, high) else "cannot tell"
    least = floor(result, cell.contestant, cell.batch)
    return [
        str(cell.batch),
        cell.contestant,
        digits(middle * 1e3),
        wide,
        digits(middle * cell.batch * 1e3),
        f"{1 / middle:,.0f}" if middle < 0.01 else f"{1 / middle:.3g}",
        f"{peer.median / middle:.2f}" if peer else "",
        f"{least / (middle * cell.batch):.0%}" if least else "unknown",
        *memory,
        escape(cell.note),
    ]


def _predicted(cell: Cell) -> str:
    """Megabytes that were predicted, and by how much that is off what was used."""
    expected, used = cell.predicted, cell.memory.get("used")
    if expected is None or not used:
        return ""
    return f"{megabytes(expected)} ({expected / used - 1:+.1%})"


def megabytes(size: int | None) -> str:
    """Bytes as megabytes.

    >>> megabytes(1_234_567_890), megabytes(None)
    ('1,235', '')
    """
    return "" if size is None else f"{size / 1e6:,.0f}"


def limits(result: dict[str, Any]) -> Table | None:
    """The largest batch of each under the limit; None where none was searched for."""
    if not result["limits"]:
        return None
    made = Figures(title=limits_title(result), title_justify="left", **TIGHT)
    heads = ("contestant", "under MB", "largest batch", "used MB there", "predicted", "probes")
    for head in (*heads, "note"):
        made.add_column(head, justify="left" if head in LEFT else "right")
    for one in sorted(result["limits"], key=lambda one: -(one["largest"] or 0)):
        made.add_row(
            one["contestant"],
            megabytes(one["limit"]),
            "unknown" if one["largest"] is None else str(one["largest"]),
            megabytes(one["used"]),
            "" if one["predicted"] is None else str(one["predicted"]),
            str(len(one["probes"])),
            escape(one["note"]),
        )
    return made


def lines(result: dict[str, Any]) -> list[str]:
    """What stands beneath: the answer, the gate, and what a reader must know of the samples."""
    cells = [from_dict(cell) for cell in result["cells"]]
    timed = [cell for cell in cells if cell.seconds_per_batch]
    best = answer(result)
    found = [best.sentence if best else "Nobody was timed.", ahead(result)]
    if timed:
        loss, move = (max(cell.parity[what] for cell in timed) for what in ("loss", "parameter"))
        found.append(
            f"Everyone who was timed agrees with float64: losses within {loss:.0e}, parameters' "
            f"moves within {move:.0e}."
        )
    samples = {f"{c.contestant}, batch {c.batch}": c.seconds_per_batch for c in timed}
    idle = result["machine"].get("idle_cores")
    found += statistics.noticed(samples, result["settings"]["threads"], idle)
    return [sentence for sentence in found if sentence]


def running(sweep: Sweep) -> Table:
    """The table while it runs; beneath it what is done now."""
    made = table(sweep.shown())
    done = sum(cell.status != WAITING for cell in sweep.cells.values())
    ready = f"{done} of {len(sweep.cells)} cells begun or done"
    again = f", {sweep.resumed} from before" if sweep.resumed else ""
    made.caption = f"{sweep.doing}; round {sweep.round}; {ready}{again}"
    made.caption_justify = "left"
    return made


def line(cell: Cell) -> str:
    """A finished cell in a line, for a log."""
    if cell.status != OK:
        return f"{cell.contestant}, batch {cell.batch}: {cell.status}: {cell.note}"
    return (
        f"{cell.contestant}, batch {cell.batch}: {digits(cell.median * 1e3)} ms per image, "
        f"{digits(cell.median * cell.batch * 1e3)} ms per batch, "
        f"{megabytes(cell.memory.get('used'))} MB, first call {cell.first_call:.3g} s"
    )
