"""The task that contestants are given, by the name of its network."""

from dataclasses import replace
from typing import Any

from pareo.errors import PareoError
from pareo.lab.contestants import Task, without_dropout
from pareo.nn import networks
from pareo.nn.layers import Shape
from pareo.nn.network import Sequential
from pareo.training.fitting import fitting
from pareo.training.own import Original, Own, find, is_own
from pareo.training.own_loss import check, loss_of, name_of

LARGE = tuple(networks.SIZED)
# With these learning rates, plain SGD learns MNIST within a few epochs.
RATES = {"papers-cnn": 1.0}
RATE = 0.1
# On synthetic images, 0.01 raises the loss of the large networks from 13 to 200 in one step.
LARGE_RATE = 0.001
# Batch normalisation keeps the loss of a step in bounds. A larger rate moves scales and shifts far
# enough that float32, which stores them, does not hide a wrong gradient.
NORMALISED_RATE = 0.05
ONE_HOT = "the loss {} takes targets: classes become rows of one 1 and zeros"


def check_pixels(pixels: int | None, network: str, data: str | None = None) -> None:
    """Refuse --pixels for a network that takes one size, or with data that has its own."""
    if pixels is not None and (data is not None or network not in LARGE):
        got = network if data is None else f"--data {data}"
        known = ", ".join(LARGE)
        raise PareoError(f"--pixels expects synthetic images for one of {known}; got {got}")


def network_of(name: str, size: int | None = None) -> Sequential:
    """The named network without Dropout; for images of another size than its own if one is given.

    >>> network_of("resnet8").inputs, network_of("resnet8", 64).inputs, network_of("lenet5").inputs
    ((3, 32, 32), (3, 64, 64), (1, 28, 28))
    """
    usual = networks.by_name(name)
    if size is None or name not in networks.SIZED:
        return without_dropout(usual)
    return without_dropout(networks.sized(name, (usual.inputs[0], size, size), usual.classes))


def task_for(
    name: str,
    batch: int,
    threads: int,
    size: int | None = None,
    source: str | None = None,
    shape: Shape | None = None,
    loss: Any = "cross-entropy",
) -> Task:
    """The task of training the named network on the data that `pareo train --data` accepts.

    Without a source, a network that does not fit MNIST trains on synthetic images, of its own size
    unless another is given. One of the user's own (`pareo.training.own`) takes inputs of `shape`.
    A loss is one of `pareo.training.own_loss`.

    >>> task_for("papers-cnn", 128, threads=2).rate
    1.0
    >>> task_for("alexnet", 8, threads=2, source="synthetic:3x64x64:5:60").network.classes
    5
    """
    notes: tuple[str, ...] = ()
    if source is None:
        found = find(name, shape)
    else:
        found, data = fitting(name, source, shape)
        notes = data.notes
    network = without_dropout(found.network)
    if source is None and not is_own(name):
        network = network_of(name, size)
    unlike_mnist = is_own(name) and network.inputs != (1, 28, 28)
    rate = LARGE_RATE if name in LARGE or unlike_mnist else RATES.get(name, RATE)
    rate = NORMALISED_RATE if network.state else rate
    original = _renamed(found, network)
    minimised = loss_of(loss)
    check(minimised, network, batch)
    one_hot = () if minimised.takes_classes else (ONE_HOT.format(name_of(minimised)),)
    return Task(
        network, batch, threads, rate, source=source, original=original,
        notes=(*found.notes, *notes, *one_hot), loss=minimised,
    )  # fmt: skip


def _renamed(own: Own, network: Sequential) -> Original | None:
    """The module of the user's own, with the paths of its weights in the network that races.

    Without Dropout, layers that are called by their numbers have others.
    """
    if own.original is None:
        return None
    before, after = (one.parameters(one.inputs) for one in (own.network, network))
    names = {new: own.original.names[old] for new, old in zip(after, before, strict=True)}
    return replace(own.original, names=names)
