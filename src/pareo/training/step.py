"""One training step of a network as one compiled program: forward, backward and update."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

import pareo.operators as op
from pareo.array import Array
from pareo.backends.base import ClockedRunner, Seen, StepRunner, TrainingLoop
from pareo.device import Device
from pareo.errors import ShapeError
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
from pareo.training.recipe import AVERAGE, Recipe

PLAIN = Recipe()


def parameter_specs(network: Sequential, dtype: DTypeLike) -> dict[str, Spec]:
    """The spec of each parameter of a network, by its path.

    >>> from pareo.nn import networks
    >>> parameter_specs(networks.mlp([4, 3]), "float32")["1.w"]
    Spec((4, 3), 'float32')
    """
    return {path: Spec(p.shape, dtype) for path, p in network.parameters(network.inputs).items()}


def slot_specs(network: Sequential, recipe: Recipe, dtype: DTypeLike) -> dict[str, Spec]:
    """The spec of each slot: the arrays that an optimizer keeps, named SLOT.PATH.

    >>> from pareo.nn import networks
    >>> from pareo.training.optimizers import SGD
    >>> list(slot_specs(networks.mlp([4, 3]), Recipe(SGD(momentum=0.9)), "float32"))
    ['velocity.1.w', 'velocity.1.b']
    """
    parameters = network.parameters(network.inputs)
    return {
        f"{slot}.{path}": Spec(parameters[path].shape, dtype)
        for slot, path in recipe.slots(parameters)
    }


def new_slots(
    network: Sequential, recipe: Recipe, parameters: Mapping[str, Array]
) -> dict[str, Array]:
    """The slots before the first step: zeros, and for an average the parameters themselves."""
    return {
        f"{slot}.{path}": np.array(parameters[path])
        if slot == AVERAGE
        else np.zeros_like(parameters[path])
        for slot, path in recipe.slots(network.parameters(network.inputs))
    }


def step_program(
    network: Sequential,
    batch: int,
    recipe: Recipe = PLAIN,
    dtype: DTypeLike = "float32",
) -> Program:
    """The program of one step.

    It maps (parameters, slots, images, labels, numbers, seeds) to (loss, parameters, slots).
    `numbers` are the scalars of the optimizer, the rate first. The state of layers is among the
    parameters.

    >>> from pareo.nn import networks
    >>> step_program(networks.papers_cnn(), batch=128).flops // 10**6
    52
    """
    recipe.check(network)
    specs, declared = parameter_specs(network, dtype), network.parameters(network.inputs)
    trained, fixed = recipe.trained(declared), recipe.fixed(declared)

    def step(
        parameters: Mapping[str, Array],
        slots: Mapping[str, Array],
        images: Array,
        labels: Array,
        numbers: tuple[Array, ...],
        seeds: tuple[Array, ...],
    ) -> tuple[Array, dict[str, Array], dict[str, Array]]:
        if recipe.augment is not None:
            images = recipe.augment(images, seeds[-1])
            seeds = seeds[:-1]

        def loss(moving: Mapping[str, Array]) -> tuple[Array, dict[str, Array]]:
            return network.loss_and_state(
                {**parameters, **moving}, images, labels, seeds, recipe.loss, fixed
            )

        total, gradients, state = value_and_grad(loss, aux=True)(
            {path: parameters[path] for path in trained}
        )
        gradients = recipe.clipped(gradients)
        moved: dict[str, Array] = {**parameters, **state}
        changed: dict[str, Array] = {}
        for path in trained:
            own = {slot: slots[f"{slot}.{path}"] for slot in recipe.optimizer.slots}
            decay = recipe.decay_of(declared[path])
            moved[path], new = recipe.optimizer.update(
                parameters[path], gradients[path], own, numbers, decay
            )
            changed |= {f"{slot}.{path}": array for slot, array in new.items()}
        if recipe.average is not None:
            for path, array in moved.items():
                old = op.scale(recipe.average, slots[f"{AVERAGE}.{path}"])
                changed[f"{AVERAGE}.{path}"] = op.add(old, op.scale(1 - recipe.average, array))
        return total, moved, {name: changed[name] for name in slots}

    program = trace(
        step,
        specs,
        slot_specs(network, recipe, dtype),
        Spec((batch, *network.inputs), dtype, batch=0),
        recipe.loss.targets(batch, network.classes, dtype),
        (Spec((), dtype),) * recipe.optimizer.count,
        (Spec((), "int64"),) * (network.seeds() + recipe.seeds),
    )
    return remove_dead(remove_common(program))


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
    """The backend's own loop of training steps for a network without state, or None."""
    return None if network.state else _chosen_loop(network, device, dtype)[0]


