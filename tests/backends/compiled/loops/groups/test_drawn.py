"""Drawn networks in the loop over groups of images: three steps against float64."""

from itertools import islice

import pytest
from fuzzing.networks import check_network
from fuzzing.three_steps import three_steps

from pareo import Device
from pareo.backends.compiled.loops.groups.loop import GroupLoop
from pareo.lab.arena.draw import Batches, drawn
from pareo.training.step import Step

SEED = 61  # whose first small networks have batch norm, factors, groups and dilation
COUNT, FLOPS = 4, 3_000_000  # of a step
BATCHES = Batches((8, 24))


@pytest.mark.slow
def test_three_steps() -> None:
    """Losses, parameters and state; other sizes of groups are in `lab/arena/test_training`."""
    every = (drawn(SEED, index, ["cnn"], BATCHES) for index in range(1000))
    for one in islice((one for one in every if one.flops <= FLOPS), COUNT):
        try:
            loop = Step(one.network, one.batch, Device("compiled"))._loop
            assert isinstance(loop, GroupLoop)
            check_network(three_steps(one), "compiled")
        except Exception as error:
            error.add_note(f"seed {SEED}, index {one.index}: {one}")
            raise
