"""Training that goes wrong: signals, full disks, lost directories, two runs at once, dead workers.

Whatever happens, a checkpoint that was written can be resumed, to the bits of a run that was left
alone, and nothing is left behind.
"""

import contextlib
import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from faults import Attempt, Kind, Lost, expect
from pareo.data import Dataset, load
from pareo.errors import DataError, PareoError
from pareo.nn import networks
from pareo.training import checkpoint as files
from pareo.training import fit

NETWORK = networks.mlp([16, 5, 3])
HOW: dict[str, Any] = {
    "batch_size": 10, "optimizer": "adam", "device": "vectorized", "progress": False,
}  # fmt: skip
TRAIN = """
import sys, time
from faults.training import DATA, HOW, NETWORK
from pareo.training import fit
fit(NETWORK, DATA, epochs=100_000, checkpoint=sys.argv[1], checkpoint_seconds=0.0, **HOW,
    callbacks=[lambda result: time.sleep(0.01)])
"""
DATA = load("synthetic:16:3:240")


@cache
def _losses(epochs: int) -> bytes:
    return bits(fit(NETWORK, DATA, epochs=epochs, **HOW).parameters)


def bits(parameters: dict[str, Any]) -> bytes:
    """All bits of some arrays."""
    return b"".join(np.ascontiguousarray(a).tobytes() for a in parameters.values())


def resumes(folder: Path) -> None:
    """Check that the checkpoint in a directory continues to the bits of an undisturbed run."""
    found = files.load(folder)
    epochs = found.epoch + 1
    result = fit(NETWORK, DATA, epochs=epochs, resume=folder, **HOW)
    expect(bits(result.parameters) == _losses(epochs), "a resumed run has the bits of a whole one")


def tidy(folder: Path, *more: str) -> None:
    """Check that nothing but checkpoints is left in a directory."""
    known = {files.NAME, files.BEST, *more}
    left = {file.name for file in folder.iterdir()} - known
    expect(not left, f"nothing is left behind: {sorted(left)}")


