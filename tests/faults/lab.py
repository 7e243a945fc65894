"""The lab: what a contestant's process sends, and how it ends.

Whatever a process does, its parent gets an answer that is plain data, or a reason in one line, and
nothing that the process started is left.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from faults import Attempt, Kind, expect
from faults.mutate import damaged
from faults.training import alive, until
from pareo.lab.experiment import plain_data, process_tree
from pareo.lab.experiment.worker import Failed, Worker

ANSWERS: tuple[Any, ...] = (
    (True, [(0.5, {"0.w": np.ones((3, 4), np.float32), "0.b": np.zeros(4)})]),
    (True, {"precision": "float32", "threads": 2, "more": [1, 2.5, None, {"a": (1, 2)}]}),
    (True, (0.001, None, np.float64(2.3))),
    (False, "ValueError: no"),
    (True, {1: {2, 3}, "p": Path("/tmp/x"), "b": b"raw", "big": 2**90}),
)


def answers(random: Random, folder: Path) -> Attempt:
    """The bytes of an answer, damaged."""
    raw = damaged(random, plain_data.dumps(random.choice(ANSWERS)))

    def attempt() -> None:
        try:
            plain_data.loads(raw)
        except plain_data.NotPlain as error:
            expect(len(str(error)) < 500, "the reason is short")

    return attempt


def misbehaving(how: str, marker: str) -> Callable[[], Any]:
    """What runs in a contestant's process."""

    def answer() -> Any:
        match how:
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "exit":
                os._exit(7)
            case "raise":
                raise RuntimeError("two\nlines \ud800 \x1b[31m" * 50)
            case "system exit":
                sys.exit(0)
            case "hang":
                time.sleep(600)
            case "hang in C":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                threading.Lock().acquire() and threading.Event().wait()
            case "object":
                return Trap(marker)
            case "deep":
                inside: Any = []
                for _ in range(10_000):
                    inside = [inside]
                return inside
            case "garbage":
                _to_pipes(b"\x00\x00\x00\x10" + bytes(16))
                time.sleep(0.2)
                return 1
            case "announced":
                _to_pipes(b"\x00\x00\x10\x00" + b"x")
                time.sleep(600)
            case "huge":
                _to_pipes(b"\xff\xff\xff\xff" + (1 << 60).to_bytes(8, "big"))
                time.sleep(600)
            case "fork":
                if not os.fork():
                    time.sleep(600)
                os._exit(3)
            case "daemon":
                if not os.fork():
                    os.setsid()
                    if not os.fork():
                        time.sleep(600)
                    os._exit(0)
            case "noise":
                for stream in (1, 2):
                    os.write(stream, b"\xff\x00garbage\n" * 100)
            case "closed":
                os.closerange(3, 64)
                time.sleep(600)
            case "leak":
                kept = [bytearray(64 << 20) for _ in range(100)]
                for one in kept:
                    one[::4096] = bytes(len(one[::4096]))
                time.sleep(600)
        return 1

    return answer


def _to_pipes(raw: bytes) -> None:
    """Write to every socket or pipe that this process has inherited."""
    for number in range(3, 32):
        try:
            if "socket" in os.readlink(f"/proc/self/fd/{number}"):
                os.write(number, raw)
        except OSError:
            continue


class Trap:
    """Were it unpickled, it would write a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


HOWS = (
    "crash", "exit", "raise", "system exit", "hang", "hang in C", "object", "deep", "garbage",
    "announced", "huge", "fork", "daemon", "noise", "closed", "leak",
)  # fmt: skip


def contestants(random: Random, folder: Path) -> Attempt:
    """A process that crashes, hangs, leaks, forks, prints garbage or sends something else."""
    how, marker = random.choice(HOWS), folder / "executed"

    def attempt() -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        kept = os.dup(1), os.dup(2)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            resource_tracker.ensure_running()  # which stays for the life of this process
            before = {one.pid for one in process_tree.of(os.getpid())}
            with Worker(misbehaving, how, str(marker), memory=1 << 30) as worker:
                try:
                    answer = worker.ask(patience=4.0)
                    expect(how in ("noise", "daemon", "garbage"), f"{how} has no answer: {answer}")
                except Failed as failure:
                    expect(str(failure).isprintable(), "the reason is one printable line")
                    expect(len(str(failure)) < 600, "the reason is short")
        finally:
            for number, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, number)
                os.close(copy)
            os.close(null)
        expect(not marker.exists(), "nothing of a contestant's is executed in the parent")
        started = {one.pid for one in process_tree.of(os.getpid())} - before
        until(lambda: not any(alive(pid) for pid in started), 10)

    return attempt


KINDS = (
    Kind("answers of contestants", answers, 800, 80),
    Kind("contestants", contestants, 32, 0, 60.0, 8, False),
)
