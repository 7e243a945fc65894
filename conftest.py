"""What every test may rely on: names in doctests, Ctrl-C, and hypothesis without a clock."""

import gc
import signal
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from pareo import op

# Shared machines: a slow moment is not a failure, and CI must give the same verdict twice.
settings.register_profile("pareo", deadline=None, derandomize=True)
settings.load_profile("pareo")

# Tests that name no device run on NumPy: the default, `compiled`, would compile for most of them.
op.set_mode("vectorized")

# A shell that starts the tests in the background has them, and all that they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Prepare for thousands of tests.

    What they consist of is left out of every later collection of garbage. PyTorch keeps to one
    thread: beside other test processes its threads wait for each other, and tests of networks took
    up to fifty times as long.
    """
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _names(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["np"] = np
    doctest_namespace["op"] = op
