"""From hyper-parameters to a trial: some shape the network, the others its training."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pareo.data import Dataset
from pareo.device import Device
from pareo.errors import DataError
from pareo.nn.layers import Dense
from pareo.nn.network import Sequential
from pareo.nn.networks import mlp
from pareo.parallel.trials.prediction import predict
from pareo.parallel.trials.trial import Trial
from pareo.parallel.tuning.space import SHAPE, Space
from pareo.training import optimizers
from pareo.training.optimizers import SGD

APART = ("batch_size", "optimizer", "smoothing", "augment")  # see `Trial.shape`
POPULATION = 16  # with more, the sampler would learn from fewer rounds of trials


@dataclass(frozen=True)
class Maker:
    """Makes trials of a network for a dataset.

    network: the network, unless hyper-parameters ask for an MLP of another shape
    usual:   settings that are neither searched nor fixed
    rates:   the usual rates of some optimizers, by name

    >>> from pareo.data import load
    >>> maker = Maker(mlp("small"), load("synthetic:16:3:120"), epochs=2, usual={"rate": 0.05})
    >>> trial = maker({"width": 8, "hidden": 2, "momentum": 0.9})
    >>> trial.name, trial.rate, trial.momentum
    ('mlp-16-8-8-3', 0.05, 0.9)
    >>> maker({"optimizer": "adamw", "momentum": 0.9}).momentum
    0.0
    """

    network: Sequential
    data: Dataset
    epochs: int
    usual: Mapping[str, Any]
    rates: Mapping[str, float] = field(default_factory=dict)

    def __call__(self, found: Mapping[str, Any]) -> Trial:
        shape = {name: value for name, value in found.items() if name in SHAPE}
        settings = {name: value for name, value in found.items() if name not in SHAPE}
        network = self._shaped(**shape) if shape else self.network
        chosen = {**self.usual, **settings}
        if "optimizer" in settings:  # which brings its own momentum and its own usual rate
            rule = optimizers.parse(settings["optimizer"])
            if "momentum" not in settings or not isinstance(rule, SGD):
                chosen.pop("momentum", None)
            if "rate" not in settings and rule.name in self.rates:
                chosen["rate"] = self.rates[rule.name]
        return Trial(network, epochs=self.epochs, **chosen)

    def _shaped(
        self, width: int | None = None, hidden: int | None = None, activation: str = "relu"
    ) -> Sequential:
        known = _widths(self.network)
        layers = [width or known[0]] * (hidden or len(known)) if width or hidden else known
        return mlp([math.prod(self.data.shape), *layers, self.data.classes], activation)


def population(make_trial: Maker, space: Space, device: Device) -> int:
    """How many trials to train as one population.

    It is 1 where a population is not expected to be faster, and where the shape itself or the kind
    of step is searched: then few trials of a round would have the same one.

    >>> from pareo.data import load
    >>> from pareo.parallel.tuning.space import parse
    >>> maker = Maker(mlp("small"), load("mnist"), 1, {})
    >>> population(maker, parse({"rate": [0.1, 0.2]}), Device("sequential"))
    1
    """
    if any(name in (*SHAPE, *APART) for name in space.searched):
        return 1
    some = {name: bounds["low"] for name, bounds in space.ranges.items()}
    some |= {name: values[0] for name, values in space.choices.items()}
    trials = [make_trial({**space.fixed, **some, "seed": seed}) for seed in range(POPULATION)]
    return POPULATION if predict(trials, make_trial.data, device).how == "population" else 1


def check(space: Space, network: Sequential, source: str) -> None:
    """Refuse a space that shapes a network other than an MLP.

    Raises:
        DataError: the space has a width, for example, but the network is not an MLP.
    """
    if space.shaped and not network.name.startswith("mlp-"):
        shape = ", ".join(name for name in (*space.searched, *space.fixed) if name in SHAPE)
        raise DataError(f"{source}: {shape} is for an MLP, such as mlp-small; got {network.name}")


def _widths(network: Sequential) -> list[int]:
    """The units of the hidden layers of an MLP."""
    return [layer.units for layer in network.layers if isinstance(layer, Dense)][:-1]
