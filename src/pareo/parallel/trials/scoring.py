"""Testing many networks at the same time; free workers take pieces of the test images."""

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pareo.backends.threads import run_concurrently
from pareo.data import Dataset
from pareo.device import Device
from pareo.nn.network import Sequential
from pareo.training.evaluate import Evaluator, as_inputs, score

PIECE = 1000  # images: enough for fast matrix products, few enough for workers to end together

Network = tuple[Sequential, Mapping[str, np.ndarray]]  # with its parameters
Logits = Callable[[int, int], np.ndarray]  # of a network's number, for the piece from an image on


def score_many(
    networks: Sequence[Network],
    data: Dataset,
    workers: int | None = None,
    device: Device | str = "compiled",
) -> list[tuple[float, float]]:
    """The loss and the accuracy of each network on the test images.

    Networks are tested in threads, with a core each; see `Processes.score` for processes.

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
    evaluators = [PieceEvaluators(networks, images, place) for _ in range(workers or place.threads)]
    return score_with(evaluators, networks, data.test_labels)


def score_with(
    workers: Sequence[Logits], networks: Sequence[Network], labels: np.ndarray
) -> list[tuple[float, float]]:
    """Let the workers compute the logits of all pieces, the largest network first; the scores."""
    waiting = deque(_pieces(networks, len(labels)))
    logits = [np.empty((len(labels), network.classes), np.float32) for network, _ in networks]
    errors: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            while (piece := _next_piece(waiting)) is not None:
                number, start = piece
                logits[number][start : start + PIECE] = workers[worker](number, start)
        except BaseException as error:  # Ctrl-C, too: raised when all workers have ended
            errors.append(error)
            waiting.clear()

    run_concurrently(len(workers), work)
    if errors:
        raise errors[0]
    return [score(found, labels) for found in logits]


def _next_piece(waiting: deque[tuple[int, int]]) -> tuple[int, int] | None:
    """Take the next piece; None if none is left."""
    try:
        return waiting.popleft()
    except IndexError:
        return None


def _pieces(networks: Sequence[Network], images: int) -> list[tuple[int, int]]:
    largest = sorted(range(len(networks)), key=lambda number: -networks[number][0].count())
    return list(itertools.product(largest, range(0, images, PIECE)))


class PieceEvaluators:
    """One worker's programs, compiled when first needed; only one thread may use them at a time."""

    def __init__(self, networks: Sequence[Network], images: np.ndarray, device: Device) -> None:
        self._networks = networks
        self._images = images
        self._device = Device(str(device), 1, device.precision)
        self._compiled: dict[int, tuple[Evaluator, np.ndarray]] = {}

    def __call__(self, number: int, start: int) -> np.ndarray:
        """The logits of a network for one piece of the images."""
        network, parameters = self._networks[number]
        if number not in self._compiled:
            batch = min(PIECE, len(self._images))
            images = as_inputs(network, self._images, "float32")
            self._compiled[number] = Evaluator(network, self._device, batch), images
        run, images = self._compiled[number]
        return run.logits(parameters, images[start : start + PIECE])