@contextlib.contextmanager
def process(code: str, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A Python process, which is ended with all that it started."""
    folders = Path(__file__).resolve().parents[1], Path(files.__file__).parents[2]
    started = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        **options,
    )
    try:
        yield started
    finally:
        with contextlib.suppress(OSError):
            os.killpg(started.pid, signal.SIGKILL)
        started.communicate()


def until(truth: Callable[[], object], seconds: float = 40.0) -> None:
    """Wait for something."""
    end = time.monotonic() + seconds
    while not truth():
        if time.monotonic() > end:
            raise Lost("it came in time")
        time.sleep(0.005)


def signals(random: Random, folder: Path) -> Attempt:
    """A signal at a random moment after the first checkpoint."""
    number = random.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGHUP))
    file = folder / files.NAME

    def attempt() -> None:
        with process(TRAIN, str(folder)) as training:
            until(file.exists)
            time.sleep(random.uniform(0, 0.3))
            training.send_signal(number)
            _, said = training.communicate(timeout=30)
            status = training.returncode
        if number == signal.SIGKILL:
            expect(status == -number, "a killed run is killed")
        else:
            expect(status == 128 + number, f"the status tells the signal: {status}")
            expect(f"stopped by {number.name}" in said, "the signal is said")
            expect("Traceback" not in said, "a signal is a sentence")
            tidy(folder)
        resumes(folder)

    return attempt


class Full(OSError):
    """A disk that is full, or another failure of a file system."""


def writes(random: Random, folder: Path) -> Attempt:
    """A call of the file system fails at a random moment of a run, for good or for once."""
    number = random.choice((errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EDQUOT))
    name = random.choice(("fsync", "replace", "open"))
    at, for_good = random.randrange(1, 12), random.random() < 0.5

    def attempt() -> None:
        usual, calls = getattr(os, name), 0

        def failing(*arguments: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at or (for_good and calls > at):
                raise Full(number, os.strerror(number))
            return usual(*arguments, **more)

        done = 0

        def count(result: Any) -> None:
            nonlocal done
            done = len(result.history)

        setattr(os, name, failing)
        try:
            fit(NETWORK, DATA, epochs=4, checkpoint=folder, callbacks=[count], **HOW)
        except DataError as error:
            expect("cannot be written" in str(error), "the error says what failed")
            if not done and not (folder / files.NAME).exists():
                return
        finally:
            setattr(os, name, usual)
        expect(files.load(folder).epoch >= done, "a checkpoint that was written is there")
        tidy(folder)
        resumes(folder)

    return attempt


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A disk of a few kilobytes; `PareoError` where this user may not mount one."""
    place = folder / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        raise PareoError("this user may not mount a small disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def full_disk(random: Random, folder: Path) -> Attempt:
    """A disk that has room for a checkpoint, but not for two, or not even for one."""
    size = random.choice((4096, 8192, 16384, 24576))

    def attempt() -> None:
        with small_disk(folder, size) as disk:
            (disk / "other").write_bytes(bytes(random.choice((0, 4096))))
            with contextlib.suppress(DataError):
                fit(NETWORK, DATA, epochs=3, checkpoint=disk / "run", **HOW)
            run = disk / "run"
            if (run / files.NAME).exists():
                tidy(run)
                shutil.copytree(run, folder / "copy")
                resumes(folder / "copy")

    return attempt


def read_only(random: Random, folder: Path) -> Attempt:
    """A disk that is read-only: a run cannot begin there, nor continue what is there."""
    epochs = random.randrange(4)

    def attempt() -> None:
        with small_disk(folder, 1 << 20) as disk:
            run, more = disk / "run", {}
            if epochs:
                fit(NETWORK, DATA, epochs=epochs, checkpoint=run, **HOW)
                more = {"resume": run}
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            said = ""
            try:
                fit(NETWORK, DATA, epochs=5, checkpoint=run, **more, **HOW)
            except DataError as error:
                said = str(error)
            expect("Read-only file system" in said, f"it is said: {said}")
            if epochs:
                shutil.copytree(run, folder / "copy")
                resumes(folder / "copy")

    return attempt


def clocks(random: Random, folder: Path) -> Attempt:
    """The clock of the system jumps, to the past or by years, between and within epochs."""
    jumps = [random.choice((0, -3600, 3600, -(10**9), 10**9, -1e-3)) for _ in range(50)]

    def attempt() -> None:
        usual, calls = time.time, 0

        def jumping() -> float:
            nonlocal calls
            calls += 1
            return usual() + jumps[calls % len(jumps)]

        time.time = jumping
        try:
            result = fit(
                NETWORK, DATA, epochs=4, checkpoint=folder, checkpoint_seconds=0.0,
                callbacks=[lambda result: None], **HOW,
            )  # fmt: skip
        finally:
            time.time = usual
        expect(bits(result.parameters) == _losses(4), "it trains as with a steady clock")
        expect(all(epoch.seconds >= 0 for epoch in result.history), "no epoch took negative time")
        tidy(folder)
        resumes(folder)

    return attempt


def directories(random: Random, folder: Path) -> Attempt:
    """The directory, or a file in it, is removed or replaced between two epochs."""
    when, what = random.randrange(3), random.randrange(4)
    run = folder / "run"

    def disturb(result: Any) -> None:
        if len(result.history) != when + 1:
            return
        match what:
            case 0:
                shutil.rmtree(run)
            case 1:
                (run / files.NAME).write_bytes(b"half")
            case 2:
                run.rename(folder / "away")
            case 3:
                (run / files.NAME).unlink()

    def attempt() -> None:
        fit(NETWORK, DATA, epochs=4, checkpoint=run, callbacks=[disturb], **HOW)
        expect(files.load(run).epoch == 4, "the run ends with its checkpoint")
        tidy(run)

    return attempt


def two_runs(random: Random, folder: Path) -> Attempt:
    """A second run into the checkpoint of one that goes on, which is told at once."""
    when = random.randrange(3)
    said: list[str] = []

    def second(result: Any) -> None:
        if len(result.history) == when + 1:
            resume = random.choice((None, folder))
            try:
                fit(NETWORK, DATA, epochs=9, checkpoint=folder, resume=resume, **HOW)
            except DataError as error:
                said.append(str(error))

    def attempt() -> None:
        fit(NETWORK, DATA, epochs=4, checkpoint=folder, callbacks=[second], **HOW)
        expect(said and ("another run" in said[0] or "already holds" in said[0]), "it is said")
        expect(files.load(folder).epoch == 4, "the first run is complete")
        tidy(folder)
        resumes(folder)

    return attempt


def bad_data(random: Random, folder: Path) -> Attempt:
    """NaN, infinity, labels out of range and numbers that overflow, in data of a program."""
    images, labels = DATA.images.copy(), DATA.labels.copy()
    place = random.randrange(len(images))
    match random.randrange(6):
        case 0:
            images[place] = random.choice((np.nan, np.inf, -np.inf))
        case 1:
            labels[place] = random.choice((-1, 3, 2**31, 2**62))
        case 2:
            images = images.astype(np.float64)
            images[place] = 1e300
        case 3:
            images[place] = 3e38
        case 4:
            labels = labels[:-1]
        case 5:
            labels = labels.astype(np.float32)
            labels[place] = np.nan

    def attempt() -> None:
        with np.errstate(all="ignore"):
            data = Dataset("bad", images, labels, DATA.test_images, DATA.test_labels, 3)
            result = fit(NETWORK, data, epochs=2, checkpoint=folder, **HOW)
        expect(all(np.isfinite(a).all() for a in result.parameters.values()), "weights are finite")

    return attempt


SAVE = """
import sys
from faults.files import published
from pareo.lab.experiment import records, results
good = results.checked(published()[0], "test")
while True:
    print(records.save(good), flush=True)
"""


def records(random: Random, folder: Path) -> Attempt:
    """Two processes save results into one file, and are killed."""
    place = folder / "records.sqlite"

    def attempt() -> None:
        from pareo.lab.experiment import records as kept

        os.environ["PAREO_RECORDS"] = str(place)
        said: set[int] = set()
        with process(SAVE) as one, process(SAVE) as other:
            for writer in (one, other):
                assert writer.stdout is not None
                said.add(int(writer.stdout.readline()))
            time.sleep(random.uniform(0, 0.2))
            for writer in (one, other):
                writer.kill()
                rest, complaints = writer.communicate(timeout=30)
                expect(not complaints, f"both can save: {complaints[-200:]}")
                said |= {int(line) for line in rest.splitlines(keepends=True) if line[-1] == "\n"}
        with contextlib.redirect_stderr(io.StringIO()) as complaints:
            found = {number for number, _ in kept.everything()}
        expect(said <= found, f"what was saved is there: {len(said - found)} are missing")
        expect(not complaints.getvalue(), "no row is half written")

    return attempt


GROUP = """
import json, os, signal, sys, threading, time
import multiprocessing

def end(how, after):
    while len(multiprocessing.active_children()) < 2:
        time.sleep(0.01)
    time.sleep(after)
    children = multiprocessing.active_children()
    print(json.dumps([child.pid for child in children]), flush=True)
    if how == "parent":
        os.kill(os.getpid(), signal.SIGKILL)
    for child in children[:1]:
        os.kill(child.pid, getattr(signal, how))

if __name__ == "__main__":
    from faults.training import DATA, NETWORK
    from pareo import Device
    from pareo.errors import PareoError
    from pareo.parallel import Trial, train_many
    threading.Thread(target=end, args=(sys.argv[1], float(sys.argv[2])), daemon=True).start()
    trials = [Trial(NETWORK, batch_size=2, seed=seed, epochs=60) for seed in range(2)]
    found = train_many(trials, DATA, "processes", 2, Device("vectorized", 2))
    print(json.dumps([result.error for result in found]))
"""


def workers(random: Random, folder: Path) -> Attempt:
    """A process of `train_many` is killed or stopped, or its parent is killed."""
    how = random.choice(("SIGKILL", "SIGSEGV", "SIGTERM", "SIGSTOP", "parent"))
    after = random.uniform(0.5, 2.0)
    script = folder / "many.py"
    script.write_text(GROUP)

    def attempt() -> None:
        code = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
        os.environ["PAREO_WORKER_TIMEOUT"] = "10"
        with process(code, str(script), how, str(after)) as parent:
            out, said = parent.communicate(timeout=85)
        lines = out.splitlines()
        expect(lines, f"the workers start: {said[-300:]}")
        until(lambda: not any(map(alive, json.loads(lines[0]))), 10)
        if how != "parent":
            errors = json.loads(lines[-1])
            expect(any(how in str(error) for error in errors), f"the end is said: {errors}")

    return attempt


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


KINDS = (
    Kind("file system errors", writes, 300, 8, 30.0, 75, False),
    Kind("full disk", full_disk, 40, 0, 30.0, 40, False),
    Kind("read-only disk", read_only, 20, 0, 30.0, 20, False),
    Kind("clock that jumps", clocks, 40, 2, 30.0, 40, False),
    Kind("directory disturbed", directories, 80, 5, 30.0, 40, False),
    Kind("two runs, one checkpoint", two_runs, 60, 4, 30.0, 30, False),
    Kind("data of a program", bad_data, 150, 10, 30.0, 75, False),
    Kind("signals", signals, 24, 0, 60.0, 12, False),
    Kind("two writers of records", records, 8, 0, 60.0, 8, False),
    Kind("workers killed or stopped", workers, 8, 0, 90.0, 3, False),
)
