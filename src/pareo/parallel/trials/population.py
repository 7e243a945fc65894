"""Trials of one shape trained as one population, all at the same step of the same epoch."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from pareo.data import Dataset
from pareo.device import Device
from pareo.nn.network import Sequential
from pareo.parallel.trials.population_score import PopulationEvaluator
from pareo.parallel.trials.population_step import PopulationStep, stacked
from pareo.parallel.trials.schedule import NOT_BEGUN
from pareo.parallel.trials.trial import Listener, Result, Trial, sentence
from pareo.spec import Spec
from pareo.training.evaluate import as_inputs
from pareo.training.fit import CHUNK_SECONDS, shuffled
from pareo.training.history import Epoch
from pareo.training.step import step_program

LEAST_STEPS = 16  # of a member alone, before the next one's weights come into the cache


def train_in_population(
    trials: Sequence[Trial], data: Dataset, device: Device, listener: Listener
) -> list[Result]:
    """Train trials in populations, one for each shape of network and batch (see `train_many`)."""
    results = [Result(trial, "population") for trial in trials]
    groups: dict[tuple[Sequential, int], list[int]] = {}
    for number, trial in enumerate(trials):
        groups.setdefault((trial.built, trial.batch_size), []).append(number)
    for numbers in groups.values():
        if listener.asked():
            for number in numbers:
                results[number].error = NOT_BEGUN
            continue
        try:
            _Population(trials, numbers, data, device, results, listener).train()
        except Exception as error:  # of all its members: a population shares one program
            for number in numbers:
                if len(results[number].history) < trials[number].epochs:
                    results[number].error = results[number].error or sentence(error)
    return results


class _Population:
    """A population under training; members leave when they are done, stopped or have failed."""

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
        floats = data.as_float()
        self._images = as_inputs(self._network, floats.images, "float32")
        self._labels = np.ascontiguousarray(floats.labels)
        self._tests = as_inputs(self._network, floats.test_images, "float32")
        self._test_labels = floats.test_labels
        self._steps: dict[int, PopulationStep] = {}
        self._begin = time.perf_counter()
        backend = device.backend
        with device, backend.scope(device):
            self._labels = backend.to_device(self._labels)
            self._images = backend.place_dataset(self._images)
            weights = stacked(self._network, [trials[n].seed for n in self._numbers])
            self._parameters = {path: backend.to_device(a) for path, a in weights.items()}
            moving = any(trials[n].momentum for n in self._numbers)
            still = {path: np.zeros_like(a) for path, a in weights.items()} if moving else {}
            self._velocities = {path: backend.to_device(a) for path, a in still.items()}
            self._tester = PopulationEvaluator(self._network, device, self._size, self._tests)

    def train(self) -> None:
        """All epochs of all members."""
        epoch = 0
        while self._numbers and not (epoch and self._listener.asked()):
            losses, seconds = self._epoch(epoch)
            self._finish(epoch, losses, seconds)
            epoch += 1
        for number in self._numbers:  # Ctrl-C
            self._results[number].stopped = True

    def _epoch(self, epoch: int) -> tuple[Any, float]:
        """The mean loss of each member over an epoch, and the seconds that it took."""
        count = len(self._images)
        size = min(self._size, count)
        orders = np.stack(
            [
                shuffled(count, self._trials[n].settings().order_seed, epoch)
                for n in self._numbers
            ]
        )  # fmt: skip
        whole, rest = divmod(count, size)
        steps, done = whole + bool(rest), 0
        rows = LEAST_STEPS if self._step(size).alone else 1
        total, seconds = np.zeros(len(self._numbers)), 0.0
        while done < steps:
            last = min(whole, done + rows) if done < whole else steps
            picked = orders[:, done * size : min(count, last * size)]
            order = picked.reshape(len(orders), last - done, -1).swapaxes(0, 1)
            width = order.shape[2]
            begin = time.perf_counter()
            losses = self._step(width).run(
                self._parameters, self._velocities, self._images, self._labels, order,
                [self._trials[n].settings().rate_in(epoch) for n in self._numbers],
                [self._trials[n].seed for n in self._numbers], epoch * steps + done,
            )  # fmt: skip
            took = time.perf_counter() - begin
            self._note_failures(losses, epoch, done)
            total += np.sum(losses, axis=0, dtype=np.float64) * width
            seconds += took
            wanted = int(CHUNK_SECONDS / max(took / (last - done), 1e-9))
            least = LEAST_STEPS if self._step(size).alone else 1
            rows = max(least, min(wanted, 8 * rows))
            done = last
        return total / count, seconds

    def _note_failures(self, losses: Any, epoch: int, before: int) -> None:
        """Members whose loss is no number have failed; they leave at the end of the epoch."""
        for member, number in enumerate(self._numbers):
            wrong = np.flatnonzero(~np.isfinite(losses[:, member]))
            if len(wrong) and self._results[number].error is None:
                self._results[number].error = (
                    f"the loss became {losses[wrong[0], member]} in epoch {epoch + 1}, step "
                    f"{before + int(wrong[0]) + 1}: try a rate below {self._trials[number].rate:g}"
                )

    def _step(self, size: int) -> PopulationStep:
        if size not in self._steps:
            momenta, decays = (
                [getattr(self._trials[n], name) for n in self._numbers]
                for name in ("momentum", "decay")
            )
            step = PopulationStep(self._network, size, self._device, momenta, decays)
            self._warm(step, size)
            self._steps[size] = step
        return self._steps[size]

    def _warm(self, step: PopulationStep, size: int) -> None:
        """One step on copies, outside the clock: the first of all compiles machine code."""
        with self._device.backend.scope(self._device):
            parameters, velocities = (
                {path: a.copy() for path, a in arrays.items()}
                for arrays in (self._parameters, self._velocities)
            )
        count = len(self._numbers)
        order, rates, seeds = np.zeros((1, count, size), np.int64), [0.0] * count, [0] * count
        step.run(parameters, velocities, self._images, self._labels, order, rates, seeds)

    def _finish(self, epoch: int, losses: Any, seconds: float) -> None:
        """Test, tell, and let members go."""
        tested = self._tester(self._parameters, self._test_labels)
        share = seconds / len(self._numbers)  # each has the machine for this part of the time
        flops = step_program(self._network, 1).flops * len(self._images)
        leaving: list[int] = []
        for member, number in enumerate(self._numbers):
            result, trial = self._results[number], self._trials[number]
            if result.error is None:
                passed = Epoch(
                    epoch + 1, share, float(losses[member]), tested[member][1], tested[member][0],
                    len(self._images) / share, flops / share, None,
                )  # fmt: skip
                result.history.add(passed)
                ended = self._listener(number, passed)
                result.stopped = ended and epoch + 1 < trial.epochs
                if not (ended or epoch + 1 == trial.epochs):
                    continue
            leaving.append(member)
        if leaving:
            self._leave(leaving)

    def _leave(self, leaving: list[int]) -> None:
        """Take members out, with their parameters; the others close ranks."""
        backend = self._device.backend
        with self._device, backend.scope(self._device):
            for member in leaving:
                result = self._results[self._numbers[member]]
                result.seconds = time.perf_counter() - self._begin
                result.parameters = {
                    path: np.array(backend.to_host(a[member, ...]))
                    for path, a in self._parameters.items()
                }
            staying = [m for m in range(len(self._numbers)) if m not in leaving]
            self._numbers = [self._numbers[m] for m in staying]
            if staying:
                self._parameters, self._velocities = (
                    {path: _taken(backend, a, staying) for path, a in arrays.items()}
                    for arrays in (self._parameters, self._velocities)
                )
        self._steps.clear()


def _taken(backend: Any, array: Any, members: list[int]) -> Any:
    out = backend.empty(Spec((len(members), *array.shape[1:]), array.dtype))
    for place, member in enumerate(members):
        out[place] = array[member]
    return out
