"""Losses: from the outputs of a network and the labels of a batch to the number to minimise."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import DTypeLike

import pareo.operators as op
from pareo.array import Array
from pareo.spec import Spec
from pareo.training.checks import SettingError, real

_K = TypeVar("_K", bound="type[Loss]")


class Loss(ABC):
    """A loss: the mean over a batch, in operators that have gradients."""

    name: ClassVar[str]

    @abstractmethod
    def targets(self, batch: int, outputs: int, dtype: DTypeLike = "float32") -> Spec:
        """The labels of a batch, for a network with so many outputs; `dtype` is the network's."""

    @abstractmethod
    def __call__(self, outputs: Array, labels: Array) -> Array:
        """The loss of a batch, one number; on symbols it records, on arrays it runs."""

    @property
    def takes_classes(self) -> bool:
        """Whether labels are classes, by their numbers, rather than targets."""
        return self.targets(1, 2).dtype.kind in "iu"

    @property
    def weighted(self) -> bool:
        """Whether examples count differently, so that the share of a part depends on its labels."""
        return False

    def weight(self, labels: Any) -> float:
        """How much the examples with these labels count together."""
        return float(len(labels))

    def part(self, outputs: Array, labels: Array, whole: Any) -> Array:
        """The term of some examples in the loss of a batch whose `weight` is `whole`.

        >>> loss, outputs, labels = SquaredError(), np.ones((3, 1)), np.zeros((3, 1))
        >>> float(loss.part(outputs[:1], labels[:1], 3) + loss.part(outputs[1:], labels[1:], 3))
        1.0
        """
        rows = len(labels) if isinstance(labels, np.ndarray) else labels.shape[0]
        mean = self(outputs, labels)
        return mean if rows == whole else op.scale(rows / whole, mean)

    def plain(self) -> dict[str, Any]:
        """The loss as values that JSON can represent: its name and its numbers.

        >>> CrossEntropy(smoothing=0.1).plain()
        {'name': 'cross-entropy', 'smoothing': 0.1, 'class_weights': None}
        """
        numbers: dict[str, Any] = asdict(self) if is_dataclass(self) else {}
        plain = {key: list(v) if isinstance(v, tuple) else v for key, v in numbers.items()}
        return {"name": self.name, **plain}


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Cross-entropy of logits (N, classes) and labels (N,), the classes' numbers.

    smoothing:      the share of a label that is spread evenly over all classes
    class_weights:  how much an example of each class counts; None for 1

    >>> float(CrossEntropy()(np.zeros((1, 2)), np.array([1])).round(3))
    0.693
    """

    smoothing: float = 0.0
    class_weights: tuple[float, ...] | None = None
    name: ClassVar[str] = "cross-entropy"

    def __post_init__(self) -> None:
        real("a smoothing from 0 to below 1", self.smoothing, lambda value: 0 <= value < 1)
        if self.class_weights is not None:
            weights = _numbers(self.class_weights)
            object.__setattr__(self, "class_weights", weights)
            for weight in weights:
                real("class_weights of 0 or more", weight, lambda value: value >= 0)
            if not any(weights):
                raise SettingError("fit expects class_weights that are not all 0")

    @property
    def takes_classes(self) -> bool:
        return True

    def targets(self, batch: int, outputs: int, dtype: DTypeLike = "float32") -> Spec:
        if self.class_weights is not None and len(self.class_weights) != outputs:
            raise SettingError(
                f"fit expects class_weights for {outputs} classes; got {len(self.class_weights)}"
            )
        return Spec((batch,), "int64", batch=0)

    def __call__(self, outputs: Array, labels: Array) -> Array:
        if self.class_weights is not None:
            return self._weighted(outputs, labels, np.array(self.class_weights, outputs.dtype))
        exact = op.cross_entropy(outputs, labels)
        if not self.smoothing:
            return exact
        even = op.mean(op.log_softmax(outputs))
        return op.sub(op.scale(1 - self.smoothing, exact), op.scale(self.smoothing, even))

    @property
    def weighted(self) -> bool:
        return self.class_weights is not None

    def weight(self, labels: Any) -> float:
        if self.class_weights is None:
            return super().weight(labels)
        return float(np.sum(np.array(self.class_weights)[labels]))

    def part(self, outputs: Array, labels: Array, whole: Any) -> Array:
        if self.class_weights is None:
            return super().part(outputs, labels, whole)
        weights = np.array(self.class_weights, outputs.dtype)
        return op.div(op.scale(-1.0, self._total(outputs, labels, weights)), whole)

    def _weighted(self, outputs: Array, labels: Array, weights: Any) -> Array:
        """The sum of the weighted terms of the batch, divided by the sum of its labels' weights."""
        total = self._total(outputs, labels, weights)
        return op.div(op.scale(-1.0, total), op.sum(op.take(weights[:, None], labels)))

    def _total(self, outputs: Array, labels: Array, weights: Any) -> Array:
        shares = (1 - self.smoothing) * np.diag(weights) + self.smoothing / len(weights) * weights
        rows = op.take(np.ascontiguousarray(shares, outputs.dtype), labels)
        return op.sum(op.hadamard(rows, op.log_softmax(outputs)))


