"""A trial: one network to be trained, with all that decides how; and what became of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pareo.errors import PareoError
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.training.history import Epoch, History
from pareo.training.settings import Settings, whole


@dataclass(frozen=True)
class Trial:
    """One network to be trained, as `pareo.training.fit` would: its settings, by their names there.

    network: a network, or the name of one (see `pareo networks`)
    seed:    decides its first weights and its dropout
    order:   the seed that decides in which order it sees the images; None is `seed`

    >>> Trial("mlp-small", rate=0.05, seed=3).built.count()
    233054
    >>> Trial("mlp-small", rate=0)
    Traceback (most recent call last):
    pareo.training.settings.SettingError: fit expects a rate above 0; got 0
    """

    network: Sequential | str
    rate: float = 0.1
    momentum: float = 0.0
    decay: float = 0.0
    batch_size: int = 128
    epochs: int = 1
    seed: int = 0
    order: int | None = None
    schedule: str = "constant"

    def __post_init__(self) -> None:
        whole("epochs", self.epochs, 1)
        self.settings()
        _ = self.built

    def settings(self, precision: str = "float32") -> Settings:
        """What training is told about this trial."""
        return Settings(
            self.batch_size, self.rate, self.momentum, self.decay, self.seed, precision,
            self.schedule, self.epochs, self.order,
        )  # fmt: skip

    @property
    def built(self) -> Sequential:
        """The network itself."""
        return networks.by_name(self.network) if isinstance(self.network, str) else self.network

    @property
    def name(self) -> str:
        """What the network is called."""
        return self.network if isinstance(self.network, str) else self.network.name


@dataclass
class Result:
    """What became of a trial.

    how:        the way it was trained: 'threads', 'processes', 'population', ...
    history:    its epochs: losses, accuracies, seconds
    parameters: as they were after its last epoch; empty where it failed before
    seconds:    from its start to its end, testing included
    stopped:    whether `report` ended it early
    error:      why it failed, in one sentence; None where it did not
    """

    trial: Trial
    how: str
    history: History = field(default_factory=History)
    parameters: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    stopped: bool = False
    error: str | None = None

    @property
    def losses(self) -> list[float]:
        """The mean training loss of each epoch."""
        return self.history.column("loss")

    @property
    def accuracy(self) -> float | None:
        """The share of the test set that was right after the last epoch."""
        return self.history[-1].accuracy if self.history else None


Report = Callable[[int, Epoch], Any]  # a trial's place in the list, its epoch: True ends the trial


@dataclass(frozen=True)
class Listener:
    """Who hears of epochs: the caller's `report`, unless Ctrl-C has ended everything.

    >>> Listener(lambda number, epoch: number == 1)(1, None)
    True
    """

    report: Report | None = None
    asked: Callable[[], bool] = lambda: False

    def __call__(self, number: int, epoch: Any) -> bool:
        """Whether a trial is to end after this epoch."""
        return (self.report is not None and self.report(number, epoch) is True) or self.asked()


def sentence(error: BaseException) -> str:
    """An error as a result keeps it.

    >>> sentence(ValueError("no such thing"))
    'ValueError: no such thing'
    """
    if isinstance(error, PareoError):
        return str(error)
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
