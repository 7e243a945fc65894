"""Evaluation: a network's forward program on test images, batch by batch."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pareo.data import Dataset
from pareo.device import Device, current
from pareo.errors import ShapeError
from pareo.nn.network import Sequential
from pareo.spec import Spec
from pareo.training.losses import BinaryCrossEntropy, CrossEntropy, Loss, SquaredError

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
        self,
        parameters: Mapping[str, Any],
        images: Any,
        labels: Any,
        loss: Loss = CrossEntropy(),  # noqa: B008  (frozen)
    ) -> tuple[float, float | None]:
        """The mean loss, and the share of images that are classified correctly.

        The loss is without smoothing and class weights. Targets have no such share: it is None.
        """
        outputs = self.logits(parameters, images)
        if isinstance(loss, CrossEntropy):
            return score(outputs, labels)
        found = target_loss(outputs, labels, loss)
        return found, score(outputs, labels)[1] if loss.takes_classes else None


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


def target_loss(outputs: Any, targets: Any, loss: Loss) -> float:
    """The mean loss of outputs (N, targets), in float64.

    >>> target_loss(np.array([[1.0]]), np.array([3.0]), SquaredError())
    4.0
    """
    x = np.asarray(outputs, np.float64)
    if loss.takes_classes:
        with Device("vectorized"):
            return float(loss(x, np.asarray(targets)))
    y = np.asarray(targets, np.float64).reshape(x.shape)
    if isinstance(loss, SquaredError):
        return float(np.mean((x - y) ** 2))
    if isinstance(loss, BinaryCrossEntropy):
        return float(np.mean(np.logaddexp(0, x) - x * y))
    with Device("vectorized"):
        return float(loss(x, y))


class Model(Protocol):
    """A network with its weights: a `Result`, or a `Checkpoint`."""

    network: Sequential

    @property
    def weights(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Evaluation:
    """How well a network does on the test set of its data.

    loss:      the mean cross-entropy, or the mean squared error of targets
    accuracy:  the share of images whose class has the largest output; None for targets
    top5:      the share of images whose class has one of the five largest outputs
    confusion: (classes, classes): how many images of a class, the row, were taken for which class
    images:    how many there were
    """

    loss: float
    accuracy: float | None
    top5: float | None
    confusion: NDArray[np.int64] | None
    images: int


def evaluate(
    model: "Model | str | os.PathLike[str]",
    data: Dataset,
    *,
    device: Device | str | None = None,
    batch_size: int = LEAST_BATCH,
    loss: Loss | None = None,
) -> Evaluation:
    """Test a network on the test set of a dataset.

    Args:
        model: a `Result` of `fit`, a `Checkpoint`, or the path of one. Where it has a moving
            average of its parameters, this is tested.
        data: of which `test_images` and `test_labels` are used.
        device: where to run, by name or as a `Device`; None is the one in scope.
        batch_size: of the images that are computed at a time.
        loss: for targets; None is the squared error.

    Example:
        >>> from pareo.data import load
        >>> from pareo.nn import networks
        >>> from pareo.training import fit
        >>> data = load("synthetic:16:3:120")
        >>> found = evaluate(fit(networks.mlp([16, 8, 3]), data, epochs=9, batch_size=20), data)
        >>> found.accuracy, found.confusion.shape
        (1.0, (3, 3))
    """
    if isinstance(model, (str, os.PathLike)):
        from pareo.training.checkpoint import load

        model = load(model)
    if not hasattr(model, "weights"):
        given = type(model).__name__
        raise ShapeError(f"evaluate expects a result of fit, a checkpoint or its path; got {given}")
    network, weights = model.network, model.weights
    if not len(data.test_images):
        raise ShapeError(f"evaluate expects data with a test set; {data.name} has none")
    place = Device(device) if isinstance(device, str) else device or current()
    dtype = next(iter(weights.values())).dtype if weights else np.dtype("float32")
    images = as_inputs(network, data.test_images, dtype)
    outputs = Evaluator(network, place, batch_size, dtype).logits(weights, images)
    labels = data.test_labels
    if data.has_targets:
        wrong = target_loss(outputs, labels, loss or SquaredError())
        return Evaluation(wrong, None, None, None, len(images))
    if labels.max() >= network.classes:
        raise ShapeError(
            f"{network.name} has {network.classes} classes; a label of the data is {labels.max()}"
        )
    mean, right = score(outputs, labels)
    confusion = np.zeros((network.classes, network.classes), np.int64)
    np.add.at(confusion, (labels, outputs.argmax(axis=1)), 1)
    return Evaluation(mean, right, top(outputs, labels, 5), confusion, len(images))


def top(logits: Any, labels: Any, count: int) -> float:
    """The share of rows whose label has one of the `count` largest outputs.

    Of equal outputs the first counts as the largest, as in `argmax`.

    >>> top(np.array([[3.0, 1.0, 2.0], [1.0, 2.0, 3.0]]), np.array([2, 0]), 2)
    0.5
    """
    own = logits[np.arange(len(labels)), labels][:, None]
    before = np.arange(logits.shape[1]) < np.asarray(labels)[:, None]
    larger = (logits > own).sum(axis=1) + ((logits == own) & before).sum(axis=1)
    return float(np.mean(larger < count))
