"""The report of a race."""

from html import escape

from pareo.lab.experiment.entry import ranked
from pareo.lab.experiment.statistics import MARGIN
from pareo.lab.formatting import digits, span
from pareo.lab.race.result import RaceResult
from pareo.lab.race.summary import base_of, headline
from pareo.lab.report import energy
from pareo.lab.report.charts import Figure, framed
from pareo.lab.report.page import head, page
from pareo.lab.report.race.figures import figures
from pareo.lab.report.tables import ledger, machine, not_timed, table

CAPTIONS = {
    "times": "Seconds per epoch: median and 95 % interval. A dashed line is a floor. "
    "A hatched bar is longer than the axis: its number counts.",
    "epochs": "Time by epoch: seconds of training at the end of each epoch.",
    "accuracy": "Time to accuracy: seconds until the test images were first classified so well.",
    "speedup": "Speedup: at the end of each epoch, how many times as fast as",
    "energy": energy.CAPTION,
}
BOUND = {"arithmetic": "its arithmetic", "bandwidth": "the bytes it must move"}
GATE = {"ok": "yes", "refused": "no", "failed": "failed"}


def html(result: RaceResult) -> str:
    """The report as one page."""
    drawn = figures(result)
    return page(_title(result), _sections(result, drawn), drawn)


def fragment(result: RaceResult) -> list[str]:
    """The sections that need no figures."""
    return [_head(result), _times(result), not_timed(result.rows)]


def _title(result: RaceResult) -> str:
    loss = f", {result.other_loss}" if result.other_loss else ""
    return f"{result.network}{loss}, batch {result.batch}, {result.precision}"


def _head(result: RaceResult) -> str:
    samples = {row.contestant: row.samples for row in result.rows}
    data = f"of {result.data} " if result.data else "that are made up "
    more = f"{result.images:,} images {data}an epoch"
    return head(result, _title(result), headline(result), result.threads, samples, more)


def _sections(result: RaceResult, drawn: dict[str, Figure]) -> list[str]:
    limits = [f"on {one.name} by {BOUND[one.why]}" for one in result.floors if one.why in BOUND]
    floor = f", {' and '.join(limits)}," if limits else ""
    none = (
        ""
        if "epochs" in drawn
        else "<p>Nobody trained two epochs, so there is no figure by epoch.</p>"
    )
    return [
        _head(result),
        "<h2>Times</h2>",
        _figure("times", drawn),
        _times(result),
        f"<p>The floor is the least time that this network needs on this machine{floor} at the "
        f"rate that was measured. A verdict is 99 % sure of a difference beyond {MARGIN:.0%}.</p>",
        not_timed(result.rows),
        f"<h2>Training</h2>{none}",
        *(_figure(name, drawn) for name in ("epochs", "accuracy", "speedup")),
        "<h2>Energy</h2>",
        _figure("energy", drawn) or energy.NOTHING,
        "<h2>Parity</h2><p>Distance of the first steps from float64, as a share. Contestants that "
        "are too far from it are not timed.</p>",
        _parity(result),
        "<h2>Ledger</h2>",
        ledger(result.rows),
        "<h2>Machine</h2>",
        machine(result, result.floors),
    ]  # fmt: skip


def _figure(name: str, drawn: dict[str, Figure]) -> str:
    if name not in drawn:
        return ""
    caption = escape(CAPTIONS[name])
    if name == "speedup":
        chosen = drawn[name]["base"]
        options = "".join(
            f"<option{' selected' if base == chosen else ''}>{escape(base)}</option>"
            for base in drawn[name]["bases"]
        )
        caption = f'<label>{caption} <select id="base">{options}</select></label>'
    return framed(name, caption)


def _times(result: RaceResult) -> str:
    """Times with their intervals, shares of the floor, and verdicts."""
    base = base_of(result.rows)
    if base is None:
        return ""
    rows = []
    for row in ranked(result.rows):
        low, middle, high = row.interval
        least = row.floor.seconds_per_epoch
        share = f"{least / middle * 100:.2g} %" if least else "unknown"
        verdict = "" if row is base else str(row.compared_with(base))
        rows.append(
            [row.contestant, digits(middle), span(low, high), digits(result.images / middle), share,
             row.energy.per_image, row.energy.net_per_image, verdict, row.note]
        )  # fmt: skip
    heads = ["contestant", "s per epoch", "95 % interval", "images/s", "of the floor"]
    heads += ["J an image", "less idling"]  # columns without values are left out
    return table([*heads, f"beside {base.contestant}", "note"], rows)


def _parity(result: RaceResult) -> str:
    """How far each was from float64 in its first steps."""
    rows = []
    for row in result.rows:
        errors = (row.parity.get(name) for name in ("loss", "parameter", "median"))
        shown = ["" if error is None else f"{error:.1e}" for error in errors]
        gate = GATE.get(row.status, "not here")
        end = row.parity.get("end_steps", row.parity.get("field_steps"))
        rows.append([row.contestant, gate, *shown, row.parity.get("steps"), end])
    heads = ["contestant", "passed", "loss", "worst parameter", "median parameter", "steps"]
    heads.append("steps at the end")
    return table(heads, rows)
