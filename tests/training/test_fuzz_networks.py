"""Random networks trained on every device against float64; `PAREO_EXPLORE=1` draws new ones."""

import os
import random

import numpy as np
import pytest
from devices import DEVICES
from fuzzing.compare import fault
from fuzzing.networks import Trained, check_network, drawn_network

EXPLORE = "PAREO_EXPLORE" in os.environ
# Among the fixed ones is one that `compiled` writes a loop for, which takes seconds to compile.
FIRST, COUNT = (random.randrange(10**9), 200) if EXPLORE else (4, 12)


@pytest.mark.parametrize("device", DEVICES)
def test_networks(device: str) -> None:
    """Losses, parameters and velocities after two steps, as a loop and as a program.

    `sequential` is plain loops, so it gets a few.
    """
    for seed in range(FIRST, FIRST + (COUNT // 6 if device == "sequential" else COUNT)):
        try:
            check_network(Trained(drawn_network(seed), seed), device)
        except Exception as error:
            error.add_note(f"the network of seed {seed} on {device}: {drawn_network(seed)}")
            raise


def test_a_step_that_is_a_hundredth_off_is_found() -> None:
    """What rounding is allowed is far below what a wrong gradient would do."""
    seen = 0
    for seed in range(FIRST, FIRST + 4):
        trained = Trained(drawn_network(seed), seed)
        for before, right in zip(trained.start.values(), trained.expected[1:], strict=False):
            step = right.value - before
            if right.stable and np.abs(step).max() > 1e-3:
                seen += 1
                wrong = np.asarray(right.value + 0.01 * step, "float32")
                assert fault(wrong, right, "float32"), f"seed {seed}"
    assert seen > 4
