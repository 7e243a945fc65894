"""The results of `pareo parallel`: strategies to use all cores, each compared with one worker."""

from dataclasses import dataclass, field
from statistics import median
from typing import Annotated, ClassVar

import msgspec

from pareo.lab.experiment.entry import Outcome
from pareo.lab.experiment.results import Amount, Count, Natural, Number, Positive, Result

Times = Annotated[list[Positive], msgspec.Meta(min_length=2)]  # of training, then of testing


@dataclass
class Row(Outcome):
    """One strategy with a number of workers: what was measured, and what follows from it.

    name: of the strategy. networks: how many networks it trains.
    train, test: seconds of each turn, for all networks.
    communication, idle: shares of all workers' time in the last turn; None where not known.
    seconds, test_seconds: medians for each network.
    speedup, test_speedup: how many times as fast as one worker. efficiency: speedup per worker.
    of_peak: FLOP/s as a share of the measured peak of matrix products.
    """

    name: str
    workers: Count
    networks: Count = 1
    train: list[Positive] = field(default_factory=list)
    test: list[Positive] = field(default_factory=list)
    communication: Number | None = None
    idle: Number | None = None
    seconds: Number | None = None
    test_seconds: Number | None = None
    speedup: Number | None = None
    test_speedup: Number | None = None
    efficiency: Number | None = None
    of_peak: Number | None = None

    @property
    def label(self) -> str:
        """Contestant, strategy and workers, in a few words.

        >>> Row("torch", "a thread for each network", 3).label
        'torch: a thread for each network (3)'
        """
        return f"{self.contestant}: {self.name} ({self.workers})"

    def drop(self) -> None:
        self.train, self.test = [], []
        self.seconds = self.test_seconds = None

    def add(self, train: float, test: float | None) -> None:
        """The seconds of one more turn."""
        self.train.append(train)
        self.seconds = median(self.train) / self.networks
        if test is not None:
            self.test.append(test)
            self.test_seconds = median(self.test) / self.networks


@dataclass(kw_only=True)
class Scaling:
    """What more workers do for a strategy, and Amdahl's law fitted to it.

    speedups: by number of workers. serial_share: of the work, that more workers do not speed up.
    limit: the speedup of any number of workers; None where there is no limit.
    """

    strategy: str
    speedups: dict[str, Number | None]
    serial_share: Number | None = None
    limit: Number | None = None

    def __post_init__(self) -> None:
        for count in self.speedups:
            if not count.isdecimal():
                raise ValueError(f"Expected numbers of workers in speedups; got {count!r:.60}")


@dataclass(kw_only=True)
class BatchSpeedup:
    """How many times as fast as one worker a strategy is at one batch size."""

    strategy: str
    batch: Count
    speedup: Number | None = None


@dataclass(kw_only=True)
class Prediction:
    """What was expected of the task strategies before they ran."""

    words: str
    how: str = ""
    seconds: dict[str, Amount] = field(default_factory=dict)


@dataclass(kw_only=True)
class Published:
    """Seconds that the paper reports, by strategy: of training and of testing."""

    epochs: Count
    seconds: dict[str, Times]

    def __post_init__(self) -> None:
        for name in ("separate threads", "one thread"):
            if name not in self.seconds:
                raise ValueError(f"Expected the times of {name!r}")


@dataclass(kw_only=True)
class ParallelResult(Result):
    """What both results have. NEEDED: fields of a row that has times."""

    NEEDED: ClassVar[tuple[str, ...]] = ("seconds",)

    batch: Count
    images: Count
    test_images: Natural
    workers: Annotated[list[Count], msgspec.Meta(min_length=1)]
    rows: list[Row]

    def __post_init__(self) -> None:
        super().__post_init__()
        for number, row in enumerate(self.rows):
            for name in self.NEEDED if row.train else ():
                if not (getattr(row, name) or 0) > 0:
                    raise ValueError(f"Expected `float` > 0 - at `$.rows[{number}].{name}`")

    @property
    def most_workers(self) -> int:
        """The largest number of workers."""
        return max(self.workers)


@dataclass(kw_only=True)
class OneNetworkResult(ParallelResult):
    """Every strategy for one network, or several of the same, at several batch sizes.

    sizes: speedups at other batch sizes. pays_from: the batch size from which a strategy pays.
    """

    strategies: list[Scaling] = field(default_factory=list)
    sizes: list[BatchSpeedup] = field(default_factory=list)
    pays_from: dict[str, Count | None] = field(default_factory=dict)
    prediction: Prediction | None = None


@dataclass(kw_only=True)
class PapersResult(ParallelResult):
    """The fourth paper's three networks, in its strategies and in others.

    flops: of training all three once. sgemm_peak: FLOP/s of matrix products, measured.
    """

    NEEDED = ("seconds", "test_seconds", "of_peak")

    flops: Amount | None = None
    sgemm_peak: Positive
    published: Published


RESULTS: dict[str, type[ParallelResult]] = {
    "parallel": OneNetworkResult,
    "parallel-papers": PapersResult,
}
