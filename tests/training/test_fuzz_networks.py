"""Random networks trained on every device against float64; `PAREO_EXPLORE=1` draws new ones."""

import os
import random
from functools import cache

import numpy as np
import pytest
from devices import slow_on
from fuzzing.compare import fault
from fuzzing.networks import Trained, check_network, drawn_network
from fuzzing.reference import Expected

EXPLORE = "PAREO_EXPLORE" in os.environ
FIRST = random.randrange(10**9)
# The fixed ones have nearly every layer and optimizer. `compiled` writes a loop for the last, which
# takes seconds to compile.
SEEDS = range(FIRST, FIRST + 200) if EXPLORE else (716, 717, 718, 720, 722, 723, 725, 726, 727)
PLAIN = 50_000  # FLOPs of a step that `sequential`, plain loops, is given at most


@cache
def trained(seed: int) -> Trained:
    """A network, with what is expected of it, for all devices."""
    return Trained(drawn_network(seed), seed)


@pytest.mark.parametrize("device", slow_on("compiled"))
def test_networks(device: str) -> None:
    """Losses, parameters, state and slots after two steps, as a loop and as a program."""
    tested = 0
    for seed in SEEDS:
        if device == "sequential" and (tested == 3 or trained(seed).programs[0].flops > PLAIN):
            continue
        tested += 1
        try:
            check_network(trained(seed), device)
        except Exception as error:
            error.add_note(f"the network of seed {seed} on {device}: {trained(seed).drawn}")
            raise
    assert tested > 2


def test_a_step_that_is_a_hundredth_off_is_found() -> None:
    """What rounding is allowed is far below what a wrong gradient would do."""
    seen = 0
    for seed in SEEDS[-4:]:
        one = trained(seed)
        for before, right in zip(one.start.values(), one.expected[1:], strict=False):
            step = right.value - before
            if right.stable and np.abs(step).max() > 1e-3:
                seen += 1
                wrong = np.asarray(right.value + 0.01 * step, "float32")
                assert fault(wrong, right, "float32"), f"seed {seed}"
    assert seen > 4


def test_a_sign_that_is_wrong_is_found() -> None:
    """One element may jump where noise makes one jump, but not two."""
    right = Expected(np.zeros(6), 0.2, np.array([0.0, 0.2, 0.0, 0.0, 0.0, 0.0]))
    jumped = np.array([0.2, 0.0, 0.0, 0.0, 0.0, 0.0], "float32")
    assert fault(jumped, right, "float32") is None
    assert fault(jumped + jumped[::-1], right, "float32")
