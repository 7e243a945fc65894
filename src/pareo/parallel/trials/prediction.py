"""Which way of training many networks is fastest: a rough estimate, made before anything runs.

Only the order of the ways matters. FLOPs come from the programs. The other numbers were measured on
one machine, and are the same for all ways.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pareo.data import Dataset
from pareo.device import Device
from pareo.nn.layers import Conv, Layer
from pareo.parallel.trials.schedule import predicted_work
from pareo.parallel.trials.trial import Trial
from pareo.training.step import step_program, training_loop

CORE = 2e10  # FLOP/s of a CPU core in matrix products of medium size
GPU = 2e13  # FLOP/s of a GPU, likewise
LAUNCH = 3e-6  # seconds: the minimum of one instruction on a GPU
CALL = 1e-5  # seconds of Python for one instruction, during which other threads cannot run Python
BUILD = 0.06  # seconds to trace and compile one network's step
START = 1.5  # seconds to start a process
GROUPED = 1.8  # the time of convolutions of all members as groups, beside one member at a time
SPLIT = 0.92  # the efficiency of two cores that share one network's batch


@dataclass(frozen=True)
class Prediction:
    """The expected seconds of each way."""

    seconds: dict[str, float]

    @property
    def how(self) -> str:
        """The fastest way; among equals, the first."""
        return min(self.seconds, key=lambda way: self.seconds[way])

    def __str__(self) -> str:
        """A sentence.

        >>> str(Prediction({"threads": 2.0, "population": 1.9}))
        'population: 1.9 s expected, threads 2 s'
        """
        others = [f"{way} {s:.2g} s" for way, s in self.seconds.items() if way != self.how]
        return f"{self.how}: {self.seconds[self.how]:.2g} s expected, {', '.join(others)}"


def predict(trials: Sequence[Trial], data: Dataset, device: Device) -> Prediction:
    """The expected time of each way of `train_many`.

    >>> from pareo.data import load
    >>> data = load("synthetic:1x28x28:10:1200")
    >>> many = [Trial("mlp-small", seed=seed) for seed in range(64)]
    >>> predict(many, data, Device("compiled", 2)).how
    'population'
    >>> three = [Trial(f"mlp-{size}", epochs=20) for size in ("small", "medium", "big")]
    >>> predict(three, data, Device("compiled", 2)).how
    'threads'
    """
    work = [predicted_work(trial, data) for trial in trials]
    calls = _calls(trials, data, device)
    shapes = [trial.shape for trial in trials]
    groups = Counter(shapes)
    if device.name == "cuda":
        busy = sum(work) / GPU
        launches_alone = sum(calls) * LAUNCH / CALL
        launches_together = sum(
            max(c for c, shape in zip(calls, shapes, strict=True) if shape == group)
            for group in groups
        ) * LAUNCH / CALL  # fmt: skip
        return Prediction(
            {
                "serial": busy + launches_alone + BUILD * len(trials),
                "population": busy + launches_together + BUILD * len(groups),
            }
        )
    cores = device.threads
    split = CORE * (1 + (cores - 1) * SPLIT)
    many = min(cores, len(trials))
    python = sum(calls)
    threads = max(sum(work) / CORE / cores, python) + BUILD * len(trials) / many
    found = {
        "threads": threads,
        "processes": (sum(work) / CORE + python) / cores + BUILD * len(trials) / many + START,
        "serial": sum(work) / split + python + BUILD * len(trials),
    }
    # A core takes whole members, so some cores may be idle at the end.
    share = {
        group: sum(w for w, shape in zip(work, shapes, strict=True) if shape == group)
        for group in groups
    }
    for trial, shape, own, seconds in zip(trials, shapes, work, calls, strict=True):
        if seconds and any(isinstance(layer, Conv) for layer in _layers(trial)):
            share[shape] += (GROUPED - 1) * own  # without a loop, all members are one program
    found["population"] = BUILD * len(groups) + sum(
        share[group] / CORE * -(-count // cores) / count for group, count in groups.items()
    )
    found["population"] += python
    return Prediction(found)


def _layers(trial: Trial) -> list[Layer]:
    network = trial.built
    return [layer for _, layer, _ in network.walk(network.inputs)]


def _calls(trials: Sequence[Trial], data: Dataset, device: Device) -> list[float]:
    """Seconds of Python in each trial: none if the device has a loop for the network."""
    known: dict[object, float] = {}
    for trial in trials:
        key = trial.shape
        if key in known:
            continue
        try:
            network, recipe = trial.built, trial.settings().recipe
            loops = recipe.loops(network.parameters(network.inputs))
            looped = loops and training_loop(network, device, "float32") is not None
            count = len(step_program(network, 2, recipe).instructions)
        except Exception:  # the trial reports it when its turn comes
            looped, count = True, 0
        steps = -(-len(data.images) // trial.batch_size)
        known[key] = 0.0 if looped and device.name != "cuda" else steps * count * CALL
    return [known[trial.shape] * trial.epochs for trial in trials]