def _numbers(values: Any) -> tuple[float, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, (Sequence, np.ndarray)):
        raise SettingError(f"fit expects class_weights, one number for each class; got {values!r}")
    plain = values.tolist() if isinstance(values, np.ndarray) else values
    return tuple(value.item() if isinstance(value, np.number) else value for value in plain)


@dataclass(frozen=True)
class SquaredError(Loss):
    """The mean of (output - label) squared, for regression: labels (N, outputs).

    >>> float(SquaredError()(np.array([[1.0]]), np.array([[3.0]])))
    4.0
    """

    name: ClassVar[str] = "squared-error"

    def targets(self, batch: int, outputs: int, dtype: DTypeLike = "float32") -> Spec:
        return Spec((batch, outputs), dtype, batch=0)

    def __call__(self, outputs: Array, labels: Array) -> Array:
        return op.squared_error(outputs, labels)


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """Cross-entropy of each output alone, for several labels: 0 or 1, or between, (N, outputs).

    The outputs are logits: an output above 0 means that its label applies.

    >>> float(BinaryCrossEntropy()(np.zeros((1, 2)), np.array([[1.0, 0.0]])).round(3))
    0.693
    """

    name: ClassVar[str] = "binary-cross-entropy"

    def targets(self, batch: int, outputs: int, dtype: DTypeLike = "float32") -> Spec:
        return Spec((batch, outputs), dtype, batch=0)

    def __call__(self, outputs: Array, labels: Array) -> Array:
        # Two classes with the logits x/2 and -x/2: accurate for any x, and smooth at 0.
        half = op.reshape(op.scale(0.5, outputs), (*outputs.shape, 1))
        logs = op.log_softmax(op.concat([half, op.scale(-1.0, half)], axis=-1))
        applies = op.reshape(labels, (*labels.shape, 1))
        pairs = op.concat([applies, op.sub(1.0, applies)], axis=-1)
        count = int(np.prod(outputs.shape))
        return op.scale(-1 / count, op.sum(op.hadamard(pairs, logs)))


KINDS: dict[str, Any] = {
    kind.name: kind for kind in (CrossEntropy, SquaredError, BinaryCrossEntropy)
}


def register(kind: _K) -> _K:
    """Let checkpoints and `--loss` name a loss of your own: a decorator of a frozen dataclass."""
    own = isinstance(kind, type) and issubclass(kind, Loss) and is_dataclass(kind)
    name = getattr(kind, "name", None)
    if not own or not isinstance(name, str):
        raise SettingError(f"register expects a dataclass that is a Loss with a name; got {kind!r}")
    if KINDS.get(name, kind).__module__ == __name__:
        raise SettingError(f"pareo has a loss that is called {name!r}")
    KINDS[name] = kind
    return kind


def is_pareos(loss: Loss) -> bool:
    """Whether a loss is one of pareo, not one of the user's own."""
    return type(loss) in (CrossEntropy, SquaredError, BinaryCrossEntropy)


def by_name(name: str) -> Loss:
    """The loss of a name.

    >>> by_name("squared-error")
    SquaredError()
    """
    if not isinstance(name, str) or name not in KINDS:
        known = " or ".join((", ".join(list(KINDS)[:-1]), list(KINDS)[-1]))
        raise SettingError(f"fit expects a loss of {known}; got {name!r}")
    found: Loss = KINDS[name]()
    return found


def from_plain(found: Any) -> Loss:
    """The loss that `plain` described; anything else raises `SettingError`.

    >>> from_plain(CrossEntropy(class_weights=(1.0, 2.0)).plain())
    CrossEntropy(smoothing=0.0, class_weights=(1.0, 2.0))
    """
    rest = dict(found) if isinstance(found, dict) else {}
    kind = KINDS.get(str(rest.pop("name", None)))
    try:
        if kind is None:
            raise TypeError
        numbers = {key: tuple(v) if isinstance(v, list) else v for key, v in rest.items()}
        made: Loss = kind(**numbers)
        return made
    except TypeError:
        raise SettingError(f"fit expects a loss with its numbers; got {found!r:.200}") from None
