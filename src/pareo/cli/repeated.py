"""`pareo race --repeat 5 --every 1h`: the same race again, and how much sessions differ."""

import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pareo.cli.tables.narrow import TIGHT
from pareo.errors import DataError, PareoError
from pareo.lab.experiment import records
from pareo.lab.formatting import digits
from pareo.lab.race.repeats import spreads
from pareo.lab.race.result import RaceResult
from pareo.lab.race.summary import base_of

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(text: str) -> float:
    """The seconds that --every names.

    >>> duration("1h"), duration("90s"), duration("1h30m")
    (3600.0, 90.0, 5400.0)
    >>> duration("soon")
    Traceback (most recent call last):
    pareo.errors.PareoError: --every expects a time such as 30m or 1h; got 'soon'
    """
    parts = re.findall(r"(\d{1,6})([smhd])", text)
    if not parts or "".join(f"{number}{unit}" for number, unit in parts) != text:
        raise PareoError(f"--every expects a time such as 30m or 1h; got {text!r}")
    return float(sum(int(number) * UNITS[unit] for number, unit in parts))


def check(*files: Path | None) -> None:
    """Refuse files of a single race."""
    if any(file is not None for file in files):
        raise PareoError("--repeat saves each race; it expects no --json and no --html")


def repeat(times: int, every: float, once: Callable[[], None]) -> None:
    """Run a race that saves itself so many times, then show how much sessions differ.

    every: seconds from the start of one to the start of the next. The exit status is the largest
    of all; Ctrl-C ends the repeats, and shows what there is.
    """
    before, status = _newest(), 0
    for number in range(1, times + 1):
        start = time.monotonic()
        print(f"race {number} of {times}", flush=True)
        try:
            once()
        except typer.Exit as ended:
            status = max(status, ended.exit_code)
        if status == 130 or number == times:
            break
        wait = start + every - time.monotonic()
        if wait > 0:
            at = datetime.now() + timedelta(seconds=wait)
            print(f"the next one begins at {at:%Y-%m-%d %H:%M}", flush=True)
            try:
                time.sleep(wait)
            except KeyboardInterrupt:
                status = 130
                break
    show(_since(before))
    if status:
        raise typer.Exit(status)


def show(races: list[RaceResult]) -> None:
    """Print the spread of each contestant."""
    if len(races) < 2:
        print("No spread between sessions: fewer than two races were saved.")
        return
    base = base_of(races[-1].rows)
    found = spreads(races, base.contestant if base else None)
    beside = f"of {base.contestant}" if base else "ratio"
    table = Table(**TIGHT)
    table.add_column("contestant", no_wrap=True)
    for head in ("sessions", "s an epoch", "within", "between", beside, "ratio, between"):
        table.add_column(head, justify="right", overflow="fold")
    for one in found:
        table.add_row(
            escape(one.contestant), str(one.sessions), digits(one.seconds), _share(one.within),
            _share(one.between), "" if one.ratio is None else f"{one.ratio:.3g}",
            _share(one.ratio_between),
        )  # fmt: skip
    console = Console()
    console.print(table)
    console.print(
        "[dim]within: the standard error of a session's median. between: the standard "
        "deviation of sessions beyond that. A difference smaller than twice the latter may be "
        "that of two days.[/]"
    )


def _share(value: float | None) -> str:
    """A share in per cent; empty where it is not known.

    >>> _share(0.0123), _share(None)
    ('1.2 %', '')
    """
    return "" if value is None else f"{value * 100:.2g} %"


def _newest() -> int:
    try:
        with records.opened() as file:
            return int(file.execute("SELECT max(number) FROM results").fetchone()[0] or 0)
    except DataError:  # nothing is saved yet
        return 0


def _since(number: int) -> list[RaceResult]:
    """The races that were saved since then, of the same work as the latest."""
    try:
        with records.opened() as file:
            asked = "SELECT number FROM results WHERE number > ? ORDER BY number"
            numbers = [row[0] for row in file.execute(asked, (number,))]
    except DataError:
        return []
    races = [one for one in map(records.load, numbers) if isinstance(one, RaceResult)]
    return [one for one in races if _work(one) == _work(races[-1])]


def _work(race: RaceResult) -> tuple[object, ...]:
    machine = race.machine.name
    data = race.data, race.loss, race.batch
    return race.network, *data, race.precision, race.threads, machine
