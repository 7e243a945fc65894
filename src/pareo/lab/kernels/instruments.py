"""The instrument that profiles a contestant, and the process in which it does."""

import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from pareo.lab.contestants import Contestant, Task, Trainer
from pareo.lab.experiment.runner import Repeating
from pareo.lab.kernels import gpu_profile, jax_profile, pareo_profile, torch_profile
from pareo.lab.kernels.events import Event, Profile
from pareo.lab.machine.cupti import Recorder
from pareo.training.step import Step

Instrument = Callable[[Any, Any], list[Profile]]  # a trainer and the order of its images

ADAPTERS = "pareo.lab.contestants."
ON_CPU: dict[str, Instrument] = {
    "pareo": pareo_profile.profiles,
    "torch": torch_profile.profiles,
    "jax": jax_profile.profiles,
}
WHOLE = "(the whole step)"


def framework_of(contestant: Contestant) -> str:
    """The framework of a contestant's adapter; empty where it is not one of pareo's own.

    >>> framework_of(Contestant("pareo.lab.contestants.torch_cuda")), framework_of(Contestant("my"))
    ('torch', '')
    """
    if not contestant.module.startswith(ADAPTERS):
        return ""
    return contestant.module.removeprefix(ADAPTERS).split("_")[0]


def instrument_for(contestant: Contestant) -> Instrument:
    """The instrument, prepared; to be called before the contestant's framework is imported."""
    framework = framework_of(contestant)
    if contestant.gpu:
        return partial(gpu_profile.profiles, recorder=Recorder(), framework=framework)
    if framework == "torch":
        torch_profile.prepare()
    return ON_CPU.get(framework, whole)


def whole(trainer: Trainer, order: Any) -> list[Profile]:
    """Steps that no instrument here can profile, each as one row."""
    start = time.perf_counter()
    trainer.run(order)
    each = (time.perf_counter() - start) / len(order)
    steps = [Event(WHOLE, "other", n * each, (n + 1) * each) for n in range(len(order))]
    note = "no instrument here can profile it, so its step is one row"
    return [Profile("a clock around the steps", len(order), each, steps, note=note)]


class Watched(Repeating):
    """A runner that can also be profiled; the gate compares it on a few images."""

    def __init__(self, contestant: Contestant, task: Task) -> None:
        self._instrument = instrument_for(contestant)
        super().__init__(contestant, task)

    def profile(self, steps: int) -> Annotated[list[Profile], Meta(min_length=1)]:
        """Train this many steps under the instrument; pareo's also says why they run this way."""
        found = self._instrument(self._trainer, self._next(steps))
        step = getattr(self._trainer, "step", None)
        if isinstance(step, Step):
            found[0].note = f"steps run {step.explain()}"
        return found
