"""Evaluation: a network's forward program on test images, batch by batch."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pareo.device import Device
from pareo.errors import ShapeError
from pareo.nn.network import Sequential
from pareo.spec import Spec

LEAST_BATCH = 128
GPU_BYTES = 1 << 25  # of images in one batch, to keep a GPU busy


def as_inputs(network: Sequential, images: Any, dtype: Any, what: str = "images") -> Any:
    """The images as the network takes them: of its shape and dtype, contiguous in memory.

    Pixels of uint8 are scaled from 0..255 to 0..1. Axes of one element may be missing or added,
    and a network with flat inputs takes any shape with as many elements.

    >>> import numpy as np
    >>> from pareo.nn import networks
    >>> as_inputs(networks.papers_cnn(), np.zeros((5, 28, 28), np.float32), "float32").shape
    (5, 1, 28, 28)
    """
    images = np.asarray(images)
    wanted, given = network.inputs, images.shape[1:]
    alike = _wide(wanted) == _wide(given)
    flat = len(_wide(wanted)) <= 1 and int(np.prod(wanted)) == int(np.prod(given))
    if images.ndim < 1 or not (alike or flat):
        raise ShapeError(f"{network.name} expects {what} of shape {wanted}; got {given}")
    if images.dtype.kind not in "biuf":
        raise ShapeError(f"{network.name} expects {what} of numbers; got {images.dtype}")
    if images.dtype == np.uint8:
        images = np.divide(images, 255, dtype=np.dtype(dtype))
    return np.ascontiguousarray(images, dtype).reshape(len(images), *wanted)


def _wide(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def evaluation_batch(network: Sequential, device: Device, batch: int, dtype: Any) -> int:
    """The batch size for testing, given that of training: larger on a GPU if images are small.

    >>> from pareo.nn import networks
    >>> evaluation_batch(networks.papers_cnn(), Device("vectorized"), 32, "float32")
    128
    """
    image = int(np.prod(network.inputs)) * np.dtype(dtype).itemsize
    enough = GPU_BYTES // image if device.name == "cuda" else 0
    return max(LEAST_BATCH, batch, enough)


class Evaluator:
    """A network's forward program for one batch size on one device.

    >>> import numpy as np
    >>> from pareo import Device
    >>> from pareo.nn import networks
    >>> network = networks.mlp([4, 3])
    >>> forward = Evaluator(network, Device("vectorized"), batch=2)
    >>> forward.logits(network.initialise(seed=0), np.zeros((5, 4), np.float32)).shape
    (5, 3)
    """

    def __init__(
        self, network: Sequential, device: Device, batch: int = LEAST_BATCH, dtype: Any = "float32"
    ) -> None:
        self.batch = batch
        self._network = network
        self._dtype = np.dtype(dtype)
        self._device = device
        self._paths = tuple(network.parameters(network.inputs))
        self._run = network.program(batch, dtype).compile(device)

    def logits(self, parameters: Mapping[str, Any], images: Any) -> Any:
        """The outputs of the network for images as `as_inputs` returns them."""
        backend = self._device.backend
        with self._device, backend.scope(self._device):
            # In the program's order: the caller's may differ, as JAX's does.
            weights = {path: backend.to_device(parameters[path]) for path in self._paths}
            out = backend.empty(Spec((len(images), self._network.classes), self._dtype))
            for start in range(0, len(images), self.batch):
                piece = backend.to_device(images[start : start + self.batch])
                rows = len(piece)
                if rows < self.batch:  # the last batch is padded, so that one program is enough
                    piece = self._padded(piece)
                backend.copy(out[start : start + rows], self._run(weights, piece)[:rows])
            return backend.to_host(out)

    def _padded(self, piece: Any) -> Any:
        whole = self._device.backend.empty(Spec((self.batch, *piece.shape[1:]), self._dtype))
        whole[: len(piece)] = piece
        whole[len(piece) :] = 0
        return whole

    def __call__(
        self, parameters: Mapping[str, Any], images: Any, labels: Any
    ) -> tuple[float, float]:
        """The mean cross-entropy, and the share of images that are classified correctly."""
        return score(self.logits(parameters, images), labels)


def score(logits: Any, labels: Any) -> tuple[float, float]:
    """The mean cross-entropy of logits, and the share of rows that are classified correctly.

    >>> import numpy as np
    >>> score(np.array([[5.0, 5.0]]), np.array([0]))
    (0.6931471805599453, 1.0)
    """
    logits = logits.astype(np.float64)
    rows = np.arange(len(labels))
    right = float(np.mean(logits.argmax(axis=1) == labels))
    logits -= logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[rows, labels]
    return float(losses.mean()), right


def probabilities(logits: Any) -> Any:
    """Each row of outputs as probabilities, in float64.

    >>> import numpy as np
    >>> probabilities(np.zeros((1, 2)))
    array([[0.5, 0.5]])
    """
    shifted = np.exp(np.subtract(logits, np.max(logits, axis=1, keepdims=True), dtype=np.float64))
    return shifted / shifted.sum(axis=1, keepdims=True)
