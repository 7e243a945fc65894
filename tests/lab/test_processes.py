"""Processes that are asked: Ctrl-C on a terminal is not for them, not even while they start."""

import os
import signal
import time
from operator import attrgetter

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
