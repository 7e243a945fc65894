"""The settings of a run, checked before anything starts."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from pareo.errors import DataError
from pareo.training import losses, optimizers, schedules
from pareo.training.augmentation import Augmentation
from pareo.training.checks import SettingError, real, whole, word
from pareo.training.losses import CrossEntropy, Loss
from pareo.training.optimizers import SGD, Optimizer
from pareo.training.recipe import Recipe
from pareo.training.schedules import CosineEpochs, Schedule

__all__ = [
    "PRECISIONS",
    "SCHEDULES",
    "SettingError",
    "Settings",
    "Shortcuts",
    "from_plain",
    "whole",
]

PRECISIONS = ("float32", "float64", "tf32", "bfloat16")
SCHEDULES = ("constant", "cosine", "cosine-epochs", "onecycle")  # those that need no number
FIRST_FIELDS = (  # those of version 0.2
    "batch_size", "rate", "momentum", "decay", "seed", "precision", "schedule", "epochs", "order",
)  # fmt: skip


class Shortcuts(TypedDict, total=False):
    """The settings as keyword arguments of `fit`."""

    batch_size: int
    rate: float
    momentum: float
    decay: float
    seed: int
    precision: str
    schedule: Schedule | str
    order: int | None
    optimizer: Optimizer | str
    decay_biases: bool
    clip: float | None
    loss: Loss | str
    smoothing: float
    class_weights: Sequence[float] | None
    average: float
    augment: Augmentation | str
    train_only: Sequence[str] | str
    validation: float


@dataclass(frozen=True, init=False)
class Settings:
    """The settings that, with network, data and device, determine every bit of a run.

    batch_size:    images in one step
    rate:          the learning rate
    momentum:      that of the optimizer, if it is `SGD`
    decay:         weight decay
    seed:          of the initial weights, the order of the images, dropout and augmentation
    precision:     'float32' or 'float64'; on 'cuda' also 'tf32' or 'bfloat16' for matrix products
    schedule:      of the rate, an object or its text: see `pareo.training.schedules`
    epochs:        how many there are in all, where the schedule depends on it; otherwise None
    order:         the seed of the order of the images; None is `seed`
    optimizer:     an object or its text: see `pareo.training.optimizers`
    decay_biases:  whether weight decay applies to biases and normalisations, too
    clip:          the largest norm of all gradients together; larger ones are scaled down
    loss:          an object or its name: see `pareo.training.losses`
    smoothing:     of labels: the share of each that is spread evenly over all classes
    class_weights: how much an example of each class counts
    average:       the share that an exponential moving average of the parameters keeps in each
                   step, such as 0.999; 0 for none. The average is what is tested.
    augment:       random changes to the images, such as 'flip,crop:4,cutout:8'
    train_only:    the starts of the paths of the layers to train, such as 'fc' or '12.'; the others
                   keep their parameters and their state
    validation:    the share of the training images that is set aside, and tested instead of the
                   test set after each epoch

    >>> Settings(rate=0.5).batch_size
    128
    >>> Settings(rate=-1)
    Traceback (most recent call last):
    pareo.training.checks.SettingError: fit expects a rate above 0; got -1
    """

    batch_size: int
    rate: float
    momentum: float
    decay: float
    seed: int
    precision: str
    schedule: Schedule
    epochs: int | None
    order: int | None
    optimizer: Optimizer
    decay_biases: bool
    clip: float | None
    loss: Loss
    smoothing: float
    class_weights: tuple[float, ...] | None
    average: float
    augment: Augmentation
    train_only: tuple[str, ...]
    validation: float

    def __init__(
        self,
        batch_size: int = 128,
        rate: float = 0.1,
        momentum: float = 0.0,
        decay: float = 0.0,
        seed: int = 0,
        precision: str = "float32",
        schedule: Schedule | str = "constant",
        epochs: int | None = None,
        order: int | None = None,
        optimizer: Optimizer | str = "sgd",
        decay_biases: bool = False,
        clip: float | None = None,
        loss: Loss | str = "cross-entropy",
        smoothing: float = 0.0,
        class_weights: Sequence[float] | None = None,
        average: float = 0.0,
        augment: Augmentation | str = "",
        train_only: Sequence[str] | str = (),
        validation: float = 0.0,
    ) -> None:
        real("a rate above 0", rate, lambda value: value > 0)
        real("a decay of 0 or more", decay, lambda value: value >= 0)
        real("an average from 0 to below 1", average, lambda value: 0 <= value < 1)
        real("a validation share from 0 to below 1", validation, lambda value: 0 <= value < 1)
        if clip is not None:
            real("a clip above 0", clip, lambda value: value > 0)
        word("precision", precision, PRECISIONS)
        if not isinstance(decay_biases, bool):
            raise SettingError(f"fit expects decay_biases of True or False; got {decay_biases!r}")
        falling = schedule if isinstance(schedule, Schedule) else schedules.parse(schedule)
        rule = _optimizer(optimizer, momentum)
        error = _loss(loss, smoothing, class_weights)
        exact = error if isinstance(error, CrossEntropy) else CrossEntropy()
        found: dict[str, Any] = {
            "batch_size": whole("batch_size", batch_size, 1),
            "rate": rate,
            "momentum": rule.momentum if isinstance(rule, SGD) else 0.0,
            "decay": decay,
            "seed": whole("seed", seed, 0),
            "precision": precision,
            "schedule": falling,
            "epochs": _epochs(epochs) if falling.needs_epochs else None,
            "order": None if order is None else whole("order", order, 0),
            "optimizer": rule,
            "decay_biases": decay_biases and decay > 0,
            "clip": clip,
            "loss": error,
            "smoothing": exact.smoothing,
            "class_weights": exact.class_weights,
            "average": average,
            "augment": Augmentation.parse(augment),
            "train_only": _paths(train_only),
            "validation": validation,
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    @property
    def dtype(self) -> str:
        """The dtype of parameters and images: float32, unless everything is float64.

        >>> Settings(precision="tf32").dtype
        'float32'
        """
        return "float64" if self.precision == "float64" else "float32"

    @property
    def order_seed(self) -> int:
        """The seed of the order of the images: `order`, or else `seed`.

        >>> Settings(seed=3).order_seed, Settings(seed=3, order=7).order_seed
        (3, 7)
        """
        return self.seed if self.order is None else self.order

    def rates(self, first: int, count: int, per_epoch: int) -> NDArray[np.float64]:
        """The rates of `count` steps from step `first` of the run; an epoch has `per_epoch`.

        >>> Settings(rate=1.0, schedule="step:1:0.5").rates(first=1, count=3, per_epoch=2)
        array([1. , 0.5, 0.5])
        """
        if self.schedule.needs_epochs and self.epochs is None:
            raise SettingError(f"fit expects epochs with the schedule {self.schedule}; got None")
        return self.schedule.rates(self.rate, first, count, per_epoch, self.epochs or 1)

    def rate_in(self, epoch: int) -> float:
        """The rate of an epoch, counted from 0, for a schedule that changes it only between epochs.

        >>> falling = Settings(rate=1.0, schedule="cosine-epochs", epochs=4)
        >>> [round(falling.rate_in(epoch), 2) for epoch in range(4)]
        [0.12, 0.85, 0.5, 0.15]
        """
        if not self.schedule.steady:
            raise SettingError(
                f"the schedule {self.schedule} changes the rate in each step, which this way of "
                "training does not do"
            )
        return float(self.rates(epoch, 1, 1)[0])

    @property
    def recipe(self) -> Recipe:
        """How one step trains the network."""
        return Recipe(
            optimizer=self.optimizer,
            decay=self.decay,
            decay_biases=self.decay_biases,
            loss=self.loss,
            clip=self.clip,
            augment=self.augment or None,
            average=self.average or None,
            train_only=self.train_only or None,
        )

    def changed(self, **changes: Any) -> "Settings":
        """The settings with some changed, as `fit` changes them by its shortcuts.

        A new optimizer brings its own momentum, and a new loss its own smoothing and weights.

        >>> Settings(momentum=0.9).changed(optimizer="adam").momentum
        0.0
        >>> str(Settings(optimizer="nesterov").changed(momentum=0.5).optimizer)
        'nesterov:0.5'
        """
        known = {field.name for field in fields(self)}
        for name in changes:
            if name not in known:
                raise SettingError(
                    f"fit has no setting {name!r}; it has {', '.join(sorted(known))}"
                )
        values = {name: getattr(self, name) for name in known}
        if "optimizer" in changes:
            values["momentum"] = 0.0
        elif "momentum" in changes and isinstance(self.optimizer, SGD):
            nesterov = self.optimizer.nesterov and bool(changes["momentum"])
            values["optimizer"] = SGD(changes["momentum"], nesterov)
        if "loss" in changes:
            values |= {"smoothing": 0.0, "class_weights": None}
        elif {"smoothing", "class_weights"} & set(changes) and self.loss.name == CrossEntropy.name:
            values["loss"] = CrossEntropy.name
        return Settings(**values | changes)

    def plain(self) -> dict[str, Any]:
        """The settings as values that JSON can represent."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("schedule", "optimizer", "augment"):
            found[name] = str(found[name])
        found["loss"] = self.loss.name if losses.is_pareos(self.loss) else self.loss.plain()
        found["train_only"] = list(self.train_only)
        if self.class_weights is not None:
            found["class_weights"] = list(self.class_weights)
        return found


