"""Drawn networks train right: three steps on every device against float64."""

from functools import cache
from itertools import islice

import pytest
from devices import slow_on
from fuzzing.networks import Trained, check_network
from fuzzing.three_steps import three_steps

from pareo.lab.arena.draw import Batches, Drawn, drawn

SEED = 48  # whose small networks have nearly every layer
# How many networks of each kind, and the FLOPs that a step of them has at most.
SMALL = {"mlp": (7, 1_000_000), "cnn": (12, 4_000_000), "mid": (1, 30_000_000)}
PLAIN = 100_000  # that `sequential`, plain loops, is given at most
BATCHES = Batches((2, 6))


@cache
def small() -> list[Drawn]:
    """The first drawn networks of each kind with few FLOPs."""
    found: list[Drawn] = []
    for kind, (count, most) in SMALL.items():
        every = (drawn(SEED, index, [kind], BATCHES) for index in range(1000))
        found += islice((one for one in every if one.flops <= most), count)
    return found


@cache
def trained(number: int) -> Trained:
    return three_steps(small()[number])


@pytest.mark.parametrize("device", slow_on("compiled"))
def test_three_steps(device: str) -> None:
    """Losses, parameters and state after three steps, as a loop and as a program."""
    tested = 0
    for number, one in enumerate(small()):
        if device == "sequential" and one.flops > PLAIN:
            continue
        tested += 1
        try:
            check_network(trained(number), device)
        except Exception as error:
            error.add_note(f"seed {SEED}, index {one.index} on {device}: {one}")
            raise
    assert tested
