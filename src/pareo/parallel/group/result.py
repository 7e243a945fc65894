"""What becomes of training one network with several workers, however it was split."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pareo.data import Dataset
from pareo.nn.network import Sequential
from pareo.parallel.group.shared_memory import Shared
from pareo.spec import Spec
from pareo.training.evaluate import as_inputs
from pareo.training.fit import DivergenceError
from pareo.training.settings import Settings


class Data(NamedTuple):
    """Images and labels as a network takes them, fitted once for all workers."""

    images: Any
    labels: Any
    test_images: Any
    test_labels: Any

    @classmethod
    def of(cls, network: Sequential, data: Dataset, dtype: str) -> "Data":
        """A dataset's images in the network's shape and dtype."""
        floats = data.as_float(dtype)
        return cls(
            as_inputs(network, floats.images, dtype), floats.labels,
            as_inputs(network, floats.test_images, dtype), floats.test_labels,
        )  # fmt: skip

    def specs(self, how: str) -> dict[str, Spec]:
        """What they take in shared memory, by their names; nothing where workers are threads."""
        if how != "processes":
            return {}
        return {name: Spec(a.shape, a.dtype) for name, a in self._asdict().items()}

    def share(self, shared: Shared, how: str) -> None:
        """Copy them into shared memory, where workers are processes."""
        for name in self.specs(how):
            shared[name][...] = getattr(self, name)


class Progress(NamedTuple):
    """What a run reports now and then: how many steps are done, of how many, and the last loss."""

    step: int
    steps: int
    loss: float


class Scored(NamedTuple):
    """What came of the test set."""

    seconds: float
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Share:
    """One worker's part in a run, in seconds of its own clock.

    seconds:       from its first step's begin to its last one's end
    busy:          computing
    communication: adding up or fetching what others computed
    idle:          waiting for others
    """

    rank: int
    seconds: float
    busy: float
    communication: float
    idle: float


@dataclass
class Outcome:
    """A network trained by several workers.

    losses, seconds: of each step; the loss is the one before the step
    shares:          where each worker's time went
    shown:           bytes that the workers show each other in a step, all together
    predicted:       each worker's share of the work, as foreseen; empty where it is the same
    tested:          seconds, loss and accuracy on the test set; None without one
    """

    network: Sequential
    settings: Settings
    how: str
    workers: int
    parameters: dict[str, Any]
    velocities: dict[str, Any]
    losses: Any
    seconds: Any
    shares: list[Share]
    shown: int = 0
    predicted: list[float] = field(default_factory=list)
    tested: Scored | None = None

    @property
    def accuracy(self) -> float | None:
        """The share of the test set that was right."""
        return self.tested.accuracy if self.tested else None

    @property
    def test_loss(self) -> float | None:
        """The mean loss on the test set."""
        return self.tested.loss if self.tested else None

    @property
    def test_seconds(self) -> float | None:
        """Seconds of testing."""
        return self.tested.seconds if self.tested else None

    @property
    def train_seconds(self) -> float:
        """Seconds of all steps together."""
        return float(np.sum(self.seconds))

    @property
    def measured(self) -> list[float]:
        """Each worker's share of the computing, to be held against `predicted`."""
        whole = sum(share.busy for share in self.shares) or 1.0
        return [share.busy / whole for share in self.shares]

    def share_of(self, what: str) -> float:
        """The share of all workers' time that was 'busy', 'communication' or 'idle'."""
        whole = sum(share.seconds for share in self.shares) or 1.0
        return sum(getattr(share, what) for share in self.shares) / whole


def check_finite(losses: Any, settings: Settings) -> None:
    """A loss that is no number ends a run, as it does in `fit`."""
    wrong = np.flatnonzero(~np.isfinite(losses))
    if len(wrong):
        raise DivergenceError(
            f"the loss became {losses[wrong[0]]} in step {wrong[0] + 1}: "
            f"try a rate below {settings.rate:g}"
        )