def _epochs(given: int | None) -> int | None:
    return None if given is None else whole("epochs", given, 1)


def _optimizer(given: Optimizer | str, momentum: float) -> Optimizer:
    """The optimizer, with the momentum if that was set apart from it."""
    real("a momentum from 0 to below 1", momentum, lambda value: 0 <= value < 1)
    if isinstance(given, str) and momentum and given in ("sgd", "nesterov"):
        return SGD(momentum, nesterov=given == "nesterov")
    rule = given if isinstance(given, Optimizer) else optimizers.parse(given)
    if not momentum:
        return rule
    if not isinstance(rule, SGD):
        raise SettingError(f"fit expects no momentum with {rule.name}; got {momentum}")
    if not rule.momentum:
        return SGD(momentum)
    if rule.momentum != momentum:
        raise SettingError(f"fit expects one momentum; got {momentum} and {rule}")
    return rule


def _loss(given: Loss | str, smoothing: float, weights: Sequence[float] | None) -> Loss:
    """The loss, with smoothing and weights if those were set apart from it."""
    if isinstance(given, dict):  # one of the user's own, in a checkpoint
        given = losses.from_plain(given)
    loss = given if isinstance(given, Loss) else losses.by_name(given)
    apart = CrossEntropy(smoothing, weights)  # type: ignore[arg-type]  # any sequence
    if apart in (loss, CrossEntropy()):
        return loss
    if loss != CrossEntropy():
        raise SettingError(f"fit expects smoothing and class_weights once; got {apart} and {loss}")
    return apart


