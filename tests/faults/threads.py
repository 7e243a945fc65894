"""Threads, forks and caches: equal results or a clear sentence, never a deadlock."""

import asyncio
import contextlib
import io
import multiprocessing
import os
import shutil
import signal
import threading
import time
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from faults import Attempt, Kind, Lost, expect
from faults.mutate import damaged
from faults.training import process
from pareo import Device, grad, op
from pareo import cache as cached

DEVICES = ("vectorized", "compiled", "sequential")
METHODS = ("fork", "spawn", "forkserver")
TOLERANCE = {"float32": 2e-4, "float64": 1e-11}  # sums of 12 and 17 products of numbers up to 12


def computed(device: str, threads: int, dtype: str, seed: int) -> None:
    """Run operators and a gradient, and compare them with NumPy in float64."""
    random = np.random.default_rng(seed)
    x, w, b = (random.random(shape).astype(dtype) for shape in ((17, 12), (12, 9), (9,)))
    with Device(device, threads):
        found = op.relu(op.add_bias(op.dot(x, w), b))
        moved = grad(lambda w: op.sum(op.sigmoid(op.dot(x, w))))(w)
    x, w, b = (a.astype(np.float64) for a in (x, w, b))
    share = 1 / (1 + np.exp(-x @ w))
    for got, exact in ((found, np.maximum(x @ w + b, 0)), (moved, x.T @ (share * (1 - share)))):
        expect(got.dtype == dtype, f"{device} keeps {dtype}")
        expect(abs(got - exact).max() < TOLERANCE[dtype], f"{device} is right in {dtype}")


def _some(random: Random, count: int, devices: tuple[str, ...] = DEVICES) -> list[tuple[Any, ...]]:
    return [
        (random.choice(devices), random.randint(1, 3), random.choice(list(TOLERANCE)), number)
        for number in range(count)
    ]


def many_threads(random: Random, folder: Path) -> Attempt:
    """Sixteen threads, each with other devices, precisions and seeds."""
    work = [_some(random, 40, DEVICES[:2]) + _some(random, 2) for _ in range(16)]

    def attempt() -> None:
        errors: list[BaseException] = []

        def run(calls: list[tuple[Any, ...]]) -> None:
            try:
                for call in calls:
                    computed(*call)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(calls,), daemon=True) for calls in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        expect(not any(thread.is_alive() for thread in threads), "no thread waits for ever")
        if errors:
            raise errors[0]

    return attempt


def forks(random: Random, folder: Path) -> Attempt:
    """A fork while threads compute; the child computes as well."""
    calls, child = _some(random, 1000, DEVICES[:2]), _some(random, 3, DEVICES[:2])
    pause = random.uniform(0, 0.02)

    def attempt() -> None:
        for call in child:
            computed(*call)
        stop = threading.Event()

        def run(first: int) -> None:
            for call in calls[first::3]:
                if stop.is_set():
                    return
                computed(*call)

        threads = [threading.Thread(target=run, args=(first,)) for first in range(3)]
        for thread in threads:
            thread.start()
        try:
            time.sleep(pause)
            expect(_forked(child) == 0, "a child computes after a fork")
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    return attempt


def _forked(calls: list[tuple[Any, ...]]) -> int:
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # ends a deadlock
        for call in calls:
            computed(*call)
        status = 0
    finally:
        os._exit(status)


def start_methods(random: Random, folder: Path) -> Attempt:
    """Processes of multiprocessing, with each of its methods, and tasks of asyncio."""
    method = random.choice((*METHODS, "asyncio"))
    calls = _some(random, 4)

    async def tasks() -> None:
        await asyncio.gather(*(asyncio.to_thread(computed, *call) for call in calls))

    def attempt() -> None:
        for call in calls[:1]:
            computed(*call)
        if method == "asyncio":
            asyncio.run(tasks())
            return
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            pool.starmap_async(computed, calls).get(60)

    return attempt


def cache_files(random: Random, folder: Path) -> Attempt:
    """A file of the cache, damaged, replaced by a directory, or on a disk that fails."""
    content = random.randbytes(random.choice((0, 1, 100, 5000)))
    how = random.randrange(4)

    def attempt() -> None:
        os.environ["PAREO_CACHE_DIR"] = str(folder / "cache")
        with contextlib.redirect_stderr(io.StringIO()):
            cached.write_checked(content, "a", "b")
            file = folder / "cache" / "a" / "b"
            match how:
                case 0 | 1:
                    file.write_bytes(damaged(random, file.read_bytes()))
                case 2:
                    file.unlink()
                    file.mkdir()
                case 3:
                    shutil.rmtree(folder / "cache")
                    (folder / "cache").write_text("no directory")
            found = cached.read_checked("a", "b")
            expect(found in (None, content), "a damaged file counts as missing")
            cached.write_checked(content, "a", "b")
            if how < 2:
                expect(cached.read_checked("a", "b") == content, "it is made again")

    return attempt


COMPILE = """
import sys
from faults.threads import computed
for number in range(2):
    computed("compiled", 2, "float32", number)
print("right", flush=True)
"""


@cache
def warm() -> Path:
    """A cache with the machine code of a few kernels."""
    import atexit
    import tempfile

    place = Path(tempfile.mkdtemp(prefix="pareo-fault-cache-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    _compiled({"PAREO_CACHE_DIR": str(place)})
    return place


def _compiled(environment: dict[str, str | None], count: int = 1) -> None:
    """Compile in processes of their own, at the same time, with another environment."""
    before = {name: os.environ.get(name) for name in environment}
    for name, value in environment.items():
        os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
    try:
        with contextlib.ExitStack() as stack:
            running = [stack.enter_context(process(COMPILE)) for _ in range(count)]
            for one in running:
                out, said = one.communicate(timeout=100)
                expect(out == "right\n", f"it compiles and computes: {said[-300:]}")
                expect("Traceback" not in said, f"what is wrong is a sentence: {said[-300:]}")
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


def cold_caches(random: Random, folder: Path) -> Attempt:
    """Machine code from a cache that is damaged, unusable, shared, or nowhere."""
    how = random.choice(("damaged", "damaged", "full", "file", "no home", "two processes"))

    def attempt() -> None:
        place = folder / "cache"
        match how:
            case "damaged":
                shutil.copytree(warm(), place)
                files = sorted(path for path in place.rglob("*") if path.is_file())
                for file in files:
                    if random.random() < 0.5:
                        file.write_bytes(damaged(random, file.read_bytes()))
                _compiled({"PAREO_CACHE_DIR": str(place)})
            case "full":
                from faults.training import small_disk

                with small_disk(folder, 8192) as disk:
                    _compiled({"PAREO_CACHE_DIR": str(disk / "cache")})
            case "file":
                place.write_text("no directory")
                _compiled({"PAREO_CACHE_DIR": str(place)})
            case "no home":
                _compiled({"PAREO_CACHE_DIR": None, "XDG_CACHE_HOME": None, "HOME": "/proc/none"})
            case "two processes":
                _compiled({"PAREO_CACHE_DIR": str(place)}, 2)
            case other:
                raise Lost(other)

    return attempt


KINDS = (
    Kind("files of the cache", cache_files, 300, 30),
    Kind("sixteen threads", many_threads, 15, 0, 90.0, 8, False),
    Kind("forks while computing", forks, 30, 0, 60.0, 15, False),
    Kind("processes and asyncio", start_methods, 8, 0, 90.0, 4, False),
    Kind("cold caches", cold_caches, 8, 0, 120.0, 4, False),
)
