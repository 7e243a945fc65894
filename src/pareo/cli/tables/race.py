"""What `pareo race` shows: a row for each contestant, and below it how each computed."""

import math

from rich.markup import escape
from rich.table import Table

from pareo.cli.tables.narrow import Figures
from pareo.lab.experiment.entry import Clocks, agreement, fastest
from pareo.lab.experiment.statistics import noticed
from pareo.lab.experiment.turns import Turn
from pareo.lab.formatting import counted, digits, span
from pareo.lab.machine import energy
from pareo.lab.race import engine
from pareo.lab.race.result import RaceResult, Row

LEFT = ("contestant", "note")
AT_THE_END = {"end_steps", "field_steps"}


def table(result: RaceResult, against: str | None = None, accuracy: float | None = None) -> Table:
    """The result, the fastest first; contestants without a time come last, with the reason."""
    peer = fastest(result.rows, ours=False)
    base = against or (peer.contestant if peer else "")
    heads = ["s an epoch", "95 % interval", "images/s"]
    heads += [f"speedup over {base}" if base else "speedup", "of the floor"]
    heads += [f"s to {accuracy:.1%}"] if accuracy else []
    powered = any(row.energy.known for row in result.rows)
    heads += ["J an image", "less idling"] if powered else []
    heads += [f"J to {accuracy:.1%}"] if powered and accuracy else []
    made = Figures(
        "contestant", *heads, "note", title=escape(_title(result)), left=LEFT,
        whole=("contestant",), least=("images/s", "95 % interval"),
    )  # fmt: skip
    beside = next((row.median for row in result.rows if row.contestant == base), math.inf)
    for row in sorted(result.rows, key=lambda row: row.median):
        if not row.samples:
            word = "waiting" if row.status == "ok" else row.status
            made.add_row(row.contestant, word, *[""] * (len(heads) - 1), escape(row.note))
            continue
        low, middle, high = row.interval
        cells = [
            digits(middle),
            span(low, high),
            _speed(result.images / middle),
            f"{beside / middle:.3g}" if beside < math.inf else "",
            _share(row.floor.seconds_per_epoch, middle),
        ]
        if accuracy:
            reached = row.reached(accuracy)
            cells.append("not reached" if reached is None else digits(reached))
        if powered:
            joules = row.energy.per_image, row.energy.net_per_image
            cells += ["" if one is None else digits(one) for one in joules]
            cells += [_joules_to(row, accuracy)] if accuracy else []
        made.add_row(row.contestant, *cells, escape(row.note))
    return made


def _joules_to(row: Row, accuracy: float) -> str:
    """The energy of training until an accuracy; empty where it was not reached."""
    watts, seconds = row.energy.watts, row.reached(accuracy)
    return "" if watts is None or seconds is None else digits(watts * seconds)


def running(race: engine.Race) -> Table:
    """The table while it runs; below it the contestant that runs, the round and the time left."""
    made = table(race.result())
    rules = race.rules
    rounds = f" of {math.ceil(rules.epochs / rules.share)}" if rules.epochs else ""
    left = f"; {max(race.left, 0):.0f} s left" if math.isfinite(race.left) else ""
    now = f"round {race.round}{rounds}, {race.doing}{left}"
    made.caption = now if race.round else race.doing
    return made


def line(race: engine.Race) -> str:
    """What a race does now, in a line of a log."""
    left = f"; {max(race.left, 0):.0f} s left" if math.isfinite(race.left) else ""
    return f"round {race.round}, {race.doing}{left}" if race.round else race.doing


def lines(result: RaceResult) -> list[str]:
    """What stands below the table: the gate, the verdict, what to know, and each one's ledger."""
    timed = [row for row in result.rows if row.samples]
    samples = {row.contestant: row.samples for row in timed}
    found = [agreement(timed), _verdict(result), _took(result), _not_at_the_end(timed)]
    found += noticed(samples, result.threads, result.machine.idle_cores)
    found += [row.left_out() for row in timed]
    if timed and not any(row.energy.known for row in timed):
        found.append(f"Energy: {energy.NOT_HERE}.")
    found += [_ledger(row, result.images) for row in timed]
    return [line for line in found if line]


def _not_at_the_end(timed: list[Row]) -> str:
    """Who did not pass the gate at the end, because it was not tried."""
    missed = [row.contestant for row in timed if not row.parity.keys() & AT_THE_END]
    if not missed:
        return ""
    return (
        "Compared in their first steps only, because many would take too long or the race was "
        f"interrupted: {', '.join(missed)}."
    )


