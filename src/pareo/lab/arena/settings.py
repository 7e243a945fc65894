"""The settings of an arena: which networks are drawn, and who races on them for how long."""

from dataclasses import asdict, dataclass
from typing import Any

from pareo.errors import PareoError
from pareo.lab.arena.draw import KINDS, Batches, Drawn, drawn
from pareo.lab.contestants import Task
from pareo.lab.contestants.registry import SLOW_TO_BUILD, chosen
from pareo.lab.contestants.task import INVENTED
from pareo.lab.experiment.results import Count, Natural
from pareo.lab.race.engine import Rules
from pareo.machine import gpus

PEERS = ("torch-best", "jax-best")
PEERS_ON_GPU = ("torch-cuda", "torch-cudagraph", "jax-cuda", "jax-cuda-scan")
TURN = 0.15  # seconds of a sample, about


@dataclass(frozen=True)
class Settings:
    """The settings of an arena; one with the same settings continues it. See `pareo arena --help`.

    first, count: the indices of the networks. seconds: of each network's rounds, after which none
    begins. patience: seconds without an answer after which a contestant counts as hanging.
    """

    seed: Natural = 0
    first: Natural = 0
    count: Count = 20
    kinds: tuple[str, ...] = KINDS
    batch: str = "1..512"
    contestants: tuple[str, ...] = ()
    precision: str = "float32"
    threads: Count = 1
    seconds: float = 10.0
    patience: float = 120.0

    @property
    def indices(self) -> range:
        """The indices of the networks."""
        return range(self.first, self.first + self.count)

    def drawn(self, index: int) -> Drawn:
        """The network of an index."""
        return drawn(self.seed, index, self.kinds, Batches.parsed(self.batch))

    def task(self, one: Drawn) -> Task:
        """What everyone trains: the network on made-up images."""
        return Task(one.network, one.batch, self.threads, one.rate, source=INVENTED)

    @property
    def rules(self) -> Rules:
        """Those of each race."""
        return Rules(turn=TURN, seconds=self.seconds, patience=self.patience, untried=SLOW_TO_BUILD)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "kinds": [*self.kinds], "contestants": [*self.contestants]}


def entered(names: list[str], device: str | None) -> tuple[str, ...]:
    """The contestants: those named, or the usual peers, and pareo on a device.

    >>> entered([], "vectorized")
    ('pareo-vectorized', 'torch-best', 'jax-best')
    >>> entered(["torch"], "compiled")
    ('pareo-compiled', 'torch')
    >>> entered(["torch"], None)
    Traceback (most recent call last):
    pareo.errors.PareoError: --contestants expects one of pareo's and a peer; got torch
    """
    if device is None and not names:
        device = "cuda" if gpus() else "compiled"
    own = [] if device is None else [f"pareo-{device}"]
    peers = names or list(PEERS_ON_GPU if device == "cuda" else PEERS)
    found = tuple(chosen(list(dict.fromkeys([*own, *peers]))))
    if len({name.startswith("pareo") for name in found}) < 2:
        raise PareoError(f"--contestants expects one of pareo's and a peer; got {', '.join(found)}")
    return found
