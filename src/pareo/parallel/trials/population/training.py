"""Trials of one shape trained as one population, all at the same step of the same epoch."""

import time
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from pareo.backends.base import Backend
from pareo.data import Dataset
from pareo.device import Device
from pareo.parallel.group.errors import sentence
from pareo.parallel.group.result import FittedData
from pareo.parallel.trials.population.evaluation import PopulationEvaluator
from pareo.parallel.trials.population.step import PopulationStep, stacked, stacked_slots
from pareo.parallel.trials.schedule import NOT_BEGUN
from pareo.parallel.trials.trial import Listener, Result, Trial
from pareo.spec import Spec
from pareo.training.checkpoint import averaged
from pareo.training.fit import CHUNK_SECONDS, shuffled
from pareo.training.history import Epoch
from pareo.training.recipe import AVERAGE, Recipe
from pareo.training.step import step_program

MIN_STEPS = 16  # of one member, before the next one's weights replace its own in the cache


def train_in_population(
    trials: Sequence[Trial], data: Dataset, device: Device, listener: Listener
) -> list[Result]:
    """Train trials in populations, one for each `Trial.shape` (see `train_many`)."""
    results = [Result(trial, "population") for trial in trials]
    groups: dict[Hashable, list[int]] = {}
    for number, trial in enumerate(trials):
        groups.setdefault(trial.shape, []).append(number)
    for numbers in groups.values():
        if listener.stop_requested():
            for number in numbers:
                results[number].error = NOT_BEGUN
            continue
        try:
            _Population(trials, numbers, data, device, results, listener).train()
        except Exception as error:  # all members fail, because a population shares one program
            for number in numbers:
                if len(results[number].history) < trials[number].epochs:
                    results[number].error = results[number].error or sentence(error)
    return results


