"""Processes that are asked: Ctrl-C on a terminal is not for them, not even while they start."""

import os
import signal
import subprocess
import sys
import time
from operator import attrgetter
from pathlib import Path

import pytest

from pareo.lab.processes import Worker


def test_a_process_that_starts_hears_no_interrupt() -> None:
    with Worker(attrgetter, "real") as worker:
        for _ in range(40):
            os.kill(worker._process.pid, signal.SIGINT)
            time.sleep(0.01)
        assert worker.ask(2.5) == 2.5
        os.kill(worker._process.pid, signal.SIGINT)
        assert worker.ask(1.5) == 1.5
    assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == set()


# A Ctrl-C that another thread takes comes while one of multiprocessing's own functions runs.
INTERRUPTED = """
import multiprocessing.util as util, operator, os, signal, sys, threading, time
from pareo.lab.processes import Worker
name, only = sys.argv[1:]
function = getattr(util, name)

def interrupted(*args):
    result = function(*args)
    if only in str(args):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
    return result

def work():
    with Worker(operator.attrgetter, "real") as worker:
        worker.ask(2.5)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    setattr(util, name, interrupted)
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    try:
        work()
        print("nobody was interrupted")
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize(
    ("function", "only"),
    [
        ("spawnv_passfds", "spawn_main"),  # the process is there, and has no orders yet
        ("close_fds", ""),  # it is gone, and collected
    ],
)
def test_no_interrupt_is_lost_and_none_leaves_a_process_without_orders(
    tmp_path: Path, function: str, only: str
) -> None:
    (tmp_path / "script.py").write_text(INTERRUPTED)
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py", function, only],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout == "interrupted\n"
    assert done.stderr == ""