def one_image_program(network: Sequential, dtype: DTypeLike) -> tuple[Program, list[int]]:
    """The gradient program of one image, and the positions of parameters that are state.

    It maps (parameters..., image, label) to (loss, gradients...). In the place of the gradient of
    state is its new value.

    >>> from pareo.nn import BatchNorm, Conv, Dense, Flatten, Sequential
    >>> layers = [Conv(4, 3), BatchNorm(), Flatten(), Dense(2)]
    >>> one_image_program(Sequential(layers, (1, 8, 8)), "float32")[1]
    [4, 5]
    """
    declared = network.parameters(network.inputs)

    def step(parameters: Mapping[str, Array], image: Array, label: Array) -> tuple[Any, ...]:
        def loss(moving: Mapping[str, Array]) -> tuple[Array, dict[str, Array]]:
            return network.loss_and_state({**parameters, **moving}, image, label)

        trained = {path: array for path, array in parameters.items() if declared[path].trained}
        total, gradients, state = value_and_grad(loss, aux=True)(trained)
        return total, {path: {**gradients, **state}[path] for path in parameters}

    image, label = Spec((1, *network.inputs), dtype), Spec((1,), "int64")
    program = trace(step, parameter_specs(network, dtype), image, label)
    return program, [place for place, p in enumerate(declared.values()) if not p.trained]


def _chosen_loop(
    network: Sequential, device: Device, dtype: DTypeLike, batch: int | None = None
) -> tuple[TrainingLoop | None, str]:
    """The backend's own loop, if it has one that is worth it, and why that is so."""
    if network.seeds():
        return None, "layers with random numbers do not run in loops"
    backend = device.backend
    with device:
        try:
            traced, state = one_image_program(network, dtype)
        except ShapeError as error:  # one image may be too few for a batch normalisation
            return None, f"loops are for networks that can be traced for one image: {error}"
        if not state:
            program = prepared(traced, backend)
            loop = backend.training_loop(program, plan(program, backend), device.threads)
            if loop is not None:
                return loop, "the backend has a loop for networks of this shape"
        general = remove_dead(remove_common(traced))
        return backend.general_loop(general, device.threads, state, batch)


