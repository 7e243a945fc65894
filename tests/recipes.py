"""Recipes for tests of training steps."""

from pareo.training.optimizers import SGD
from pareo.training.recipe import Recipe


def sgd(momentum: float = 0.0, decay: float = 0.0) -> Recipe:
    """Gradient descent with momentum, and decay of every parameter."""
    return Recipe(SGD(momentum), decay, decay_biases=True)
