"""Testing many networks at once: pieces of the test images, each taken by whoever is free."""

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pareo.backends.threads import run_concurrently
from pareo.data import Dataset
from pareo.device import Device
from pareo.nn.network import Sequential
from pareo.training.evaluate import Evaluator, as_inputs, score

PIECE = 1000  # images: enough for matrix products at full speed, few enough to end together

Network = tuple[Sequential, Mapping[str, Any]]  # with its parameters
Ask = Callable[[int, int], Any]  # the network of a number about the images from a start: logits


def score_many(
    networks: Sequence[Network],
    data: Dataset,
    workers: int | None = None,
    device: Device | str = "compiled",
) -> list[tuple[float, float]]:
    """The loss and the share of right answers of each network on the test images.

    Networks are tested in threads, a core each; see `Processes.score` for processes.

    Example:
        >>> from pareo.data import load
        >>> from pareo.nn import networks
        >>> network = networks.mlp([16, 8, 3])
        >>> untrained = network, network.initialise(seed=0)
        >>> len(score_many([untrained, untrained], load("synthetic:16:3:120"), workers=2))
        2
    """
    place = Device(device) if isinstance(device, str) else device
    images = data.as_float().test_images
    own = [Askers(networks, images, place) for _ in range(workers or place.threads)]
    return score_with(own, networks, data.test_labels)


def score_with(
    workers: Sequence[Ask], networks: Sequence[Network], labels: Any
) -> list[tuple[float, float]]:
    """Have every piece of the images answered by one of the workers; the largest network first."""
    waiting = deque(_pieces(networks, len(labels)))
    logits = [np.empty((len(labels), network.classes), np.float32) for network, _ in networks]
    errors: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            while (piece := _taken(waiting)) is not None:
                number, start = piece
                logits[number][start : start + PIECE] = workers[worker](number, start)
        except BaseException as error:  # Ctrl-C, too: raised when nobody is at work any more
            errors.append(error)
            waiting.clear()

    run_concurrently(len(workers), work)
    if errors:
        raise errors[0]
    return [score(found, labels) for found in logits]


def _taken(waiting: deque[tuple[int, int]]) -> tuple[int, int] | None:
    """The next piece, which nobody else has; None where none is left."""
    try:
        return waiting.popleft()
    except IndexError:
        return None


def _pieces(networks: Sequence[Network], images: int) -> list[tuple[int, int]]:
    largest = sorted(range(len(networks)), key=lambda number: -networks[number][0].count())
    return list(itertools.product(largest, range(0, images, PIECE)))


class Askers:
    """One worker's programs, compiled when first needed: they serve one thread at a time."""

    def __init__(self, networks: Sequence[Network], images: Any, device: Device) -> None:
        self._networks = networks
        self._images = images
        self._device = Device(str(device), 1, device.precision)
        self._made: dict[int, tuple[Evaluator, Any]] = {}

    def __call__(self, number: int, start: int) -> Any:
        """What a network says to one piece of the images."""
        network, parameters = self._networks[number]
        if number not in self._made:
            batch = min(PIECE, len(self._images))
            images = as_inputs(network, self._images, "float32")
            self._made[number] = Evaluator(network, self._device, batch), images
        run, images = self._made[number]
        return run.logits(parameters, images[start : start + PIECE])
