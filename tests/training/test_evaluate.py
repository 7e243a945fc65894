"""Testing a network: what it gives depends on its parameters' names, not on their order."""

import numpy as np
import pytest

from pareo import Device
from pareo.nn import networks
from pareo.training.evaluate import Evaluator

pytestmark = pytest.mark.smoke


def test_parameters_may_come_in_any_order():
    network = networks.papers_cnn()
    parameters = network.initialise(seed=1)
    shuffled = dict(sorted(parameters.items(), reverse=True))
    assert list(shuffled) != list(parameters)
    images = np.random.default_rng(0).random((5, 1, 28, 28), np.float32)
    forward = Evaluator(network, Device("vectorized"), batch=4)
    np.testing.assert_array_equal(
        forward.logits(shuffled, images), forward.logits(parameters, images)
    )