class _Population:
    """A population in training; members leave when they are done, stopped or have failed."""

    def __init__(
        self,
        trials: Sequence[Trial],
        numbers: Sequence[int],
        data: Dataset,
        device: Device,
        results: list[Result],
        listener: Listener,
    ) -> None:
        self._trials, self._numbers = trials, list(numbers)
        self._device, self._results, self._listener = device, results, listener
        first = trials[self._numbers[0]]
        self._network, self._size = first.built, first.batch_size
        self._settings = {n: trials[n].settings() for n in self._numbers}
        settings = self._settings[self._numbers[0]]
        ready = FittedData.of(self._network, data, settings)
        self._images, self._labels, self._tests, self._test_labels = ready
        self._steps: dict[int, PopulationStep] = {}
        self._started = time.perf_counter()
        backend = device.backend
        with device, backend.scope(device):
            self._labels = backend.to_device(self._labels)
            self._images = backend.place_dataset(self._images)
            weights = stacked(self._network, [trials[n].seed for n in self._numbers])
            self._parameters = {path: backend.to_device(a) for path, a in weights.items()}
            slots = stacked_slots(self._network, self._recipes, weights)
            self._slots = {name: backend.to_device(a) for name, a in slots.items()}
            self._tester = PopulationEvaluator(
                self._network, device, self._size, self._tests, settings.loss
            )

    @property
    def _recipes(self) -> list[Recipe]:
        return [self._settings[n].recipe for n in self._numbers]

    def train(self) -> None:
        """All epochs of all members."""
        epoch = 0
        while self._numbers and not (epoch and self._listener.stop_requested()):
            losses, seconds = self._epoch(epoch)
            self._finish(epoch, losses, seconds)
            epoch += 1
        for number in self._numbers:  # Ctrl-C
            self._results[number].stopped = True

    def _epoch(self, epoch: int) -> tuple[np.ndarray, float]:
        """The mean loss of each member over an epoch, and the seconds of the epoch."""
        count = len(self._images)
        size = min(self._size, count)
        orders = np.stack(
            [
                shuffled(count, self._settings[n].order_seed, epoch)
                for n in self._numbers
            ]
        )  # fmt: skip
        whole, rest = divmod(count, size)
        steps, done = whole + bool(rest), 0
        rows = MIN_STEPS if self._step(size).runs_members_separately else 1
        total, seconds = np.zeros(len(self._numbers)), 0.0
        while done < steps:
            last = min(whole, done + rows) if done < whole else steps
            chosen = orders[:, done * size : min(count, last * size)]
            order = chosen.reshape(len(orders), last - done, -1).swapaxes(0, 1)
            width = order.shape[2]
            first, several = epoch * steps + done, last - done
            rates = [self._settings[n].rates(first, several, steps) for n in self._numbers]
            begin = time.perf_counter()
            losses = self._step(width).run(
                self._parameters, self._slots, self._images, self._labels, order,
                np.stack(rates, axis=1), [self._trials[n].seed for n in self._numbers], first,
            )  # fmt: skip
            elapsed = time.perf_counter() - begin
            self._record_failures(losses, epoch, done)
            total += np.sum(losses, axis=0, dtype=np.float64) * width
            seconds += elapsed
            wanted = int(CHUNK_SECONDS / max(elapsed / (last - done), 1e-9))
            least = MIN_STEPS if self._step(size).runs_members_separately else 1
            rows = max(least, min(wanted, 8 * rows))
            done = last
        return total / count, seconds

    def _record_failures(self, losses: np.ndarray, epoch: int, before: int) -> None:
        """Members whose loss is NaN or infinite have failed; they leave at the end of the epoch."""
        for member, number in enumerate(self._numbers):
            wrong = np.flatnonzero(~np.isfinite(losses[:, member]))
            if len(wrong) and self._results[number].error is None:
                self._results[number].error = (
                    f"the loss became {losses[wrong[0], member]} in epoch {epoch + 1}, step "
                    f"{before + int(wrong[0]) + 1}: try a rate below {self._trials[number].rate:g}"
                )

    def _step(self, size: int) -> PopulationStep:
        if size not in self._steps:
            step = PopulationStep(self._network, size, self._device, self._recipes)
            self._warm_up(step, size)
            self._steps[size] = step
        return self._steps[size]

    def _warm_up(self, step: PopulationStep, size: int) -> None:
        """One step on copies, which compiles the machine code before time is measured."""
        with self._device.backend.scope(self._device):
            parameters, slots = (
                {path: a.copy() for path, a in arrays.items()}
                for arrays in (self._parameters, self._slots)
            )
        count = len(self._numbers)
        order, rates, seeds = np.zeros((1, count, size), np.int64), [0.0] * count, [0] * count
        step.run(parameters, slots, self._images, self._labels, order, rates, seeds)

    def _finish(self, epoch: int, losses: np.ndarray, seconds: float) -> None:
        """Test, report, and let members leave."""
        weights = averaged(self._parameters, self._slots)
        tested = self._tester(weights, self._test_labels)
        share = seconds / len(self._numbers)  # the machine time of each member
        size = min(self._size, len(self._images))
        step = step_program(self._network, size, self._recipes[0])
        flops = step.flops * len(self._images) / size
        leaving: list[int] = []
        for member, number in enumerate(self._numbers):
            result, trial = self._results[number], self._trials[number]
            if result.error is None:
                completed = Epoch(
                    epoch + 1, share, float(losses[member]), tested[member][1], tested[member][0],
                    len(self._images) / share, flops / share, None,
                )  # fmt: skip
                result.history.add(completed)
                ended = self._listener(number, completed)
                result.stopped = ended and epoch + 1 < trial.epochs
                if not (ended or epoch + 1 == trial.epochs):
                    continue
            leaving.append(member)
        if leaving:
            self._leave(leaving)

    def _leave(self, leaving: list[int]) -> None:
        """Remove members, with their parameters, from the stacked arrays."""
        backend = self._device.backend
        with self._device, backend.scope(self._device):
            for member in leaving:
                result = self._results[self._numbers[member]]
                result.seconds = time.perf_counter() - self._started
                kept = {f"{AVERAGE}.{path}": path for path in self._parameters}
                result.parameters, result.average = (
                    {path: np.array(backend.to_host(a[member, ...])) for path, a in arrays.items()}
                    for arrays in (
                        self._parameters,
                        {kept[name]: a for name, a in self._slots.items() if name in kept},
                    )
                )
            staying = [m for m in range(len(self._numbers)) if m not in leaving]
            self._numbers = [self._numbers[m] for m in staying]
            if staying:
                self._parameters, self._slots = (
                    {path: _selected(backend, a, staying) for path, a in arrays.items()}
                    for arrays in (self._parameters, self._slots)
                )
        self._steps.clear()


def _selected(backend: Backend, array: Any, members: list[int]) -> Any:
    out = backend.empty(Spec((len(members), *array.shape[1:]), array.dtype))
    for place, member in enumerate(members):
        out[place] = array[member]
    return out