class Step:
    """A compiled training step that updates parameters and slots in place."""

    def __init__(
        self,
        network: Sequential,
        batch: int,
        device: Device,
        recipe: Recipe = PLAIN,
        dtype: DTypeLike = "float32",
    ) -> None:
        self.program = step_program(network, batch, recipe, dtype)
        self.batch = batch
        self.recipe = recipe
        self._specs = parameter_specs(network, dtype)
        self._slots = slot_specs(network, recipe, dtype)
        self._images, self._classes = Spec((batch, *network.inputs), dtype), network.classes
        self._labels = recipe.loss.targets(batch, network.classes, dtype)
        self.device = device
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self._seeds = network.seeds() + recipe.seeds
        declared = network.parameters(network.inputs)
        self._decay = max((recipe.decay_of(p) for p in declared.values()), default=0.0)
        self._loop: TrainingLoop | None = None
        self._reason = "loops are for plain SGD on the cross-entropy"
        with device, device.backend.scope(device):
            self._has_table = device.backend.has_table(self.program, self._updates)
        self._in_table = self._has_table
        if self._in_table:
            self._reason = "all values are matrices"
        elif recipe.loops(declared):
            self._loop, self._reason = _chosen_loop(network, device, dtype, batch)

    @property
    def loops(self) -> bool:
        """Whether many steps run in a loop of the backend's own rather than as a program."""
        return self._loop_bytes(self.batch) is not None

    @property
    def in_table(self) -> bool:
        """Whether many steps run in machine code, from a table of the program's instructions."""
        return self._in_table

    def explain(self) -> str:
        """Whether steps run in a loop of the backend's own, from a table or as a program, and why.

        >>> from pareo.nn import networks
        >>> Step(networks.papers_cnn(), 128, Device("vectorized")).explain()
        'instruction by instruction: vectorized has no loop for this network'
        """
        if self._in_table:
            return f"from a table in machine code: {self._reason}"
        if self.loops:
            return f"in one loop: {self._reason}"
        lowered = self.device.backend.describe_lowering(self.program)
        if lowered:
            return f"as a program: {self._reason}; {lowered}"
        return f"instruction by instruction: {self._reason}"

    def _loop_bytes(self, batch: int) -> int | None:
        """The bytes the loop works in; None where there is none, or none for this batch size."""
        if self._loop is None or batch < 1:
            return None
        with self.device, self.device.backend.scope(self.device):
            return self._loop.nbytes(batch, bool(self.recipe.momentum))

    @contextmanager
    def without_loop(self) -> Iterator[None]:
        """A scope in which steps run as a program even where the backend has a faster way."""
        loop, in_table = self._loop, self._in_table
        self._loop, self._in_table = None, False
        try:
            yield
        finally:
            self._loop, self._in_table = loop, in_table

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
        images = len(self._specs) + len(self._slots)
        inside = self._loop_bytes(self.batch if batch is None else batch)
        if inside is not None:
            moved = self.program.inputs[:images]  # parameters and slots
            return inside + sum(self.program.specs[number].nbytes for number in moved)
        return self.program.memory(batch, self.device, self._updates, images, tight)

    @property
    def _updates(self) -> dict[int, int]:
        """New parameters, and slots if there are any, replace the old ones."""
        return {i + 1: i for i in range(len(self.program.outputs) - 1)}

    @cached_property
    def _runner(self) -> StepRunner | None:
        """The backend's own way to run many steps, if it has one."""
        return self.device.backend.step_runner(self.executable, self._seeds)

    def clocked(self, seen: Seen) -> AbstractContextManager[None] | None:
        """A scope in which each call of `executable.calls` is timed while steps run as they do.

        seen(position, start, end) is called for those of all steps but the first two on some
        parameters. None if steps run in another way.
        """
        runner: object = None if self.loops or self._in_table else self._runner
        return runner.clocked(seen) if isinstance(runner, ClockedRunner) else None

    @property
    def kept_bytes(self) -> int:
        """The bytes kept for captured steps, besides the memory of executable and caller."""
        runner: StepRunner | None = self.__dict__.get("_runner")  # None if it was never needed
        return runner.kept_bytes if runner else 0

    def numbers(self, rate: float | Array, first: int, count: int) -> Array:
        """The scalars of `count` steps from `first` on, a row for each; one rate, or one a step."""
        rates = np.broadcast_to(np.asarray(rate, np.float64), (count,))
        return self.recipe.optimizer.numbers_of(first, rates).astype(self._dtype)

    def __call__(
        self,
        parameters: Mapping[str, Array],
        slots: Mapping[str, Array],
        images: Array,
        labels: Array,
        rate: float,
        seeds: Sequence[int] = (),
        number: int = 0,
    ) -> float:
        """Do one step on a batch, the step of this number; return the loss before it."""
        backend = self.device.backend
        parameters = arguments.checked_arrays("parameter", self._specs, parameters, backend)
        slots = arguments.checked_arrays("slot", self._slots, slots, backend)
        return self._one(parameters, slots, images, labels, self.numbers(rate, number, 1)[0], seeds)

    def _one(
        self, parameters: Mapping[str, Array], slots: Mapping[str, Array], images: Array,
        labels: Array, numbers: Array, seeds: Sequence[int],
    ) -> float:  # fmt: skip
        drawn = tuple(np.asarray(checked_seed("a step", seed), np.int64) for seed in seeds)
        loss, _, _ = self.executable(parameters, slots, images, labels, tuple(numbers), drawn)
        return float(self.device.backend.to_host(loss))

    def run(
        self,
        parameters: Mapping[str, Array],
        slots: Mapping[str, Array],
        images: Array,
        labels: Array,
        order: Array,
        rate: float | Array,
        seed: int = 0,
        first: int = 0,
    ) -> Array:
        """Do several steps: row i of `order` (steps, batch) picks the images of step `first` + i.

        `rate` is one number, or one for each step. Returns the loss of each step. Everything is
        checked before anything is updated.

        Raises:
            DtypeError, ShapeError: an array or the order is not what the network takes.
        """
        backend = self.device.backend
        parameters = arguments.checked_arrays("parameter", self._specs, parameters, backend)
        slots = arguments.checked_arrays("slot", self._slots, slots, backend)
        seed = checked_seed("a step", seed)
        arguments.check_data(images, labels, self._images, self._labels, self._classes, backend)
        order = arguments.checked_order(order, (self.batch,), len(images))
        updated = (*parameters.values(), *slots.values())
        arguments.check_disjoint(updated, (images, labels), backend)
        losses = self._losses(parameters, slots, images, labels, order, rate, seed, first)
        if not isinstance(labels, np.ndarray) and np.isnan(losses).any():
            with self.device, backend.scope(self.device):
                if labels.dtype.kind in "iu":
                    check_labels(labels, self._classes)  # on a GPU a wrong label makes a NaN
        return losses

    def _losses(
        self, parameters: Mapping[str, Array], slots: Mapping[str, Array], images: Array,
        labels: Array, order: Array, rate: float | Array, seed: int, first: int,
    ) -> Array:  # fmt: skip
        numbers = self.numbers(rate, first, len(order))
        if self._loop is not None and self.device.backend.is_local(images):
            losses = self._looped(parameters, slots, images, labels, order, numbers[:, 0])
            if losses is not None:
                return losses
        seeds = np.empty((len(order), self._seeds), np.int64)
        for row in range(len(order) if self._seeds else 0):
            seeds[row] = dropout_seeds(seed, first + row, self._seeds)
        as_program = self._has_table and not self._in_table
        if not as_program and self._runner is not None:
            return self._runner(parameters, slots, images, labels, order, numbers, seeds)
        losses = np.empty(len(order))
        for row, chosen in enumerate(order):
            losses[row] = self._one(
                parameters, slots, images[chosen], labels[chosen], numbers[row],
                seeds[row].tolist(),
            )  # fmt: skip
        return losses

    def _looped(
        self, parameters: Mapping[str, Array], slots: Mapping[str, Array], images: Array,
        labels: Array, order: Array, rates: Array,
    ) -> Array | None:  # fmt: skip
        """All steps in the backend's own loop, a call for each run of steps of one rate."""
        assert self._loop is not None
        arrays = list(parameters.values()), list(slots.values())
        ends = [*(np.flatnonzero(np.diff(rates)) + 1).tolist(), len(order)]
        found, start = [], 0
        for end in ends:
            rate = float(rates[start]) if len(rates) else 0.0
            losses = self._loop(
                *arrays, images, labels, order[start:end], rate, self.recipe.momentum, self._decay
            )
            if losses is None:
                return None  # for no order of this batch size, so nothing has been done
            found.append(losses)
            start = end
        return np.concatenate(found)
