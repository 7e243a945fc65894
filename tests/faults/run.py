"""Runs faults in processes with bounded time and memory, and prints the table.

A process tries some faults of one kind one after the other and prints a line of JSON for each. If
it ends early, the fault that it was at is lost, and another process continues after it.
"""

import argparse
import contextlib
import dataclasses
import faulthandler
import gc
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from types import FrameType

from faults import Attempt, Kind, Lost
from faults.kinds import KINDS
from pareo.errors import PareoError

ROOM = 1 << 30  # bytes of address space that faults may need beyond what the imports take
LARGE = 600 << 20  # bytes: a fault may not raise the peak of the process by more


class Late(BaseException):
    """A fault took too long; not an Exception, so that nothing takes it for an error."""


def main(arguments: list[str]) -> int:
    """Inject all faults, or try some of one kind in this process."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=26)
    parser.add_argument("--kinds", default="", help="comma-separated parts of names")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of faults")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=0, help="faults of one process; 0: by kind")
    parser.add_argument("--child", nargs=3, metavar=("KIND", "FIRST", "LAST"))
    options = parser.parse_args(arguments)
    if options.child:
        name, first, last = options.child
        return _child(_named(name), options.seed, range(int(first), int(last)))
    wanted = [part for part in options.kinds.split(",") if part]
    kinds = [kind for kind in KINDS if not wanted or any(part in kind.name for part in wanted)]
    if options.batch:
        kinds = [dataclasses.replace(kind, batch=options.batch) for kind in kinds]
    return _table(kinds, options.seed, options.scale, options.jobs)


def tried(kind: Kind, seed: int, number: int) -> tuple[str, str]:
    """Inject one fault in this process: "read", "refused" or "lost", and the reason."""
    folder = Path(tempfile.mkdtemp(prefix="pareo-fault-"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        attempt = kind.draw(Random(f"{seed} {kind.name} {number}"), folder)
        with _deadline(kind.seconds):
            outcome = _outcome(attempt)
    except Late:
        outcome = "lost", f"more than {kind.seconds:g} s"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    return ("lost", f"{grown >> 20} MB of memory") if grown > LARGE else outcome


def _outcome(attempt: Attempt) -> tuple[str, str]:
    try:
        attempt()
    except PareoError as error:
        said = str(error)
        if "\n" in said.strip() or not said.isprintable() or len(said) > 2000:
            return "lost", f"not one printable sentence: {said!r:.200}"
        return "refused", said
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f" ({Path(where.filename).name}:{where.lineno})"
        kind = "" if isinstance(error, Lost) else f"{type(error).__name__}: "
        return "lost", f"{kind}{error!s:.300}{place}"
    return "read", ""


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _named(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


def _child(kind: Kind, seed: int, numbers: range) -> int:
    """Try faults; the first of them imports what is needed, so the limit is set after it."""
    for count, number in enumerate(numbers):
        print(json.dumps([number]), flush=True)
        # A fault that hangs in C does not notice the alarm: the process ends, with a traceback.
        faulthandler.dump_traceback_later(2 * kind.seconds + 240, exit=True)
        outcome, reason = tried(kind, seed, number)
        print(json.dumps([number, outcome, reason]), flush=True)
        if count == 0 and kind.limited:
            size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
            resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))
        if count % 20 == 0:
            gc.collect()
    return 0


def _batch(kind: Kind, seed: int, numbers: range) -> list[tuple[int, str, str]]:
    """The outcomes of faults in processes of their own."""
    found: dict[int, tuple[str, str]] = {}
    first = numbers.start
    while first < numbers.stop:
        command = [sys.executable, "-m", "faults", "--seed", str(seed), "--child", kind.name]
        with tempfile.TemporaryFile() as complaints:
            try:
                ended = subprocess.run(
                    [*command, str(first), str(numbers.stop)],
                    stdout=subprocess.PIPE,
                    stderr=complaints,
                    timeout=kind.seconds * (numbers.stop - first) + 120,
                    check=False,
                )
                out, status = ended.stdout, str(ended.returncode)
            except subprocess.TimeoutExpired as late:
                out, status = late.stdout or b"", "no answer in time"
            complaints.seek(0)
            said = complaints.read().decode("utf-8", "replace")
        at = first
        for line in out.splitlines():
            with contextlib.suppress(ValueError):
                number, *outcome = json.loads(line)
                at = number
                if outcome:
                    found[number] = (outcome[0], outcome[1])
        if at not in found:
            found[at] = ("lost", f"the process ended with {status}: {said[-300:]}")
        first = at + 1
    return [(number, *outcome) for number, outcome in sorted(found.items())]


@contextlib.contextmanager
def _own_folder() -> Iterator[None]:
    """A scope in which all temporary files of all processes are in one folder, which is removed."""
    with tempfile.TemporaryDirectory(prefix="pareo-faults-", ignore_cleanup_errors=True) as folder:
        before = os.environ.get("TMPDIR")
        os.environ["TMPDIR"] = folder
        try:
            yield
        finally:
            os.environ.pop("TMPDIR") if before is None else os.environ.update(TMPDIR=before)


def _table(kinds: list[Kind], seed: int, scale: float, jobs: int) -> int:
    begin = time.monotonic()
    work = []
    for kind in kinds:
        count = max(1, round(kind.count * scale))
        work += [
            (kind, range(at, min(at + kind.batch, count))) for at in range(0, count, kind.batch)
        ]
    outcomes: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    with _own_folder(), ThreadPoolExecutor(jobs) as pool:
        running = [
            (kind, pool.submit(_batch, kind, seed, numbers)) for kind, numbers in reversed(work)
        ]
        for kind, future in running:
            outcomes[kind.name] += future.result()
            done = [one for found in outcomes.values() for one in found]
            bad = sum(outcome == "lost" for _, outcome, _ in done)
            print(f"{kind.name}: {len(done):,} injected, {bad} lost", file=sys.stderr, flush=True)
    lost = [(name, *one) for name, found in outcomes.items() for one in found if one[1] == "lost"]
    print(f"{'fault':<28} {'injected':>8} {'survived':>8} {'refused':>8} {'lost':>6}")
    total = [0, 0, 0, 0]
    for kind in kinds:
        found = [one[1] for one in outcomes[kind.name]]
        row = [
            len(found),
            len(found) - found.count("lost"),
            found.count("refused"),
            found.count("lost"),
        ]
        total = [a + b for a, b in zip(total, row, strict=True)]
        print(f"{kind.name:<28} {row[0]:8,} {row[1]:8,} {row[2]:8,} {row[3]:6,}")
    print(f"{'all':<28} {total[0]:8,} {total[1]:8,} {total[2]:8,} {total[3]:6,}")
    print(f"seed {seed}, {time.monotonic() - begin:.0f} s. Refused: survived with one sentence.")
    for name, number, _, reason in lost[:60]:
        print(f"lost: {name} {number}: {reason}")
    return 1 if lost else 0
