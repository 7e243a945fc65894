"""Which way of training many networks will be the fastest: a rough sum, made before anything runs.

Only the order of the ways matters. FLOPs come from the programs; the other numbers are what was
seen on one machine, and are the same for all ways.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pareo.data import Dataset
from pareo.device import Device
from pareo.parallel.trials.schedule import predicted_work
from pareo.parallel.trials.trial import Trial
from pareo.training.step import step_program, training_loop

CORE = 2e10  # FLOP/s of a CPU core in matrix products of middling size
CARD = 2e13  # FLOP/s of a GPU likewise
LAUNCH = 3e-6  # seconds: the least that one instruction takes on a GPU
CALL = 1e-5  # seconds of Python for one instruction, during which other threads cannot run Python
BUILD = 0.06  # seconds to trace and compile one network's step
START = 1.5  # seconds until a new process computes
SPLIT = 0.92  # of two cores' speed is left when one network's batch is split between them


@dataclass(frozen=True)
class Prediction:
    """The seconds that each way is expected to take."""

    seconds: dict[str, float]

    @property
    def how(self) -> str:
        """The fastest way; of equals, the one named first."""
        return min(self.seconds, key=lambda way: self.seconds[way])

    def __str__(self) -> str:
        """In words.

        >>> str(Prediction({"threads": 2.0, "population": 1.9}))
        'population: 1.9 s expected, threads 2 s'
        """
        others = [f"{way} {s:.2g} s" for way, s in self.seconds.items() if way != self.how]
        return f"{self.how}: {self.seconds[self.how]:.2g} s expected, {', '.join(others)}"


def predict(trials: Sequence[Trial], data: Dataset, device: Device) -> Prediction:
    """What each way of `train_many` is expected to take.

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
    groups = Counter((trial.built, trial.batch_size) for trial in trials)
    if device.name == "cuda":
        busy = sum(work) / CARD
        alone = sum(calls) * LAUNCH / CALL
        together = sum(
            max(c for c, t in zip(calls, trials, strict=True) if (t.built, t.batch_size) == group)
            for group in groups
        ) * LAUNCH / CALL  # fmt: skip
        return Prediction(
            {
                "serial": busy + alone + BUILD * len(trials),
                "population": busy + together + BUILD * len(groups),
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
    # A core takes whole members: the last ones may leave others idle.
    share = {
        group: sum(w for w, t in zip(work, trials, strict=True) if (t.built, t.batch_size) == group)
        for group in groups
    }
    found["population"] = BUILD * len(groups) + sum(
        share[group] / CORE * -(-count // cores) / count for group, count in groups.items()
    )
    found["population"] += python
    return Prediction(found)


def _calls(trials: Sequence[Trial], data: Dataset, device: Device) -> list[float]:
    """Seconds of Python in each trial: none where the device has a loop for the network."""
    known: dict[object, float] = {}
    for trial in trials:
        key = (trial.built, trial.batch_size)
        if key in known:
            continue
        try:
            network = trial.built
            looped = not network.seeds() and training_loop(network, device, "float32") is not None
            count = len(step_program(network, 1).instructions)
        except Exception:  # told by the trial itself, when its turn comes
            looped, count = True, 0
        steps = -(-len(data.images) // trial.batch_size)
        known[key] = 0.0 if looped and device.name != "cuda" else steps * count * CALL
    return [known[trial.built, trial.batch_size] * trial.epochs for trial in trials]
