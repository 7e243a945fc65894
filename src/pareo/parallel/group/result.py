"""The result of training one network with several workers, however it was split."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pareo.data import Dataset
from pareo.nn.network import Sequential
from pareo.parallel.group.shared_memory import SharedArrays
from pareo.spec import Spec
from pareo.training import inputs
from pareo.training.checkpoint import averaged
from pareo.training.evaluate import score, target_loss
from pareo.training.losses import CrossEntropy, Loss
from pareo.training.result import DivergenceError
from pareo.training.settings import Settings


class FittedData(NamedTuple):
    """Images and labels in a network's shape and dtype, converted once for all workers."""

    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray

    @classmethod
    def of(cls, network: Sequential, data: Dataset, settings: Settings) -> "FittedData":
        """A dataset's images in the network's shape and dtype, as `fit` takes them."""
        images, labels, test = inputs.parts(network, data, settings)
        return cls(images, labels, *(test or (images[:0], labels[:0])))

    def specs(self, how: str) -> dict[str, Spec]:
        """Specs of the arrays in shared memory, by name; empty if the workers are threads."""
        if how != "processes":
            return {}
        return {name: Spec(a.shape, a.dtype) for name, a in self._asdict().items()}

    def share(self, shared: SharedArrays, how: str) -> None:
        """Copy the arrays into shared memory if the workers are processes."""
        for name in self.specs(how):
            shared[name][...] = getattr(self, name)


class Progress(NamedTuple):
    """A report on a run: the number of steps done, of how many, and the last loss."""

    step: int
    steps: int
    loss: float


class Evaluation(NamedTuple):
    """The seconds of testing, and the mean loss and the accuracy on the test set.

    Targets have no accuracy: it is None.
    """

    seconds: float
    loss: float
    accuracy: float | None


def evaluation(seconds: float, outputs: np.ndarray, labels: np.ndarray, loss: Loss) -> Evaluation:
    """The evaluation of a network's outputs, as `Evaluator` makes it."""
    if isinstance(loss, CrossEntropy):
        return Evaluation(seconds, *score(outputs, labels))
    return Evaluation(seconds, target_loss(outputs, labels, loss), None)


@dataclass(frozen=True)
class WorkerTime:
    """Where one worker's time went, in seconds of its own clock.

    seconds:       from the start of its first step to the end of its last
    busy:          computing
    communication: adding or fetching what others computed
    idle:          waiting for others
    """

    rank: int
    seconds: float
    busy: float
    communication: float
    idle: float


@dataclass
class TrainingResult:
    """A network trained by several workers.

    parameters:      those after the last step, with the state of layers
    slots:           the arrays of the optimizer, by SLOT.PATH, and the moving average if any
    losses, seconds: of each step; the loss is the one before the step
    shares:          where each worker's time went
    exchanged_bytes: bytes that the workers exchange in a step, all together
    predicted:       each worker's predicted share of the work; empty where all are equal
    tested:          seconds, loss and accuracy on the test set; None without one
    """

    network: Sequential
    settings: Settings
    how: str
    workers: int
    parameters: dict[str, np.ndarray]
    slots: dict[str, np.ndarray]
    losses: np.ndarray
    seconds: np.ndarray
    shares: list[WorkerTime]
    exchanged_bytes: int = 0
    predicted: list[float] = field(default_factory=list)
    tested: Evaluation | None = None

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """What was tested: the moving average of the parameters, or else they themselves."""
        return averaged(self.parameters, self.slots)

    @property
    def accuracy(self) -> float | None:
        """The share of the test set that was classified correctly."""
        return self.tested.accuracy if self.tested else None

    @property
    def test_loss(self) -> float | None:
        """The mean loss on the test set."""
        return self.tested.loss if self.tested else None

    @property
    def test_seconds(self) -> float | None:
        """The seconds of testing."""
        return self.tested.seconds if self.tested else None

    @property
    def train_seconds(self) -> float:
        """The seconds of all steps together."""
        return float(np.sum(self.seconds))

    @property
    def measured(self) -> list[float]:
        """Each worker's share of the computing time, to compare with `predicted`."""
        whole = sum(share.busy for share in self.shares) or 1.0
        return [share.busy / whole for share in self.shares]

    def share_of(self, what: str) -> float:
        """The share of all workers' time that was 'busy', 'communication' or 'idle'."""
        whole = sum(share.seconds for share in self.shares) or 1.0
        return sum(getattr(share, what) for share in self.shares) / whole


def copied(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Copies of arrays, by name."""
    return {name: array.copy() for name, array in arrays.items()}


def check_finite(losses: np.ndarray, settings: Settings) -> None:
    """Raise `DivergenceError` if a loss is NaN or infinite, as `fit` does."""
    wrong = np.flatnonzero(~np.isfinite(losses))
    if len(wrong):
        raise diverged(losses[wrong[0]], int(wrong[0]) + 1, settings)


def diverged(loss: float, step: int, settings: Settings) -> DivergenceError:
    """The error for a loss that became NaN or infinite in a step, counted from 1."""
    return DivergenceError(
        f"the loss became {loss} in step {step}: try a rate below {settings.rate:g}"
    )
