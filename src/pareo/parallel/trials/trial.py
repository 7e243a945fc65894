"""A trial, which is one network to train with its settings, and the result of a trial."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.training.augmentation import Augmentation
from pareo.training.checks import whole
from pareo.training.history import Epoch, History
from pareo.training.losses import Loss
from pareo.training.optimizers import SGD, Optimizer
from pareo.training.schedules import Schedule
from pareo.training.settings import Settings


@dataclass(frozen=True)
class Trial:
    """One network to train; the settings have the names that they have in `pareo.training.fit`.

    network: a network, or the name of one (see `pareo networks`)
    seed:    determines its initial weights, its dropout and its augmentation
    order:   the seed that determines the order of the images; None is `seed`

    The others are as in `pareo.training.Settings`.

    >>> Trial("mlp-small", rate=0.05, seed=3).built.count()
    233054
    >>> Trial("mlp-small", rate=0)
    Traceback (most recent call last):
    pareo.training.checks.SettingError: fit expects a rate above 0; got 0
    """

    network: Sequential | str
    rate: float = 0.1
    momentum: float = 0.0
    decay: float = 0.0
    batch_size: int = 128
    epochs: int = 1
    seed: int = 0
    order: int | None = None
    schedule: Schedule | str = "constant"
    optimizer: Optimizer | str = "sgd"
    decay_biases: bool = False
    clip: float | None = None
    loss: Loss | str = "cross-entropy"
    smoothing: float = 0.0
    class_weights: tuple[float, ...] | None = None
    average: float = 0.0
    augment: Augmentation | str = ""
    train_only: tuple[str, ...] | str = ()

    def __post_init__(self) -> None:
        whole("epochs", self.epochs, 1)
        self.settings()
        _ = self.built

    def settings(self, precision: str = "float32") -> Settings:
        """The settings for training."""
        same = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "network"}
        return Settings(**same, precision=precision)

    @property
    def shape(self) -> Hashable:
        """What trials must have in common to train as one population.

        That is the network, the batch size, and what a step does, except for its numbers. Steps
        that a device may run as a loop are apart from others.
        """
        recipe, network = self.settings().recipe, self.built
        rule, declared = recipe.optimizer, network.parameters(network.inputs)
        return (
            network, self.batch_size, type(rule), isinstance(rule, SGD) and rule.nesterov,
            recipe.loss, recipe.augment, recipe.train_only, recipe.clip is None,
            recipe.average is None, recipe.loops(declared),
        )  # fmt: skip

    @property
    def built(self) -> Sequential:
        """The network itself."""
        return networks.by_name(self.network) if isinstance(self.network, str) else self.network

    @property
    def name(self) -> str:
        """The name of the network."""
        return self.network if isinstance(self.network, str) else self.network.name


@dataclass
class Result:
    """The result of a trial.

    how:        the way it was trained: 'threads', 'processes', 'population', ...
    history:    its epochs: losses, accuracies, seconds
    parameters: those after its last epoch; empty if it failed before
    average:    their moving average, if there is one
    seconds:    from its start to its end, including tests
    stopped:    whether `report` ended it early
    error:      why it failed, in one sentence; None if it did not
    """

    trial: Trial
    how: str
    history: History = field(default_factory=History)
    parameters: dict[str, np.ndarray] = field(default_factory=dict)
    seconds: float = 0.0
    stopped: bool = False
    error: str | None = None
    average: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """What was tested: the moving average of the parameters, or else they themselves."""
        return self.average or self.parameters

    @property
    def losses(self) -> list[float]:
        """The mean training loss of each epoch."""
        return self.history.column("loss")

    @property
    def accuracy(self) -> float | None:
        """The share of the test set that is classified correctly after the last epoch."""
        return self.history[-1].accuracy if self.history else None


Report = Callable[[int, Epoch], Any]  # a trial's index, its epoch: True ends the trial


@dataclass(frozen=True)
class Listener:
    """Passes epochs to the caller's `report`, and ends trials after Ctrl-C.

    >>> epoch = Epoch(1, 0.5, 0.7, None, None, 1e3, 1e9, None)
    >>> Listener(lambda number, epoch: number == 1)(1, epoch)
    True
    """

    report: Report | None = None
    stop_requested: Callable[[], bool] = lambda: False

    def __call__(self, number: int, epoch: Epoch) -> bool:
        """Whether a trial should end after this epoch."""
        ended = self.report is not None and self.report(number, epoch) is True
        return ended or self.stop_requested()