def _title(result: RaceResult) -> str:
    limits = [
        f"{floor.seconds_per_epoch:.3g} s on {floor.name} ({floor.why})" for floor in result.floors
    ]
    data = f" of {result.data}" if result.data else ", made up"
    loss = f", {result.other_loss}" if result.other_loss else ""
    return (
        f"{result.network}{loss}, batch {result.batch}, {result.precision}, "
        f"{counted(result.threads, 'thread')}, epochs of {result.images:,} images{data}; "
        f"floor {' and '.join(limits) or 'unknown'}"
    )


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
    if floor is None:
        return "unknown"
    share = floor / seconds
    return f"{share:.0%}" if share >= 0.1 else f"{share * 100:.2g}%"


def _verdict(result: RaceResult) -> str:
    """The fastest of pareo's own against its fastest peer."""
    best, peer = fastest(result.rows, ours=True), fastest(result.rows, ours=False)
    if peer is None or best is None:
        return ""
    found = best.compared_with(peer)
    one, other = best.contestant, peer.contestant
    if found.word == "cannot tell":
        taken = f"{len(best.samples)} and {len(peer.samples)} samples"
        return f"{one} against {other}: cannot tell which is faster from {taken}."
    ratio, low, high = found.ratio, found.low, found.high
    if found.word == "faster":
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    return (
        f"{one} is {found.word} than {other}, by {ratio:.3g} times "
        f"({low:.3g} to {high:.3g} at 99 %)."
    )


def _took(result: RaceResult) -> str:
    """How long building and rounds took, where that is known."""
    if result.building_seconds is None:
        return ""
    rounds = max((len(row.rounds) for row in result.rows), default=0)
    return (
        f"Building everyone, with first steps and trials, took {result.building_seconds:.0f} s, "
        f"{counted(rounds, 'round')} took {result.rounds_seconds or 0:.0f} s."
    )


def _turn(turn: Turn) -> list[str]:
    """How long its turns were, and which part of them does not depend on their steps.

    >>> _turn(Turn(steps=469, share=0.032, fixed=1.1e-4, apart=True))
    ['turns of 469 steps, less fixed costs of 0.11 ms, 3.2 % of each']
    """
    if not turn.steps:
        return []
    words = f"turns of {counted(turn.steps, 'step')}"
    if turn.share is None or turn.fixed is None:
        return [words]
    joined = "less" if turn.apart else "with"
    costs = f"fixed costs of {turn.fixed * 1e3:.2g} ms, {turn.share * 100:.2g} % of each"
    return [f"{words}, {joined} {costs}"]


def _clocks(clocks: Clocks) -> list[str]:
    """The device during its turns, as far as it is known.

    >>> _clocks(Clocks(megahertz=1755, celsius=61, watts=512.3))
    ['clock at least 1,755 MHz', 'up to 61 °C', '512 W']
    >>> _clocks(Clocks(stolen=0.031)), _clocks(Clocks(stolen=0.001))
    (['up to 3.1 % of processor time stolen'], [])
    """
    found = []
    if clocks.megahertz:
        found.append(f"clock at least {clocks.megahertz:,.0f} MHz")
    if clocks.celsius is not None:
        found.append(f"up to {clocks.celsius:.0f} °C")
    if clocks.watts is not None:
        found.append(f"{clocks.watts:.0f} W")
    if clocks.stolen is not None and clocks.stolen >= 0.005:
        found.append(f"up to {clocks.stolen * 100:.2g} % of processor time stolen")
    return found


def _ledger(row: Row, images: int) -> str:
    """How one contestant computed, in a line."""
    ledger = row.ledger
    known = [ledger.get(name) for name in ("precision", "layout", "mode")]
    words = [str(word) for word in known if word is not None]
    if ledger.get("threads"):
        words.append(counted(ledger["threads"], "thread"))
    words.append(f"version {ledger.get('version')}")
    words.append(f"first call {row.first_call or 0:.3g} s")
    if ledger.get("peak_memory_bytes"):
        words.append(f"peak memory {ledger['peak_memory_bytes'] / 2**20:,.0f} MiB")
    words += _turn(row.turn)
    words += _clocks(row.clocks)
    if row.energy.known:
        words.append(energy.words(row.energy, images))
    if ledger.get("first_layer_data_gradient"):
        words.append("computes the first layer's data gradient, too")
    for tried in ledger.get("settings_tried", []):
        seconds = tried["seconds_per_epoch"]
        reached = tried["note"] if seconds is None else f"{digits(seconds)} s"
        words.append(f"tried {tried['setting']}: {reached}")
    return f"{row.contestant}: {', '.join(words)}"
