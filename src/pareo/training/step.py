"""One training step of a network as one compiled program: forward, backward and update."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

import pareo.operators as op
from pareo.array import Array
from pareo.backends.base import StepRunner, TrainingLoop
from pareo.device import Device
from pareo.nn.network import Sequential
from pareo.operators.loss import check_labels
from pareo.program import (
    Executable,
    Program,
    plan,
    remove_common,
    remove_dead,
    trace,
    value_and_grad,
)
from pareo.program.compiler import prepared
from pareo.seeds import checked_seed
from pareo.spec import Spec
from pareo.training import arguments


def parameter_specs(network: Sequential, dtype: DTypeLike) -> dict[str, Spec]:
    """The spec of each parameter of a network, by its path.

    >>> from pareo.nn import networks
    >>> parameter_specs(networks.mlp([4, 3]), "float32")["1.w"]
    Spec((4, 3), 'float32')
    """
    return {path: Spec(p.shape, dtype) for path, p in network.parameters(network.inputs).items()}


def step_program(
    network: Sequential,
    batch: int,
    momentum: float = 0.0,
    decay: float = 0.0,
    dtype: DTypeLike = "float32",
) -> Program:
    """The program of one step.

    It maps (parameters, velocities, images, labels, rate, seeds) to (loss, parameters, velocities).

    Without momentum there are no velocities: the dict of them is empty.

    >>> from pareo.nn import networks
    >>> step_program(networks.papers_cnn(), batch=128).flops // 10**6
    52
    """
    shapes = parameter_specs(network, dtype)

    def step(
        parameters: Mapping[str, Array],
        velocities: Mapping[str, Array],
        images: Array,
        labels: Array,
        rate: Array,
        seeds: tuple[Array, ...],
    ) -> tuple[Array, dict[str, Array], dict[str, Array]]:
        loss, gradients = value_and_grad(network.loss)(parameters, images, labels, seeds)
        moved: dict[str, Array] = {}
        speeds: dict[str, Array] = {}
        for path, parameter in parameters.items():
            new = sgd_step(parameter, gradients[path], velocities.get(path), rate, momentum, decay)
            moved[path] = new[0]
            if momentum:
                speeds[path] = new[1]
        return loss, moved, speeds

    program = trace(
        step,
        shapes,
        shapes if momentum else {},
        Spec((batch, *network.inputs), dtype, batch=0),
        Spec((batch,), "int64", batch=0),
        Spec((), dtype),
        (Spec((), "int64"),) * network.seeds(),
    )
    return remove_dead(remove_common(program))


def sgd_step(
    parameter: Array,
    gradient: Array,
    velocity: Array | None,
    rate: Array,
    momentum: float,
    decay: float,
) -> tuple[Array, Array | None]:
    """A parameter after one step, and its new velocity; without momentum that is None."""
    if momentum:
        moved: tuple[Array, Array | None] = op.sgd(
            parameter, gradient, velocity, rate, momentum, decay
        )
        return moved
    if decay:
        gradient = op.add(gradient, op.scale(decay, parameter))
    return op.sub(parameter, op.scale(rate, gradient)), None


def dropout_seeds(seed: int, step: int, count: int) -> list[int]:
    """The seeds of one step's dropout layers, from the seed and the number of the step alone.

    >>> dropout_seeds(1, 0, 2) == dropout_seeds(1, 0, 2) != dropout_seeds(1, 1, 2)
    True
    """
    if not count:
        return []
    numbers = np.random.SeedSequence([seed, step]).generate_state(count, np.uint64)
    return [int(number >> np.uint64(1)) for number in numbers]


def training_loop(network: Sequential, device: Device, dtype: DTypeLike) -> TrainingLoop | None:
    """The backend's own loop of training steps for a network; None where it has none."""
    shapes = parameter_specs(network, dtype)
    image, label = Spec((1, *network.inputs), dtype), Spec((1,), "int64")
    with device:
        program = prepared(
            trace(value_and_grad(network.loss), shapes, image, label), device.backend
        )
        planned = plan(program, device.backend)
        return device.backend.training_loop(program, planned, device.threads)


