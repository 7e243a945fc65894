"""Networks of the arena, with data for three steps."""

from functools import cached_property
from typing import Any

import numpy as np
from fuzzing.networks import Drawn as Fuzzed
from fuzzing.networks import Trained

from pareo.lab.arena.draw import Drawn
from pareo.training.recipe import Recipe

STEPS = 3


class ThreeSteps(Trained):
    """A network with data for three steps."""

    @cached_property
    def data(self) -> tuple[Any, Any, Any]:
        """Images, labels, and which of them each step takes."""
        random = np.random.default_rng(self.seed)
        network, batch = self.drawn.network, self.drawn.batch
        images = random.standard_normal((STEPS * batch, *network.inputs)).astype("float32")
        labels = random.integers(0, network.classes, len(images))
        return images, labels, random.permutation(len(images)).reshape(STEPS, batch)


def three_steps(one: Drawn) -> Trained:
    """A drawn network, to be trained at its own rate."""
    return ThreeSteps(Fuzzed(one.network, one.batch, Recipe(), one.rate), one.index)
