"""Random networks trained on every device against float64; `PAREO_EXPLORE=1` draws new ones."""

import os
import random

import pytest
from devices import DEVICES
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
