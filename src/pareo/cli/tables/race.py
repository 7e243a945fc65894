"""What `pareo race` shows: a row for each contestant, and beneath it how each computed."""

import math
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from pareo.cli.tables.narrow import Figures
from pareo.lab.experiment import statistics
from pareo.lab.formatting import digits, span
from pareo.lab.race.engine import Race
from pareo.lab.report.summary import floors


def table(
    result: dict[str, Any], against: str | None = None, accuracy: float | None = None
) -> Table:
    """The result, the fastest first; who has no time is last and says why."""
    rows = result["rows"]
    medians = {row["contestant"]: _median(row) for row in rows}
    base = against or best_peer(rows)
    least = ("images/s", "95 % interval")
    made = Figures(title=escape(_title(result)), title_justify="left", least=least)
    speedup = f"speedup over {base}" if base else "speedup"
    heads = ["s an epoch", "95 % interval", "images/s", speedup, "of the floor"]
    heads += [f"s to {accuracy:.1%}"] if accuracy else []
    for head in ["contestant", *heads, "note"]:
        left = head in ("contestant", "note")
        made.add_column(head, justify="left" if left else "right", no_wrap=head == "contestant")
    for row in sorted(rows, key=lambda row: medians[row["contestant"]]):
        middle = medians[row["contestant"]]
        if math.isinf(middle):
            word = "waiting" if row["status"] == "ok" else row["status"]
            made.add_row(row["contestant"], word, *[""] * (len(heads) - 1), escape(row["note"]))
            continue
        low, _, high = statistics.interval(row["samples"])
        cells = [
            digits(middle),
            span(low, high),
            _speed(result["images"] / middle),
            f"{medians[base] / middle:.3g}" if base and medians[base] < math.inf else "",
            _share(row["floor"].get("seconds_per_epoch"), middle),
        ]
        cells += [_reached(row, accuracy)] if accuracy else []
        made.add_row(row["contestant"], *cells, escape(row["note"]))
    return made


def running(race: Race) -> Table:
    """The table while it runs; beneath it who is running, the round and the time left."""
    rows = [asdict(row) for row in race.rows.values()]
    result = {**race.settings(), "rows": rows}
    made = table(result)
    rules = race.rules
    rounds = f" of {math.ceil(rules.epochs / rules.share)}" if rules.epochs else ""
    left = f"; {max(race.left, 0):.0f} s left" if math.isfinite(race.left) else ""
    made.caption = f"round {race.round}{rounds}, {race.doing}{left}"
    made.caption_justify = "left"
    return made


def lines(result: dict[str, Any]) -> list[str]:
    """What a fair reader asks beneath the table: the gate, the verdict, each one's ledger."""
    timed = [row for row in result["rows"] if row["samples"]]
    found = [_gate(timed), _verdict(result["rows"])]
    found += statistics.noticed(
        {row["contestant"]: row["samples"] for row in timed},
        result["threads"],
        result.get("machine", {}).get("idle_cores"),
    )
    found += [_ledger(row) for row in timed]
    return [line for line in found if line]


def best_peer(rows: list[dict[str, Any]]) -> str | None:
    """The fastest that is not pareo; None where none was timed.

    >>> best_peer([{"contestant": "pareo-compiled", "samples": [1.0]}])
    """
    peers = [row for row in rows if row["samples"] and not row["contestant"].startswith("pareo-")]
    best = min(peers, key=_median, default=None)
    return None if best is None else str(best["contestant"])


def _title(result: dict[str, Any]) -> str:
    limits = [f"{floor.seconds:.3g} s on {floor.name} ({floor.why})" for floor in floors(result)]
    data = f" of {result['data']}" if result.get("data") else ", made up"
    return (
        f"{result['network']}, batch {result['batch']}, {result['precision']}, "
        f"{_threads(result['threads'])}, epochs of {result['images']:,} images{data}; "
        f"floor {' and '.join(limits) or 'unknown'}"
    )


def _threads(number: int | None) -> str:
    return f"{number} thread{'' if number == 1 else 's'}"