def _paths(given: Sequence[str] | str) -> tuple[str, ...]:
    """The starts of paths, from a list or from a text with commas."""
    found = tuple(part.strip() for part in given.split(",")) if isinstance(given, str) else given
    if given == "":
        return ()
    if not isinstance(found, (list, tuple)) or not all(p and isinstance(p, str) for p in found):
        raise SettingError(f"fit expects train_only such as 'fc' or ['3', '4']; got {given!r}")
    return tuple(found)


def from_plain(found: Any, file: object) -> Settings:
    """The settings in a checkpoint; anything else raises `DataError`.

    >>> from_plain(Settings(rate=0.5).plain(), "x.safetensors").rate
    0.5
    """
    if not found:
        raise DataError(f"{file}: holds only weights, no run to resume")
    if set(found) == set(FIRST_FIELDS):
        found = _of_first_version(found)
    if set(found) != {field.name for field in fields(Settings)}:
        names = ascii(", ".join(found))[1:200]
        raise DataError(f"{file}: its settings are not those of a run: {names}")
    try:
        return Settings(**found)
    except (SettingError, TypeError, ValueError, ArithmeticError) as error:
        said = " ".join(str(error).split())[:300]
        raise DataError(f"{file}: its settings are not those of a run: {said}") from error


def _of_first_version(found: dict[str, Any]) -> dict[str, Any]:
    """The settings in a checkpoint of version 0.2, in which every parameter decayed."""
    schedule = found["schedule"]
    if schedule == "cosine":
        schedule = CosineEpochs.name
    usual = {name: value for name, value in Settings().plain().items() if name not in found}
    if found["momentum"]:
        usual["optimizer"] = "sgd"
    return {**usual, **found, "schedule": schedule, "decay_biases": True}