class Step:
    """A compiled training step that updates parameters and velocities in place."""

    def __init__(
        self,
        network: Sequential,
        batch: int,
        device: Device,
        momentum: float = 0.0,
        decay: float = 0.0,
        dtype: DTypeLike = "float32",
    ) -> None:
        self.program = step_program(network, batch, momentum, decay, dtype)
        self.batch = batch
        self._specs = parameter_specs(network, dtype)
        self._images, self._classes = Spec((batch, *network.inputs), dtype), network.classes
        self.device = device
        self._momentum, self._decay = momentum, decay
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self._seeds = network.seeds()
        self._loop = None if self._seeds else training_loop(network, device, dtype)

    @property
    def loops(self) -> bool:
        """Whether many steps run in a loop of the backend's own rather than as a program."""
        return self._loop_bytes(self.batch) is not None

    def _loop_bytes(self, batch: int) -> int | None:
        """The bytes the loop works in; None where there is none, or none for this batch size."""
        if self._loop is None or batch < 1:
            return None
        with self.device, self.device.backend.scope(self.device):
            return self._loop.nbytes(batch, bool(self._momentum))

    @contextmanager
    def without_loop(self) -> Iterator[None]:
        """A scope in which steps run as a program even where the backend has a loop of its own."""
        loop, self._loop = self._loop, None
        try:
            yield
        finally:
            self._loop = loop

    @cached_property
    def executable(self) -> Executable:
        """The step as a program that runs instruction by instruction."""
        return self.program.compile(self.device, self._updates)

    def memory(self, batch: int | None = None, tight: bool = False) -> int:
        """The bytes that a step takes: arguments, values and work arrays.

        `tight` asks for the smallest plan, as in `Program.memory`.

        >>> from pareo.nn import networks
        >>> step = Step(networks.papers_cnn(), 128, Device("vectorized"))
        >>> step.memory(256) > step.memory()
        True
        """
        images = len(self.program.inputs) - 3 - self._seeds
        inside = self._loop_bytes(self.batch if batch is None else batch)
        if inside is not None:
            moved = self.program.inputs[:images]  # parameters and velocities
            return inside + sum(self.program.specs[number].nbytes for number in moved)
        return self.program.memory(batch, self.device, self._updates, images, tight)

    @property
    def _updates(self) -> dict[int, int]:
        """New parameters, and velocities if there are any, replace the old ones."""
        return {i + 1: i for i in range(len(self.program.outputs) - 1)}

    @cached_property
    def _runner(self) -> StepRunner | None:
        """The backend's own way to run many steps, if it has one."""
        return self.device.backend.step_runner(self.executable, self._seeds)

    @property
    def kept_bytes(self) -> int:
        """The bytes kept for captured steps, besides the memory of executable and caller."""
        runner: StepRunner | None = self.__dict__.get("_runner")  # None if it was never needed
        return runner.kept_bytes if runner else 0

    def __call__(
        self,
        parameters: Mapping[str, Array],
        velocities: Mapping[str, Array],
        images: Array,
        labels: Array,
        rate: float,
        seeds: Sequence[int] = (),
    ) -> float:
        """Do one step on a batch; return the loss before it."""
        numbers = tuple(np.asarray(checked_seed("a step", seed), np.int64) for seed in seeds)
        backend = self.device.backend
        parameters = arguments.checked_arrays("parameter", self._specs, parameters, backend)
        speeds = self._specs if self._momentum else {}
        velocities = arguments.checked_arrays("velocity", speeds, velocities, backend)
        loss, _, _ = self.executable(
            parameters, velocities, images, labels, self._dtype.type(rate), numbers
        )
        return float(self.device.backend.to_host(loss))

    def run(
        self,
        parameters: Mapping[str, Array],
        velocities: Mapping[str, Array],
        images: Array,
        labels: Array,
        order: Array,
        rate: float,
        seed: int = 0,
        first: int = 0,
    ) -> Array:
        """Do several steps: row i of `order` (steps, batch) picks the images of step `first` + i.

        Returns the loss of each step. Everything is checked before anything is updated.

        Raises:
            DtypeError, ShapeError: an array or the order is not what the network takes.
        """
        backend = self.device.backend
        parameters = arguments.checked_arrays("parameter", self._specs, parameters, backend)
        speeds = self._specs if self._momentum else {}
        velocities = arguments.checked_arrays("velocity", speeds, velocities, backend)
        seed = checked_seed("a step", seed)
        arguments.check_data(images, labels, self._images, self._classes, backend)
        order = arguments.checked_order(order, (self.batch,), len(images))
        updated = (*parameters.values(), *velocities.values())
        arguments.check_disjoint(updated, (images, labels), backend)
        losses = self._losses(parameters, velocities, images, labels, order, rate, seed, first)
        if not isinstance(labels, np.ndarray) and np.isnan(losses).any():
            with self.device, backend.scope(self.device):
                check_labels(labels, self._classes)  # on a GPU a wrong label makes the loss NaN
        return losses

    def _losses(
        self, parameters: Mapping[str, Array], velocities: Mapping[str, Array], images: Array,
        labels: Array, order: Array, rate: float, seed: int, first: int,
    ) -> Array:  # fmt: skip
        if self._loop is not None and self.device.backend.is_local(images):
            losses = self._loop(
                list(parameters.values()), list(velocities.values()), images, labels, order, rate,
                self._momentum, self._decay,
            )  # fmt: skip
            if losses is not None:
                return losses
        seeds = [dropout_seeds(seed, first + row, self._seeds) for row in range(len(order))]
        if self._runner is not None:
            numbers = np.array(seeds, np.int64).reshape(len(order), self._seeds)
            return self._runner(parameters, velocities, images, labels, order, rate, numbers)
        losses = np.empty(len(order))
        for row, chosen in enumerate(order):
            losses[row] = self(
                parameters, velocities, images[chosen], labels[chosen], rate, seeds[row]
            )
        return losses