def _median(row: dict[str, Any]) -> float:
    return statistics.interval(row["samples"])[1] if row["samples"] else math.inf


def _speed(images: float) -> str:
    """Images a second.

    >>> _speed(63375.4), _speed(2.2731)
    ('63,375', '2.27')
    """
    return f"{images:,.0f}" if images >= 100 else f"{images:.3g}"


def _share(floor: float | None, seconds: float) -> str:
    """The share of the floor that was reached.

    >>> _share(0.35, 1.0), _share(0.035, 1.0), _share(1.0, 1e5), _share(None, 1.0)
    ('35%', '3.5%', '0.001%', 'unknown')
    """
    if floor is None or math.isnan(floor):
        return "unknown"
    share = floor / seconds
    return f"{share:.0%}" if share >= 0.1 else f"{share * 100:.2g}%"


def _reached(row: dict[str, Any], accuracy: float) -> str:
    seconds = [p["seconds"] for p in row["curve"] if (p["accuracy"] or 0) >= accuracy]
    return digits(seconds[0]) if seconds else "not reached"


def _gate(timed: list[dict[str, Any]]) -> str:
    if not timed:
        return "Nobody was timed."
    loss, parameter = (max(row["parity"][what] for row in timed) for what in ("loss", "parameter"))
    return (
        f"Everyone who was timed agrees with float64: losses within {loss:.0e}, parameters' moves "
        f"within {parameter:.0e}."
    )


def _verdict(rows: list[dict[str, Any]]) -> str:
    """The fastest of pareo's against the fastest of the others."""
    peer = best_peer(rows)
    ours = [row for row in rows if row["samples"] and row["contestant"].startswith("pareo-")]
    if peer is None or not ours:
        return ""
    best = min(ours, key=_median)
    other = next(row for row in rows if row["contestant"] == peer)
    found = statistics.compare(best["samples"], other["samples"])
    if found.word == "cannot tell":
        taken = f"{len(best['samples'])} and {len(other['samples'])} samples"
        return f"{best['contestant']} against {peer}: cannot tell who is faster from {taken}."
    ratio, low, high = found.ratio, found.low, found.high
    if found.word == "faster":
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    return (
        f"{best['contestant']} is {found.word} than {peer}, by {ratio:.3g} times "
        f"({low:.3g} to {high:.3g} at 99 %)."
    )


def _turn(turn: dict[str, Any]) -> list[str]:
    """How long its turns were, and what of them does not depend on their steps.

    >>> _turn({"steps": 469, "share": 0.032, "fixed": 1.1e-4, "apart": True})
    ['turns of 469 steps, less fixed costs of 0.11 ms, 3.2 % of each']
    """
    share = turn.get("share")
    if not turn.get("steps"):
        return []
    words = f"turns of {turn['steps']:,} step{'' if turn['steps'] == 1 else 's'}"
    if share is None:
        return [words]
    joined = "less" if turn["apart"] else "with"
    costs = f"fixed costs of {turn['fixed'] * 1e3:.2g} ms, {share * 100:.2g} % of each"
    return [f"{words}, {joined} {costs}"]


def _ledger(row: dict[str, Any]) -> str:
    """How one computed, in a line."""
    ledger = row["ledger"]
    told = [ledger.get(name) for name in ("precision", "layout", "mode")]
    words = [str(word) for word in told if word is not None]
    words.append(_threads(ledger.get("threads")))
    words.append(f"version {ledger.get('version')}")
    words.append(f"first call {row['first_call']:.3g} s")
    if ledger.get("peak_memory_bytes"):
        words.append(f"peak memory {ledger['peak_memory_bytes'] / 2**20:,.0f} MiB")
    words += _turn(row.get("turn") or {})
    if ledger.get("first_layer_data_gradient"):
        words.append("computes the first layer's data gradient, too")
    for tried in ledger.get("settings_tried", []):
        seconds = tried["seconds_per_epoch"]
        reached = tried["note"] if seconds is None else f"{digits(seconds)} s"
        words.append(f"tried {tried['setting']}: {reached}")
    return f"{row['contestant']}: {', '.join(words)}"
