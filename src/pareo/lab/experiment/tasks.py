"""The task that contestants are given, by the name of its network."""

from pareo.data import load
from pareo.lab.contestants import Task, without_dropout
from pareo.nn import networks
from pareo.nn.network import Sequential

LARGE = tuple(networks.SIZED)
# With these learning rates, plain SGD learns MNIST within a few epochs.
RATES = {"papers-cnn": 1.0}
RATE = 0.1
# On synthetic images, 0.01 raises the loss of the large networks from 13 to 200 in one step.
LARGE_RATE = 0.001
# Batch normalisation keeps the loss of a step in bounds. A larger rate moves scales and shifts far
# enough that float32, which stores them, does not hide a wrong gradient.
NORMALISED_RATE = 0.05


def network_of(name: str, size: int) -> Sequential:
    """The named network without Dropout; a large one for images of this many pixels a side."""
    return without_dropout(networks.sized(name, (3, size, size), classes=1000))


def task_for(
    name: str, batch: int, threads: int, size: int = 224, source: str | None = None
) -> Task:
    """The task of training the named network on the data that `pareo train --data` accepts.

    Without a source, networks for images of any size train on synthetic images of the given size.

    >>> task_for("papers-cnn", 128, threads=2).rate
    1.0
    >>> task_for("alexnet", 8, threads=2, source="synthetic:3x64x64:5:60").network.classes
    5
    """
    if source is None:
        network = network_of(name, size)
    else:
        data = load(source)
        network = without_dropout(networks.sized(name, data.shape, data.classes))
    rate = LARGE_RATE if name in LARGE else RATES.get(name, RATE)
    rate = NORMALISED_RATE if network.state else rate
    return Task(network, batch, threads, rate, source=source)
