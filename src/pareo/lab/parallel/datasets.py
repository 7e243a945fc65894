"""The images that strategies train on: whole batches, enough for a turn of some seconds."""

from dataclasses import replace

import numpy as np

from pareo.data import Dataset, load
from pareo.nn.network import Sequential
from pareo.training.step import step_program

CORE = 2e10  # FLOP/s, to estimate how many images a turn needs


def whole_batches(data: Dataset, batch: int, images: int) -> Dataset:
    """The first of so many images that make whole batches, and all test images."""
    count = min(images, len(data.images)) // batch * batch
    return replace(data, images=data.images[:count], labels=data.labels[:count])


def data_for(network: Sequential, batch: int, seconds: float) -> Dataset:
    """Whole batches that one worker trains on for about so many seconds, and some test images.

    >>> from pareo.nn import networks
    >>> len(data_for(networks.mlp("small"), 128, 0.1).images)
    1792
    """
    steps = max(4, round(seconds * CORE / step_program(network, batch).flops))
    count = steps * batch
    if network.inputs == (1, 28, 28):
        data = load("mnist").as_float()
    else:
        sizes = "x".join(map(str, network.inputs))
        enough = count + max(batch, count // 6)
        data = _undivided(load(f"synthetic:{sizes}:{network.classes}:{enough}").as_float(), count)
    found = whole_batches(data, batch, count)
    tests = max(batch, len(found.images) // 6)
    return replace(
        found, test_images=found.test_images[:tests], test_labels=found.test_labels[:tests]
    )


def _undivided(data: Dataset, count: int) -> Dataset:
    """The same images, the first `count` to train on and the others to test with."""
    images = np.concatenate([data.images, data.test_images])
    labels = np.concatenate([data.labels, data.test_labels])
    return Dataset(
        data.name, images[:count], labels[:count], images[count:], labels[count:], data.classes
    )
